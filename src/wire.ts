/**
 * `iwarp/wire`: the wire formats of MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040, RFC 7306),
 * and of TRP, which carries DDP over UDP. For programs that encode or decode frames themselves: layouts,
 * codecs of the start-up frames, headers and Terminate messages, and the table of error codes. Everything on
 * the wire is big-endian except the CRC.
 *
 * @module iwarp/wire
 */
export * from './mpa/wire.ts';
export * from './ddp/wire.ts';
export * from './rdmap/wire.ts';
export * from './trp/wire.ts';
export { parseTerminate, putTerminate, terminateOctets, type TerminateInfo } from './rdmap/terminate.ts';
export type { FixedSize, MessageKind } from './ddp/receiver.ts';
export {
  describeTerminateCode,
  isKnownTerminateCode,
  TERM,
  TERMINATE_CODES,
} from './base/terminate-codes.ts';
