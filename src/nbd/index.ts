/**
 * `iwarp/nbd`: block devices over the network. Server and client of the NBD protocol over TCP, Unix sockets
 * and any byte stream, and over queue pairs; devices over memory, files, other devices and remote exports.
 *
 * @module iwarp/nbd
 */
export type { BlockDevice, Extent, WriteOptions, ZeroOptions } from './device.ts';
export { memoryDevice, type MemoryDeviceOptions } from './devices/memory.ts';
export { fileDevice, type FileDeviceOptions } from './devices/file.ts';
export { overlayDevice, type OverlayOptions } from './devices/overlay.ts';
export { sliceDevice } from './devices/slice.ts';
export { createServer, NbdServer, type NbdListenOptions, type NbdServerOptions } from './server.ts';
export type { RdmaListenOptions } from './qp-server.ts';
export type { ExportSource } from './exports.ts';
export {
  connect,
  connectStream,
  listExports,
  type NbdConnectOptions,
  type StreamConnectOptions,
  type NbdClientOptions,
} from './connect.ts';
export { RemoteDevice, type ReconnectOptions } from './remote-device.ts';
export type { ExportInfo } from './link.ts';
export { copyDevice, type CopyOptions } from './copy.ts';
export { NbdError } from './errors.ts';
export { NBD_DIAGNOSTICS_CHANNELS, type NbdDiagnostics, type NbdStats } from './stats.ts';
export { parseUri, type NbdTarget } from './uri.ts';
export type { BlockSizes, NbdErrorName } from './wire.ts';
