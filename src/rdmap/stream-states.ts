/** States of an RDMA stream: RFC 5040 6 and 7, verbs draft 6.2. Every change of state is one line of the table. */
import type { MachineTable } from '../base/fsm.ts';

export type StreamState =
  | 'idle' | 'startup' | 'deciding' | 'operational' | 'draining' | 'closing' | 'terminating' | 'leaving' | 'closed';
export type StreamInput =
  | 'start' | 'request' | 'establish' | 'leave' | 'close' | 'finish' | 'terminate' | 'end-of-port';

/**
 * idle → startup → (deciding) → operational → closing | terminating → closed. `draining` is a local close that still has work to send;
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
