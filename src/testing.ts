/**
 * `iwarp/testing`: networks for tests. The in-memory one runs under virtual time; the middleware cuts,
 * breaks, delays and records the streams of any transport, TCP included. Hand the result to `openRnic({
 * transport, scheduler })`.
 *
 * @module iwarp/testing
 */
export { MemoryTransport, type MemoryTransportOptions, type LinkOptions } from './simnet/memory.ts';
export { VirtualTime } from './simnet/virtual-time.ts';
export {
  MemoryDatagrams,
  type MemoryDatagramCounters,
  type MemoryDatagramOptions,
} from './simnet/datagrams.ts';
export { UdpNetwork } from './transport/udp.ts';
export type {
  DatagramBinding,
  DatagramDone,
  DatagramHandler,
  DatagramNetwork,
  DatagramPort,
  DatagramTarget,
} from './transport/datagram.ts';
export { realScheduler } from './transport/scheduler.ts';
export { TcpTransport, type ReceiveMode, type TcpTransportOptions } from './transport/tcp.ts';
export {
  HoldingPort,
  PassingPort,
  wrapTransport,
  type PortMiddleware,
  type PortRole,
} from './transport/middleware.ts';
export { segmenting, type Segmentation } from './simnet/segmenting.ts';
export {
  faulty,
  randomFaults,
  type Fault,
  type FaultDirection,
  type FaultKind,
  type FaultRange,
} from './simnet/fault.ts';
export { tap, type TapDirection, type TapInfo, type TapSink } from './transport/tap.ts';
export { openPcapFile, pcapTap, type PcapFile, type PcapTapOptions } from './transport/pcap-tap.ts';
export type {
  CancelConnect,
  ConnectTarget,
  ListenReady,
  ListenTarget,
  Port,
  PortAddress,
  PortHandler,
  PortListener,
  ThreadPort,
  Transport,
  WriteDone,
} from './transport/port.ts';
export type { CancelTimer, Scheduler } from './base/clock.ts';
