/** States of a connection over shared memory: which of its two directions has ended. */
import type { MachineTable } from '../base/fsm.ts';

const SHM_STATES = ['open', 'ended', 'peer-ended', 'both-ended', 'closed'] as const;
/** One of `SHM_STATES`. */
export type ShmState = (typeof SHM_STATES)[number];
const SHM_INPUTS = ['fin', 'peer-fin', 'over'] as const;
/** One of `SHM_INPUTS`. */
export type ShmInput = (typeof SHM_INPUTS)[number];

/**
 * `fin`: ours is in the ring, behind all that was written. `peer-fin`: the peer's has been read. `over`: both
 * directions have ended, or the connection was reset or lost.
 */
export const SHM_TABLE: MachineTable<ShmState, ShmInput> = {
  name: 'shared-memory connection',
  initial: 'open',
  transitions: {
    open: { fin: 'ended', 'peer-fin': 'peer-ended', over: 'closed' },
    ended: { 'peer-fin': 'both-ended', over: 'closed' },
    'peer-ended': { fin: 'both-ended', over: 'closed' },
    'both-ended': { over: 'closed' },
    closed: {},
  },
};

/** Whether octets may still arrive. */
export function reads(state: ShmState): boolean {
  return SHM_TABLE.transitions[state]['peer-fin'] !== undefined;
}

/** Whether octets may still be written. */
export function writes(state: ShmState): boolean {
  return SHM_TABLE.transitions[state].fin !== undefined;
}
