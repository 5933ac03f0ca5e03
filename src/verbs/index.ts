/** `iwarp/verbs`: device, protection domain, memory region, completion queue, queue pair, shared receive queue. */
export { ACCESS } from '../ddp/stag-table.ts';
export { Device, DEFAULT_LIMITS, type DeviceLimits, type DeviceOptions } from './device.ts';
export { MemoryRegion, ProtectionDomain, type RegisterOptions, type Sge } from './memory.ts';
export { CompletionQueue, createWorkCompletion, type NotifyKind, type WorkCompletion } from './cq.ts';
export { QueuePair, type QpAttributes, type QpState, type QueuePairOptions } from './qp.ts';
export { SharedReceiveQueue, type SrqOptions } from './srq.ts';
export type { AsyncEvent } from './events.ts';
export type {
  CmpSwapRequest,
  FetchAddRequest,
  ImmediateRequest,
  ReadRequest,
  ReceiveWorkRequest,
  SendRequest,
  SendWorkRequest,
  WriteRequest,
} from './post.ts';
export type { WcOpcode, WcStatus } from '../rdmap/work.ts';
export type { TerminateInfo } from '../rdmap/terminate.ts';
