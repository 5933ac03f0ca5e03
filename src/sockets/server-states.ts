/** States of a server of byte streams, as a literal table. */
import type { MachineTable } from '../base/fsm.ts';

/** States of {@link SOCKET_SERVER_TABLE}. */
export type SocketServerState =
  | 'idle'
  | 'binding'
  | 'listening'
  | 'closing'
  | 'draining'
  | 'reopening'
  | 'closed';
/** Inputs of {@link SOCKET_SERVER_TABLE}. */
export type SocketServerInput = 'listen' | 'bound' | 'failed' | 'close' | 'freed' | 'ended';

/**
 * The life of a server. After a failure another address may be tried, and after `close()` it may listen again
 * at once, as in `node:net`: the new address is bound when the old one is free, which may be the same.
 */
export const SOCKET_SERVER_TABLE: MachineTable<SocketServerState, SocketServerInput> = {
  name: 'socket server',
  initial: 'idle',
  transitions: {
    idle: { listen: 'binding', close: 'closing' },
    binding: { bound: 'listening', failed: 'idle', close: 'closing' },
    listening: { close: 'closing' },
    closing: {
      bound: 'closing',
      failed: 'closing',
      close: 'closing',
      listen: 'reopening',
      freed: 'draining',
    },
    draining: { close: 'draining', listen: 'binding', ended: 'closed' },
    reopening: { bound: 'reopening', failed: 'reopening', close: 'closing', freed: 'binding' },
    closed: { listen: 'binding', close: 'closing' },
  },
};
