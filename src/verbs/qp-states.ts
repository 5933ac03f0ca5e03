/**
 * States of a queue pair: verbs draft 6.2. Every change of state is one line of the table.
 */
import type { MachineTable } from '../base/fsm.ts';

// The union is written out for the API reference, as in queues/completion.ts.
/** States of the verbs draft (6.2). */
export const QP_STATES: readonly QpState[] = ['idle', 'rts', 'closing', 'terminate', 'error'];
/** State of a queue pair. */
export type QpState = 'idle' | 'rts' | 'closing' | 'terminate' | 'error';
export const QP_INPUTS = [
  'attach',
  'llp-close',
  'terminate',
  'fail',
  'llp-closed',
  'reset',
  'modify-error',
] as const;
/** One of `QP_INPUTS`. */
export type QpInput = (typeof QP_INPUTS)[number];

/** Verbs draft 6.2, with Modify and network events as inputs. */
export const QP_TABLE: MachineTable<QpState, QpInput> = {
  name: 'queue pair',
  initial: 'idle',
  transitions: {
    idle: { attach: 'rts', 'modify-error': 'error', fail: 'error' },
    rts: { 'llp-close': 'closing', terminate: 'terminate', fail: 'error', 'modify-error': 'error' },
    // A Terminate found while closing ends in Error when the connection is gone.
    closing: { 'llp-closed': 'idle', fail: 'error', terminate: 'terminate' },
    terminate: { fail: 'error' },
    error: { fail: 'error', reset: 'idle' },
  },
};

/** Where Modify may lead from each state (VERBS-022): the state itself means attributes only. */
export const MODIFY_TABLE: Readonly<Record<QpState, readonly QpState[]>> = {
  idle: ['idle', 'error'],
  rts: ['rts', 'closing', 'terminate', 'error'],
  closing: [],
  terminate: [],
  error: ['idle'],
};
