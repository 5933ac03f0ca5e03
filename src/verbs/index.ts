/**
 * `iwarp/verbs`: device, protection domain, memory region and window, completion queue, queue pair, shared
 * receive queue. Names and meanings follow libibverbs and draft-hilland-rddp-verbs-00. A wrong call throws an
 * `IwarpError` at once and changes nothing; results of the network arrive as completions or as an {@link
 * AsyncEvent}. Queue pairs are connected with `iwarp/cm`.
 *
 * @module iwarp/verbs
 */
export { ACCESS } from '../ddp/stag-table.ts';
export {
  Device,
  DEFAULT_LIMITS,
  type DeviceAttributes,
  type DeviceCapabilities,
  type DeviceLimits,
  type DeviceObjects,
  type DeviceOptions,
} from './device.ts';
export {
  MemoryRegion,
  type FastRegionOptions,
  type RegionAttributes,
  type RegisterOptions,
  type ReregisterOptions,
  type Sge,
} from './memory.ts';
export { MemoryWindow, type WindowAttributes } from './window.ts';
export { ProtectionDomain } from './pd.ts';
export { PostError, type SendCommon } from './post.ts';
export { CompletionChannel } from './completion-channel.ts';
export {
  CompletionQueue,
  createWorkCompletion,
  type CqAttributes,
  type CqOptions,
  type NotifyKind,
  type WorkCompletion,
} from './cq.ts';
export { QueuePair } from './qp.ts';
export type { QpEndpoint } from './qp-endpoint.ts';
export {
  DatagramQueuePair,
  type DatagramBindOptions,
  type DatagramCounters,
  type DatagramQpOptions,
  type DatagramSendRequest,
} from './datagram-qp.ts';
export type { DatagramQpState } from './datagram-qp-states.ts';
export type { DatagramTarget } from '../transport/datagram.ts';
export type { QpState } from './qp-states.ts';
export type { QpAttributes, QpChange, QueuePairOptions } from './qp-types.ts';
export { SharedReceiveQueue, type SrqAttributes, type SrqOptions } from './srq.ts';
export type { AsyncEvent } from './events.ts';
export { bindWindow, swapRequest, type BindArguments, type SwapArguments } from './helpers.ts';
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
export type { WcOpcode, WcStatus } from '../queues/work.ts';
export type { TerminateInfo } from '../rdmap/terminate.ts';
