/** The life of an extended socket as a table. */
import type { MachineTable } from '../../base/fsm.ts';

/** States of an extended socket. */
export const EXTENDED_STATES: readonly ExtendedState[] = ['plain', 'switching', 'rdma', 'closing', 'closed'];
/** A state of an extended socket. */
export type ExtendedState = 'plain' | 'switching' | 'rdma' | 'closing' | 'closed';
/** Inputs of {@link EXTENDED_TABLE}. */
export const EXTENDED_INPUTS = ['switch', 'refused', 'established', 'end', 'gone'] as const;
/** An input of {@link EXTENDED_TABLE}. */
export type ExtendedInput = (typeof EXTENDED_INPUTS)[number];

export const EXTENDED_TABLE: MachineTable<ExtendedState, ExtendedInput> = {
  name: 'extended socket',
  initial: 'plain',
  transitions: {
    plain: { switch: 'switching', gone: 'closed' },
    switching: { refused: 'plain', established: 'rdma', end: 'closing', gone: 'closed' },
    rdma: { end: 'closing', gone: 'closed' },
    closing: { established: 'closing', end: 'closing', gone: 'closed' },
    closed: { end: 'closed', gone: 'closed' },
  },
};
