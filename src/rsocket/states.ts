/** States of an rsocket connection and of its two directions, as literal tables. */
import type { MachineTable } from '../base/fsm.ts';
import type { ChannelState } from '../sockets/byte-channel.ts';

/** Inputs of {@link CHANNEL_TABLE}. */
export type ChannelInput = 'established' | 'all-said' | 'leave' | 'gone';

/** The life of a connection. */
export const CHANNEL_TABLE: MachineTable<ChannelState, ChannelInput> = {
  name: 'rsocket connection',
  initial: 'opening',
  transitions: {
    opening: { established: 'open', leave: 'closing', gone: 'closed' },
    open: { 'all-said': 'closing', leave: 'closing', gone: 'closed' },
    closing: { leave: 'closing', gone: 'closed' },
    closed: {},
  },
};

/** States of one direction: how far its sender has ended. */
export type DirectionState = 'flowing' | 'shut-down' | 'disconnected';
/** Inputs of {@link DIRECTION_TABLE}: control messages; the end of the TCP stream counts as a disconnect. */
export type DirectionInput = 'shutdown' | 'disconnect';

/** One direction: the peer's as its messages end it, ours as we end it. */
export const DIRECTION_TABLE: MachineTable<DirectionState, DirectionInput> = {
  name: 'rsocket direction',
  initial: 'flowing',
  transitions: {
    flowing: { shutdown: 'shut-down', disconnect: 'disconnected' },
    'shut-down': { shutdown: 'shut-down', disconnect: 'disconnected' },
    disconnected: { shutdown: 'disconnected', disconnect: 'disconnected' },
  },
};
