/**
 * `iwarp/verbs`: device, protection domain, memory region and window, completion queue, queue pair, shared receive queue. Names and
 * meanings follow libibverbs and draft-hilland-rddp-verbs-00. A wrong call throws an `IwarpError` at once and changes nothing; what
 * the network does arrives as a completion or as an {@link AsyncEvent}. Queue pairs are connected with `iwarp/cm`.
 *
 * @module iwarp/verbs
 */
export { ACCESS } from '../ddp/stag-table.ts';
export {
  Device, DEFAULT_LIMITS, type DeviceAttributes, type DeviceCapabilities, type DeviceLimits, type DeviceObjects, type DeviceOptions,
} from './device.ts';
export {
  MemoryRegion, type FastRegionOptions, type RegionAttributes, type RegisterOptions, type ReregisterOptions, type Sge,
} from './memory.ts';
export { MemoryWindow, type WindowAttributes } from './window.ts';
export { ProtectionDomain } from './pd.ts';
export { PostError } from './post.ts';
export { CompletionQueue, createWorkCompletion, type CqAttributes, type NotifyKind, type WorkCompletion } from './cq.ts';
export { QueuePair } from './qp.ts';
export type { QpState } from './qp-states.ts';
export type { QpAttributes, QpChange, QueuePairOptions } from './qp-types.ts';
export { SharedReceiveQueue, type SrqAttributes, type SrqOptions } from './srq.ts';
export type { AsyncEvent } from './events.ts';
export type { WaitOptions } from '../base/abort.ts';
export type {
  BindRequest,
  CmpSwapRequest,
  FastRegisterRequest,
  FetchAddRequest,
  ImmediateRequest,
  LocalInvalidateRequest,
  ReadRequest,
  ReceiveWorkRequest,
  SendRequest,
  SendWorkRequest,
  WriteRequest,
} from './post.ts';
export type { WcOpcode, WcStatus } from '../rdmap/work.ts';
export type { TerminateInfo } from '../rdmap/terminate.ts';
