// The tests of the verbs over shared memory. Not among them: those whose network takes its time, for a ring
// has all octets at once (test/shm/placement.test.ts ends memory under Writes of that wire).
import { setPairWire } from '../support/pair.ts';

setPairWire('shm');
await import('../verbs/cq.test.ts');
await import('../verbs/extensions.test.ts');
await import('../verbs/objects.test.ts');
await import('../verbs/ordering.test.ts');
await import('../verbs/posting.test.ts');
await import('../verbs/qp-states.test.ts');
await import('../verbs/regions.test.ts');
await import('../verbs/security.test.ts');
await import('../verbs/srq.test.ts');
await import('../verbs/trials.test.ts');
await import('../verbs/windows.test.ts');
await import('../cm/attributes.test.ts');
