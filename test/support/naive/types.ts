// What the naive codec speaks of: start-up frames, FPDUs, and the DDP and RDMAP fields of a segment. The same
// types go into the encoder and come out of the decoder. Field names follow conformance/vectors (RFC 5044
// 7.1.1, RFC 6581 9, RFC 5041 4, RFC 5040 4, RFC 7306 5 and 6).

export interface NaiveEnhanced {
  readonly a: boolean;
  readonly b: boolean;
  readonly ird: number;
  readonly c: boolean;
  readonly d: boolean;
  readonly ord: number;
}

export interface NaiveStartup {
  readonly kind: 'request' | 'reply';
  readonly markers: boolean;
  readonly crc: boolean;
  readonly reject: boolean;
  /** The S bit. */
  readonly enhancedData: boolean;
  /** The low four flag bits. */
  readonly reserved: number;
  readonly revision: number;
  readonly pdLength: number;
  readonly enhanced?: NaiveEnhanced;
  /** What follows the enhanced octets, or all private data without them. */
  readonly privateData: Uint8Array;
}

export interface NaiveReadRequest {
  readonly sinkStag: number;
  readonly sinkTo: bigint;
  readonly size: number;
  readonly sourceStag: number;
  readonly sourceTo: bigint;
}

export interface NaiveAtomicRequest {
  /** The 28 bits in front of the AOpCode. */
  readonly reserved: number;
  readonly aopcode: number;
  readonly requestId: number;
  readonly remoteStag: number;
  readonly remoteTo: bigint;
  readonly addOrSwap: bigint;
  readonly addOrSwapMask: bigint;
  readonly compare: bigint;
  readonly compareMask: bigint;
}

interface NaiveAtomicResponse {
  readonly requestId: number;
  readonly original: bigint;
}

interface NaiveTaggedHeader {
  readonly tagged: true;
  readonly last: boolean;
  readonly dv: number;
  readonly ddpReserved: number;
  readonly rv: number;
  readonly rdmapReserved: number;
  readonly opcode: number;
  readonly stag: number;
  readonly to: bigint;
}

interface NaiveUntaggedHeader {
  readonly tagged: false;
  readonly last: boolean;
  readonly dv: number;
  readonly ddpReserved: number;
  readonly rv: number;
  readonly rdmapReserved: number;
  readonly opcode: number;
  readonly invalidateStag: number;
  readonly qn: number;
  readonly msn: number;
  readonly mo: number;
}

export type NaiveHeader = NaiveTaggedHeader | NaiveUntaggedHeader;

export interface NaiveTerminate {
  readonly layer: number;
  readonly etype: number;
  readonly code: number;
  readonly m: boolean;
  readonly d: boolean;
  readonly r: boolean;
  /** The 13 bits after M, D and R. */
  readonly reserved: number;
  readonly segmentLength?: number;
  readonly ddpHeader?: NaiveHeader;
  readonly readRequest?: NaiveReadRequest;
}

/** What stands after the DDP header; `payload` holds the octets that no structure explains. */
export interface NaiveBody {
  readonly payload: Uint8Array;
  readonly readRequest?: NaiveReadRequest;
  readonly terminate?: NaiveTerminate;
  readonly immediate?: Uint8Array;
  readonly atomicRequest?: NaiveAtomicRequest;
  readonly atomicResponse?: NaiveAtomicResponse;
}

export type NaiveSegment = NaiveHeader & NaiveBody;

export interface NaiveMarker {
  /** Stream position of the marker's first octet, counted from the octet after the start-up frame. */
  readonly position: number;
  /** FPDUPTR as received, the two low bits included. */
  readonly pointer: number;
}

export interface NaiveFpdu {
  /** Stream position of ULPDU_Length. */
  readonly offset: number;
  /** ULPDU_Length as received; `ulpdu` is shorter only when the stream ended too soon. */
  readonly ulpduLength: number;
  readonly ulpdu: Uint8Array;
  readonly padLength: number;
  /** The markers this FPDU's CRC covers. */
  readonly markersSeen: readonly NaiveMarker[];
  /** The CRC field as received, in hexadecimal. */
  readonly crc: string;
  /** Whether the field holds the right CRC, in use or not. */
  readonly crcOk: boolean;
  /** Whether all PAD octets are zero. */
  readonly padOk: boolean;
  /** The DDP segment; null when the ULPDU is too short for its header. */
  readonly segment: NaiveSegment | null;
  /** Everything that a lawful sender would not do, in words; empty for a faultless FPDU. */
  readonly problems: readonly string[];
}

export interface NaiveStreamOptions {
  readonly markers: boolean;
  readonly crc: boolean;
  /** Distance of the first octet from the octet after the start-up frame; 0 by default. */
  readonly streamOffset?: number;
}
