/** The life of one connection of a client, as a table. */
import type { MachineTable } from '../base/fsm.ts';

export const MEMBER_STATES = ['connecting', 'open', 'waiting', 'ended'] as const;
export type MemberState = (typeof MEMBER_STATES)[number];
export const MEMBER_INPUTS = ['ready', 'failed', 'lost', 'retry', 'end'] as const;
export type MemberInput = (typeof MEMBER_INPUTS)[number];

/** `failed`: it did not come about; `lost`: it has ended; `retry`: the back-off is over. */
export const MEMBER_TABLE: MachineTable<MemberState, MemberInput> = {
  name: 'connection of a client',
  initial: 'connecting',
  transitions: {
    connecting: { ready: 'open', failed: 'waiting', end: 'ended' },
    open: { lost: 'waiting', end: 'ended' },
    waiting: { retry: 'connecting', end: 'ended' },
    ended: { ready: 'ended', failed: 'ended', lost: 'ended', retry: 'ended', end: 'ended' },
  },
};
