// The verbs against the naive model, over shared memory. IWARP_MODEL_OPS and IWARP_MODEL_SEED count here too.
import { setPairWire } from '../support/pair.ts';

setPairWire('shm');
await import('../model/verbs.test.ts');
