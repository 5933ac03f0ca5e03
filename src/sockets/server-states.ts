/** States of a server of byte streams, as a literal table. */
import type { MachineTable } from '../base/fsm.ts';

/** States of {@link SOCKET_SERVER_TABLE}. */
export type SocketServerState = 'idle' | 'binding' | 'listening' | 'closing' | 'closed';
/** Inputs of {@link SOCKET_SERVER_TABLE}. */
export type SocketServerInput = 'listen' | 'bound' | 'failed' | 'close' | 'ended';

/**
 * The life of a server. After a failure another address may be tried, and a closed server can listen again.
 */
export const SOCKET_SERVER_TABLE: MachineTable<SocketServerState, SocketServerInput> = {
  name: 'socket server',
  initial: 'idle',
  transitions: {
    idle: { listen: 'binding', close: 'closing' },
    binding: { bound: 'listening', failed: 'idle', close: 'closing' },
    listening: { close: 'closing' },
    closing: { bound: 'closing', failed: 'closing', close: 'closing', ended: 'closed' },
    closed: { listen: 'binding', close: 'closing' },
  },
};
