/** The life of a promise connection, as a table. */
import type { MachineTable } from '../base/fsm.ts';

export const CONNECTION_STATES = ['open', 'finishing', 'parting', 'following', 'leaving', 'closed'] as const;
export type ConnectionState = (typeof CONNECTION_STATES)[number];
export const CONNECTION_INPUTS = ['close', 'farewell', 'peer-farewell', 'leave', 'ended'] as const;
export type ConnectionInput = (typeof CONNECTION_INPUTS)[number];

/**
 * iWARP has no half-close, so two endpoints of this package close by farewells (see `close-handshake.ts`). A
 * farewell that comes again changes nothing: a peer can send any number of them.
 */
export const CONNECTION_TABLE: MachineTable<ConnectionState, ConnectionInput> = {
  name: 'promise connection',
  initial: 'open',
  transitions: {
    open: { close: 'finishing', 'peer-farewell': 'following', leave: 'leaving', ended: 'closed' },
    finishing: {
      close: 'finishing',
      farewell: 'parting',
      'peer-farewell': 'following',
      leave: 'leaving',
      ended: 'closed',
    },
    parting: { close: 'parting', 'peer-farewell': 'following', leave: 'leaving', ended: 'closed' },
    following: { close: 'following', 'peer-farewell': 'following', leave: 'leaving', ended: 'closed' },
    leaving: { close: 'leaving', 'peer-farewell': 'leaving', leave: 'leaving', ended: 'closed' },
    closed: { close: 'closed', leave: 'closed' },
  },
};
