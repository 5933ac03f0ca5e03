/**
 * States of a connection over UDP: set-up, established, and the time after it in which a late datagram of
 * the peer is still answered. Every change of state is one line of the table.
 */
import type { MachineTable } from '../base/fsm.ts';

const TRP_STATES = [
  'idle',
  'waiting',
  'req-sent',
  'req-rcvd',
  'accepting',
  'established',
  'closing',
  'closed',
] as const;
/** One of `TRP_STATES`. */
export type TrpState = (typeof TRP_STATES)[number];
const TRP_INPUTS = ['connect', 'listen', 'request', 'accept', 'accepted', 'heard', 'leave', 'gone'] as const;
/** One of `TRP_INPUTS`. */
export type TrpInput = (typeof TRP_INPUTS)[number];

/**
 * Client: `connect` sends the request, `accepted` is the peer's accept. Server: `listen`, `request` is the
 * peer's, `accept` the program's; the accept is sent again until the first datagram is `heard` from the
 * client at the new port. `leave`: rejected, both directions ended, or aborted. `gone`: the socket is closed.
 */
export const TRP_TABLE: MachineTable<TrpState, TrpInput> = {
  name: 'UDP connection',
  initial: 'idle',
  transitions: {
    idle: { connect: 'req-sent', listen: 'waiting', gone: 'closed' },
    waiting: { request: 'req-rcvd', leave: 'closing', gone: 'closed' },
    'req-sent': { accepted: 'established', leave: 'closing', gone: 'closed' },
    'req-rcvd': { accept: 'accepting', leave: 'closing', gone: 'closed' },
    accepting: { heard: 'established', leave: 'closing', gone: 'closed' },
    established: { leave: 'closing', gone: 'closed' },
    closing: { gone: 'closed' },
    closed: {},
  },
};
