/**
 * The life of an NBD connection over a byte stream, as two literal tables: one for each role. Read the
 * sections "Fixed newstyle negotiation" and "Session termination" of the NBD document first.
 */
import type { MachineTable } from '../base/fsm.ts';

/** States of a server's end. */
export type ServerState = 'greeting' | 'options' | 'transmission' | 'draining' | 'closed';
/** What can happen to it. */
export type ServerInput =
  | 'client-flags'
  | 'option'
  | 'go'
  | 'abort'
  | 'bad-frame'
  | 'silence'
  | 'disconnect'
  | 'end'
  | 'drained';

/** The server's end of a connection. */
export const SERVER_NEGOTIATION_TABLE: MachineTable<ServerState, ServerInput> = {
  name: 'NBD server',
  initial: 'greeting',
  transitions: {
    greeting: { 'client-flags': 'options', 'bad-frame': 'closed', silence: 'closed', end: 'closed' },
    options: {
      option: 'options',
      go: 'transmission',
      abort: 'closed',
      'bad-frame': 'closed',
      silence: 'closed',
      end: 'closed',
    },
    transmission: { disconnect: 'draining', end: 'draining', 'bad-frame': 'closed' },
    draining: { drained: 'closed', end: 'draining' },
    closed: {},
  },
};

/** States of a client's end. */
export type ClientState =
  | 'greeting'
  | 'structured-reply'
  | 'meta-context'
  | 'go'
  | 'export-name'
  | 'transmission'
  | 'draining'
  | 'closed';
/** What can happen to it. */
export type ClientInput =
  | 'fixed-greeting'
  | 'plain-greeting'
  | 'agreed'
  | 'unsupported'
  | 'refused'
  | 'bad-frame'
  | 'silence'
  | 'close'
  | 'end';

/** The client's end of a connection. */
export const CLIENT_NEGOTIATION_TABLE: MachineTable<ClientState, ClientInput> = {
  name: 'NBD client',
  initial: 'greeting',
  transitions: {
    greeting: {
      'fixed-greeting': 'structured-reply',
      'plain-greeting': 'export-name',
      'bad-frame': 'closed',
      silence: 'closed',
      end: 'closed',
    },
    'structured-reply': {
      agreed: 'meta-context',
      unsupported: 'go',
      'bad-frame': 'closed',
      silence: 'closed',
      end: 'closed',
    },
    'meta-context': {
      agreed: 'go',
      unsupported: 'go',
      'bad-frame': 'closed',
      silence: 'closed',
      end: 'closed',
    },
    go: {
      agreed: 'transmission',
      unsupported: 'export-name',
      refused: 'closed',
      'bad-frame': 'closed',
      silence: 'closed',
      end: 'closed',
    },
    'export-name': { agreed: 'transmission', 'bad-frame': 'closed', silence: 'closed', end: 'closed' },
    transmission: { close: 'draining', 'bad-frame': 'closed', end: 'closed' },
    draining: { 'bad-frame': 'closed', silence: 'closed', end: 'closed' },
    closed: {},
  },
};
