/** The life of a shared socket as a table. */
import type { MachineTable } from '../base/fsm.ts';

/** States of a shared socket. */
export const SHARED_STATES: readonly SharedState[] = ['connecting', 'open', 'closing', 'closed'];
/** A state of a shared socket. */
export type SharedState = 'connecting' | 'open' | 'closing' | 'closed';
/** What moves a shared socket on. */
export const SHARED_INPUTS = ['established', 'close', 'ended'] as const;
/** An input of {@link SHARED_TABLE}. */
export type SharedInput = (typeof SHARED_INPUTS)[number];

export const SHARED_TABLE: MachineTable<SharedState, SharedInput> = {
  name: 'shared socket',
  initial: 'connecting',
  transitions: {
    connecting: { established: 'open', close: 'closing', ended: 'closed' },
    open: { close: 'closing', ended: 'closed' },
    closing: { established: 'closing', close: 'closing', ended: 'closed' },
    closed: { close: 'closed' },
  },
};
