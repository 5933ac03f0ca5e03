// The verbs against the naive model, over UDP. IWARP_MODEL_OPS and IWARP_MODEL_SEED count here too.
import { setPairWire } from '../support/pair.ts';

setPairWire('trp');
await import('../model/verbs.test.ts');
