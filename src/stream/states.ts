/**
 * States of an RDMA stream: RFC 5040 6 and 7, verbs draft 6.2. Every change of state is one line of the
 * table.
 */
import type { MachineTable } from '../base/fsm.ts';

const STREAM_STATES = [
  'idle',
  'startup',
  'deciding',
  'operational',
  'draining',
  'closing',
  'terminating',
  'leaving',
  'closed',
] as const;
/** One of `STREAM_STATES`. */
export type StreamState = (typeof STREAM_STATES)[number];
export const STREAM_INPUTS = [
  'start',
  'request',
  'establish',
  'leave',
  'close',
  'finish',
  'terminate',
  'end-of-port',
] as const;
/** One of `STREAM_INPUTS`. */
export type StreamInput = (typeof STREAM_INPUTS)[number];

/**
 * idle → startup → (deciding) → operational → closing | terminating → closed. `draining` is a local close
 * that still has work to send;
 * `leaving` is a connection that never became operational and is on its way out.
 */
export const STREAM_TABLE: MachineTable<StreamState, StreamInput> = {
  name: 'RDMA stream',
  initial: 'idle',
  transitions: {
    idle: { start: 'startup', 'end-of-port': 'closed' },
    startup: { request: 'deciding', establish: 'operational', leave: 'leaving', 'end-of-port': 'closed' },
    deciding: { establish: 'operational', leave: 'leaving', 'end-of-port': 'closed' },
    operational: { close: 'draining', finish: 'closing', terminate: 'terminating', 'end-of-port': 'closed' },
    draining: { finish: 'closing', terminate: 'terminating', 'end-of-port': 'closed' },
    closing: { 'end-of-port': 'closed' },
    terminating: { 'end-of-port': 'closed' },
    leaving: { 'end-of-port': 'closed' },
    closed: {},
  },
};
