/** States of a datagram queue pair. Every change of state is one line of the table. */
import type { MachineTable } from '../base/fsm.ts';

// The union is written out for the API reference, as in queues/completion.ts.
/** States of a datagram queue pair. */
export const DATAGRAM_QP_STATES: readonly DatagramQpState[] = [
  'unbound',
  'binding',
  'bound',
  'failed',
  'destroyed',
];
/** State of a datagram queue pair. */
export type DatagramQpState = 'unbound' | 'binding' | 'bound' | 'failed' | 'destroyed';
export const DATAGRAM_QP_INPUTS = ['bind', 'bound', 'refused', 'fail', 'destroy'] as const;
export type DatagramQpInput = (typeof DATAGRAM_QP_INPUTS)[number];

export const DATAGRAM_QP_TABLE: MachineTable<DatagramQpState, DatagramQpInput> = {
  name: 'datagram queue pair',
  initial: 'unbound',
  transitions: {
    unbound: { bind: 'binding', destroy: 'destroyed' },
    binding: { bound: 'bound', refused: 'unbound', destroy: 'destroyed' },
    bound: { fail: 'failed', destroy: 'destroyed' },
    failed: { destroy: 'destroyed' },
    destroyed: {},
  },
};
