/** The life of a promise server, as a table. */
import type { MachineTable } from '../base/fsm.ts';

export const SERVER_STATES = ['new', 'binding', 'listening', 'closed'] as const;
export type ServerState = (typeof SERVER_STATES)[number];
export const SERVER_INPUTS = ['listen', 'bound', 'bind-failed', 'close'] as const;
export type ServerInput = (typeof SERVER_INPUTS)[number];

/**
 * After a failed bind the program may try another address, and a closed server may listen again. A close
 * during the bind wins over its result.
 */
export const SERVER_TABLE: MachineTable<ServerState, ServerInput> = {
  name: 'promise server',
  initial: 'new',
  transitions: {
    new: { listen: 'binding', close: 'closed' },
    binding: { bound: 'listening', 'bind-failed': 'new', close: 'closed' },
    listening: { close: 'closed' },
    closed: { listen: 'binding', close: 'closed' },
  },
};
