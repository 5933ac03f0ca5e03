/**
 * States of a stream over plain TCP. Either direction of a TCP connection ends by itself, so there is a state
 * for each combination. Every change of state is one line of the table.
 */
import type { MachineTable } from '../base/fsm.ts';

export const QPIP_STATES = [
  'idle',
  'deciding',
  'operational',
  'draining',
  'ended',
  'half-open',
  'finishing',
  'closing',
  'aborting',
  'closed',
] as const;
export type QpipState = (typeof QPIP_STATES)[number];
export const QPIP_INPUTS = [
  'connected',
  'incoming',
  'accept',
  'close',
  'drained',
  'peer-end',
  'abort',
  'end-of-port',
] as const;
export type QpipInput = (typeof QPIP_INPUTS)[number];

/**
 * `draining`: a local close that still has Sends to write. `ended`: our direction has ended, the peer's has
 * not. `half-open`: the peer's direction has ended, ours has not; `finishing` is its local close.
 */
export const QPIP_TABLE: MachineTable<QpipState, QpipInput> = {
  name: 'plain TCP stream',
  initial: 'idle',
  transitions: {
    idle: { connected: 'operational', incoming: 'deciding', abort: 'aborting', 'end-of-port': 'closed' },
    deciding: { accept: 'operational', abort: 'aborting', 'end-of-port': 'closed' },
    operational: {
      close: 'draining',
      'peer-end': 'half-open',
      abort: 'aborting',
      'end-of-port': 'closed',
    },
    draining: { drained: 'ended', 'peer-end': 'finishing', abort: 'aborting', 'end-of-port': 'closed' },
    ended: { 'peer-end': 'closing', abort: 'aborting', 'end-of-port': 'closed' },
    'half-open': { close: 'finishing', abort: 'aborting', 'end-of-port': 'closed' },
    finishing: { drained: 'closing', abort: 'aborting', 'end-of-port': 'closed' },
    closing: { abort: 'aborting', 'end-of-port': 'closed' },
    aborting: { 'end-of-port': 'closed' },
    closed: {},
  },
};
