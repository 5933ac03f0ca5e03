/**
 * What the decoder gives out. Everything is plain data; STags and identifiers are numbers, 64-bit values bigints. Positions count
 * octets of one direction's TCP stream from the first octet after its start-up frame (MPA-041), or, in a capture that
 * starts later, from the first octet captured.
 */
import type { StartupFrame } from '../mpa/wire.ts';
import type { Problem } from './problems.ts';

/** 0 from the side that opened the connection, 1 towards it. */
export type Direction = 0 | 1;

export interface MarkerSeen {
  /** Stream position of the marker's first octet. */
  readonly position: number;
  /** FPDUPTR as received. */
  readonly pointer: number;
  readonly reserved: number;
}

export interface CrcSeen {
  /** Whether the start-up frames put CRC in use; `unknown` where they were not captured, or the FPDU not wholly. */
  readonly use: 'on' | 'off' | 'unknown';
  /** The field as the 32-bit value software computes (first octet on the wire least significant). */
  readonly field: number;
  readonly computed: number;
  readonly ok: boolean;
}

export interface TaggedFields {
  readonly tagged: true;
  readonly last: boolean;
  readonly reserved: number;
  readonly version: number;
  readonly stag: number;
  readonly to: bigint;
}

export interface UntaggedFields {
  readonly tagged: false;
  readonly last: boolean;
  readonly reserved: number;
  readonly version: number;
  readonly invalidateStag: number;
  readonly qn: number;
  readonly msn: number;
  readonly mo: number;
}

export type DdpFields = TaggedFields | UntaggedFields;

export interface RdmapFields {
  readonly version: number;
  readonly reserved: number;
  readonly opcode: number;
}

export interface ReadRequestFields {
  readonly sinkStag: number;
  readonly sinkTo: bigint;
  readonly size: number;
  readonly sourceStag: number;
  readonly sourceTo: bigint;
}

export interface TerminateFields {
  readonly layer: number;
  readonly type: number;
  readonly code: number;
  /** `layer/type/code (layer: name)`. */
  readonly description: string;
  readonly m: boolean;
  readonly d: boolean;
  readonly r: boolean;
  readonly reserved: number;
  readonly segmentLength?: number;
  /** The included DDP header, and the RDMAP control octet inside it. */
  readonly ddp?: DdpFields;
  readonly rdmap?: RdmapFields;
  readonly readRequest?: ReadRequestFields;
}

export interface AtomicRequestFields {
  readonly reserved: number;
  readonly aopcode: number;
  readonly aopcodeName: string;
  readonly requestId: number;
  readonly stag: number;
  readonly to: bigint;
  readonly data: bigint;
  readonly mask: bigint;
  readonly compare: bigint;
  readonly compareMask: bigint;
}

interface AtomicResponseFields {
  readonly requestId: number;
  readonly original: bigint;
}

/** One ULPDU: a DDP segment with what RDMAP put in it. */
export interface DecodedUlpdu {
  /** Full name of the opcode: `Send`, `RDMA Write`, … or `Opcode 0xd`; `Malformed` where the header is cut short. */
  readonly opcode: string;
  readonly ddp?: DdpFields;
  readonly rdmap?: RdmapFields;
  readonly readRequest?: ReadRequestFields;
  readonly terminate?: TerminateFields;
  readonly immediate?: bigint;
  readonly atomicRequest?: AtomicRequestFields;
  readonly atomicResponse?: AtomicResponseFields;
  /** Octets after the DDP header. */
  readonly payloadLength: number;
  readonly problems: Problem[];
}

export interface DecodedFpdu extends DecodedUlpdu {
  readonly kind: 'fpdu';
  readonly direction: Direction;
  /** Seconds, as given with the octets that completed the FPDU. */
  readonly time: number;
  /** Stream position of ULPDU_Length. */
  readonly position: number;
  /** Octets on the stream, markers included. */
  readonly octets: number;
  readonly ulpduLength: number;
  readonly padLength: number;
  readonly markers: readonly MarkerSeen[];
  readonly crc: CrcSeen;
  /** Octets that the capture has, if it lacks some: those after them are 0 in `raw` and `ulpdu`, and the CRC cannot be judged. */
  readonly captured?: number;
  /** The octets as they stood on the stream, a marker directly in front included. */
  readonly raw: Uint8Array;
  /** The ULPDU without markers. */
  readonly ulpdu: Uint8Array;
}

/** A Request or Reply frame. */
export interface DecodedStartup {
  readonly kind: 'startup';
  readonly opcode: 'MPA Request' | 'MPA Reply';
  readonly direction: Direction;
  readonly time: number;
  readonly octets: number;
  readonly frame: StartupFrame;
  readonly flags: number;
  readonly pdLength: number;
  readonly raw: Uint8Array;
  readonly problems: Problem[];
}

/** Octets that are no FPDU, with the reason, or something the reader should know. */
export interface StreamNote {
  readonly kind: 'note';
  readonly direction: Direction;
  readonly time: number;
  readonly position: number;
  /** Octets passed over; 0 for a mere remark. */
  readonly octets: number;
  /** Octets of the stream that the capture does not have. */
  readonly missing?: number;
  readonly message: string;
  readonly problems: Problem[];
}

export type InspectEvent = DecodedFpdu | DecodedStartup | StreamNote;
