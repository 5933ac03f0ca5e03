/**
 * Types of the decoder's events. Everything is plain data; STags and identifiers are numbers, 64-bit values
 * bigints. Positions count bytes of one direction's TCP stream from the first byte after its start-up frame
 * (MPA-041), or, in a capture that starts later, from the first byte captured.
 */
import type { StartupFrame } from '../../mpa/wire.ts';
import type { Problem } from './problems.ts';

/** 0 from the side that opened the connection, 1 towards it. */
export type Direction = 0 | 1;

/** A marker of the stream (RFC 5044 4.3): four bytes, a reserved and a pointer field of 16 bits each. */
export interface MarkerSeen {
  /** Stream position of the marker's first byte. */
  readonly position: number;
  /** FPDUPTR as received. */
  readonly pointer: number;
  /** The reserved field as received; lawful is 0. */
  readonly reserved: number;
}

/** The CRC32c of an FPDU (RFC 5044 4.4), and the result of its check. */
export interface CrcSeen {
  /**
   * Whether the start-up frames put CRC in use; `unknown` where they were not captured, or the FPDU not
   * wholly.
   */
  readonly use: 'on' | 'off' | 'unknown';
  /** The field as the 32-bit value software computes (first byte on the wire least significant). */
  readonly field: number;
  /** The CRC32c of the bytes, in the form of `field`. */
  readonly computed: number;
  /** Whether both are equal; false too where the FPDU was not captured whole. */
  readonly ok: boolean;
}

/** Header of a tagged DDP segment (RFC 5041 4.2). */
export interface TaggedFields {
  /** T. */
  readonly tagged: true;
  /** L: the last segment of its message. */
  readonly last: boolean;
  /** Reserved bits of the control octet, in their places. */
  readonly reserved: number;
  /** DV, 0 to 3; RFC 5041 defines 1. */
  readonly version: number;
  /** STag of the buffer, an unsigned number of 32 bits. */
  readonly stag: number;
  /** Tagged offset of the first byte of the payload, 64 bits. */
  readonly to: bigint;
}

/** Header of an untagged DDP segment (RFC 5041 4.3). */
export interface UntaggedFields {
  /** T. */
  readonly tagged: false;
  /** L: the last segment of its message. */
  readonly last: boolean;
  /** Reserved bits of the control octet, in their places. */
  readonly reserved: number;
  /** DV, 0 to 3; RFC 5041 defines 1. */
  readonly version: number;
  /** STag to invalidate (RFC 5040 4.3); 0 in messages that invalidate none. */
  readonly invalidateStag: number;
  /** Queue number. */
  readonly qn: number;
  /** Message sequence number. */
  readonly msn: number;
  /** Offset of the segment in its message, in bytes. */
  readonly mo: number;
}

/** Header of a DDP segment; `tagged` says which. */
export type DdpFields = TaggedFields | UntaggedFields;

/** RDMAP control octet (RFC 5040 4.1). */
export interface RdmapFields {
  /** RV, 0 to 3; RFC 5040 defines 1. */
  readonly version: number;
  /** Reserved bits, in their places. */
  readonly reserved: number;
  /** Opcode, 0 to 15. */
  readonly opcode: number;
}

/** Header of an RDMA Read Request (RFC 5040 4.4). */
export interface ReadRequestFields {
  /** STag of the buffer that the data goes to. */
  readonly sinkStag: number;
  /** Tagged offset there. */
  readonly sinkTo: bigint;
  /** RDMARDSZ: bytes to read. */
  readonly size: number;
  /** STag of the buffer that is read. */
  readonly sourceStag: number;
  /** Tagged offset there. */
  readonly sourceTo: bigint;
}

/** Header of a Terminate (RFC 5040 4.8), and what it repeats of the segment that it is about. */
export interface TerminateFields {
  /** Layer that found the fault: 0 RDMA, 1 DDP, 2 LLP. */
  readonly layer: number;
  /** Error type of the layer. */
  readonly type: number;
  /** Error code of the type. */
  readonly code: number;
  /** `layer/type/code (layer: name)`. */
  readonly description: string;
  /** M: the length of the segment is included. */
  readonly m: boolean;
  /** D: its DDP header is included. */
  readonly d: boolean;
  /** R: its RDMAP header is included. */
  readonly r: boolean;
  /** Reserved bits, in their places. */
  readonly reserved: number;
  /** Length of the segment that the Terminate is about. */
  readonly segmentLength?: number;
  /** The included DDP header, and the RDMAP control octet inside it. */
  readonly ddp?: DdpFields;
  /** The RDMAP control octet inside the included DDP header. */
  readonly rdmap?: RdmapFields;
  /** The included header of a Read Request. */
  readonly readRequest?: ReadRequestFields;
}

/** Header of an Atomic Request (RFC 7306 5.2.1). */
export interface AtomicRequestFields {
  /** Reserved bits in front of the operation code, as a number of 28 bits. */
  readonly reserved: number;
  /** AOpCode: 0 FetchAdd, 1 Swap, 2 CmpSwap. */
  readonly aopcode: number;
  /** Name of the operation. */
  readonly aopcodeName: string;
  /** Request Identifier, which the response repeats. */
  readonly requestId: number;
  /** STag of the target. */
  readonly stag: number;
  /** Tagged offset of the target. */
  readonly to: bigint;
  /** Value to add or to store. */
  readonly data: bigint;
  /** Mask of that value. */
  readonly mask: bigint;
  /** Value to compare with. */
  readonly compare: bigint;
  /** Mask of the comparison. */
  readonly compareMask: bigint;
}

/** Header of an Atomic Response (RFC 7306 5.2.2). */
export interface AtomicResponseFields {
  /** Request Identifier of the request that is answered. */
  readonly requestId: number;
  /** The value of the target before the operation. */
  readonly original: bigint;
}

/** Hello or HelloAck of the Sockets Direct Protocol. */
export interface SdpSetupFields {
  /** The kind of the message. */
  readonly kind: 'Hello' | 'HelloAck';
  /** Private receive buffers that are posted. */
  readonly bufs: number;
  /** Bytes of each, headers included. */
  readonly size: number;
  /** Advertisements that the sender can take. */
  readonly maxAdverts: number;
}

/** A message of the Sockets Direct Protocol. */
export interface SdpFields {
  /** `Data`, `SrcAvail`, …; a number for one that the protocol does not have. */
  readonly name: string;
  /** 1: urgent data present, 2: pending, 4: pipelined mode is asked for. */
  readonly flags: number;
  /** Private receive buffers of the sender. */
  readonly bufs: number;
  /** Bytes of the whole message. */
  readonly length: number;
  /** Number of the message. */
  readonly mseq: number;
  /** Number of the last message that the sender has acted on. */
  readonly mseqAck: number;
  /** Bytes behind the headers. */
  readonly payload: number;
  /** Memory that SrcAvail, UpdatedSrcAvail or SinkAvail advertises. */
  readonly memory?: { readonly length: number; readonly stag: number; readonly to: bigint };
  /** Messages with payload that discarded no advertisement, as SinkAvail counts them. */
  readonly nonDiscards?: number;
  /** The lock of the SrcAvail whose memory UpdatedSrcAvail replaces. */
  readonly lock?: {
    /** Place of the lock word in the table. */
    readonly slot: number;
    /** How many SrcAvails have had the slot before; the upper half of the word. */
    readonly generation: number;
  };
  /** Lock words that LockTable offers for compare-and-swap. */
  readonly locks?: {
    /** STag of the table. */
    readonly stag: number;
    /** Tagged offset of its first word. */
    readonly to: bigint;
    /** Number of words. */
    readonly slots: number;
  };
  /** Bytes that were moved, or the size of buffers. */
  readonly value?: number;
  /** The mode that ModeChange asks for, and which half of the receiver changes. */
  readonly mode?: string;
}

/** Set-up of NBD over queue pairs, in the private data of an MPA Request (docs/nbd.md). */
export interface NbdSetup {
  /** Names this form of the private data. */
  readonly kind: 'setup';
  /** Version of the protocol over queue pairs. */
  readonly version: number;
  /** How data moves: within messages, or by RDMA Write and Read. */
  readonly mode: 'message' | 'direct';
  /** Requests that the client may have outstanding. */
  readonly depth: number;
  /** Name of the export, as the client wrote it. */
  readonly name: string;
}

/** The export that a server grants, in the private data of an MPA Reply. */
export interface NbdGrant {
  /** Names this form of the private data. */
  readonly kind: 'grant';
  /** Bytes of the export. */
  readonly size: bigint;
  /** Transmission flags of the NBD protocol. */
  readonly flags: number;
  /** Smallest block in bytes: offsets and lengths are multiples of it. */
  readonly minimum: number;
  /** The block that suits the device best. */
  readonly preferred: number;
  /** Longest READ or WRITE. */
  readonly maximum: number;
}

/** The reason of a server that refuses a client, in the private data of an MPA Reply. */
export interface NbdRefusal {
  /** Names this form of the private data. */
  readonly kind: 'refusal';
  /** Error number of the NBD protocol. */
  readonly error: number;
  /** The server's words. */
  readonly message: string;
}

/** Private data of a start-up frame on a connection of NBD, of the kind that `kind` names. */
export type NbdSetupFields = NbdSetup | NbdGrant | NbdRefusal;

/** The client's memory in a request of direct mode. */
export interface NbdMemory {
  /** STag of the memory. */
  readonly stag: number;
  /** Tagged offset of the first byte. */
  readonly to: bigint;
}

/** A request or reply of NBD at the start of a Send. */
export interface NbdFields {
  /** A request of the client, or a reply of the server. */
  readonly kind: 'request' | 'reply';
  /**
   * Name of the command: `READ`, `WRITE`, … or `Command 0x9`. A reply has the name, offset and length of the
   * request that it answers, if that request was captured.
   */
  readonly command?: string;
  /** Names of the command's flags, joined by `|`; absent if none is set. */
  readonly flags?: string;
  /** The client's number of the request, the eight bytes as a big-endian number. */
  readonly cookie: bigint;
  /** First byte of the export that the command is about. */
  readonly offset?: bigint;
  /** Bytes that the command is about. */
  readonly length?: number;
  /** In direct mode: the client's memory, where the server reads or writes. */
  readonly memory?: NbdMemory;
  /** Name of a reply's error, such as `EIO`; absent for success. */
  readonly error?: string;
  /** Seconds from the request to this reply. */
  readonly elapsed?: number;
  /** True for a reply that answers no request, in a capture that has them all. */
  readonly unmatched?: true;
}

/** One ULPDU: a DDP segment with what RDMAP put in it. */
export interface DecodedUlpdu {
  /**
   * Full name of the opcode: `Send`, `RDMA Write`, … or `Opcode 0xd`; `Malformed` where the header is cut
   * short.
   */
  readonly opcode: string;
  /** The DDP header; absent where the ULPDU is too short for it. */
  readonly ddp?: DdpFields;
  /** The RDMAP control octet, which stands in the DDP header. */
  readonly rdmap?: RdmapFields;
  /** Header of a Read Request. */
  readonly readRequest?: ReadRequestFields;
  /** Header of a Terminate. */
  readonly terminate?: TerminateFields;
  /** The eight bytes of Immediate Data, as a big-endian number (RFC 7306 6.3). */
  readonly immediate?: bigint;
  /** Header of an Atomic Request. */
  readonly atomicRequest?: AtomicRequestFields;
  /** Header of an Atomic Response. */
  readonly atomicResponse?: AtomicResponseFields;
  /** The request or reply of NBD that begins in this Send, on a connection that was set up for NBD. */
  readonly nbd?: NbdFields;
  /** The message of SDP that begins in this Send, on a connection that was set up for SDP. */
  readonly sdp?: SdpFields;
  /** Bytes after the DDP header. */
  readonly payloadLength: number;
  /** Rules that are broken. */
  readonly problems: Problem[];
}

/** An FPDU (RFC 5044 4): one ULPDU in its frame. */
export interface DecodedFpdu extends DecodedUlpdu {
  /** Names this kind of event. */
  readonly kind: 'fpdu';
  /** The direction it went. */
  readonly direction: Direction;
  /** Seconds, as given with the bytes that completed the FPDU. */
  readonly time: number;
  /** Stream position of ULPDU_Length. */
  readonly position: number;
  /** Bytes on the stream, markers included. */
  readonly octets: number;
  /** ULPDU_Length as received. */
  readonly ulpduLength: number;
  /** PAD bytes, 0 to 3. */
  readonly padLength: number;
  /** Markers inside and directly in front, in the order of the stream. */
  readonly markers: readonly MarkerSeen[];
  /** Its CRC32c. */
  readonly crc: CrcSeen;
  /**
   * Bytes that the capture has, if it lacks some: those after them are 0 in `raw` and `ulpdu`, and the CRC
   * cannot be judged.
   */
  readonly captured?: number;
  /** The bytes as they stood on the stream, a marker directly in front included. */
  readonly raw: Uint8Array;
  /** The ULPDU without markers. */
  readonly ulpdu: Uint8Array;
}

/** A Request or Reply frame. */
export interface DecodedStartup {
  /** Names this kind of event. */
  readonly kind: 'startup';
  /** The kind of start-up frame. */
  readonly opcode: 'MPA Request' | 'MPA Reply';
  /** The direction it went. */
  readonly direction: Direction;
  /** Seconds, as given with the bytes that completed the frame. */
  readonly time: number;
  /** Bytes of the frame with its private data. */
  readonly octets: number;
  /** Its fields. */
  readonly frame: StartupFrame;
  /** The flags byte as received, reserved bits included. */
  readonly flags: number;
  /** PD_Length as received. */
  readonly pdLength: number;
  /** The bytes of the frame. */
  readonly raw: Uint8Array;
  /** Rules that are broken. */
  readonly problems: Problem[];
  /** The decoded private data, if it sets NBD up. */
  readonly nbd?: NbdSetupFields;
  /** The decoded private data, if it sets SDP up. */
  readonly sdp?: SdpSetupFields;
}

/** Bytes that are no FPDU, with the reason, or something the reader should know. */
export interface StreamNote {
  /** Names this kind of event. */
  readonly kind: 'note';
  /** The direction that it is about. */
  readonly direction: Direction;
  /** Seconds. */
  readonly time: number;
  /** Stream position that it is about. */
  readonly position: number;
  /** Bytes passed over; 0 for a mere remark. */
  readonly octets: number;
  /** Bytes of the stream that the capture does not have. */
  readonly missing?: number;
  /** A whole sentence without a full stop. */
  readonly message: string;
  /** The bytes passed over, if they are Hello or HelloAck of SDP in front of the MPA frames. */
  readonly sdp?: SdpSetupFields;
  /** Rules that are broken. */
  readonly problems: Problem[];
}

/** Parameters of a request, an accept or a reject of iWARP over UDP. */
export interface DatagramSetup {
  /** Reads that its sender answers at a time. */
  readonly ird: number;
  /** Reads that its sender has outstanding. */
  readonly ord: number;
  /** Private data. */
  readonly privateData: Uint8Array;
}

/** A datagram of iWARP over UDP: a TRP header, and a DDP segment or nothing behind it. */
export interface DecodedDatagram extends DecodedUlpdu {
  /** Names this kind of event. */
  readonly kind: 'trp';
  /** The direction it went. */
  readonly direction: Direction;
  /** Seconds. */
  readonly time: number;
  /** Bytes behind the UDP header. */
  readonly octets: number;
  /** Packet sequence number; in a `TRP SACK` the first of the range. */
  readonly psn: number;
  /** The sequence number that its sender expects next; in a `TRP SACK` the one after the range. */
  readonly ack: number;
  /** The decoded set-up. */
  readonly setup?: DatagramSetup;
  /** `repeated`, `late`, `2 missing before it` and the like. */
  readonly remark?: string;
  /** The bytes behind the UDP header, as far as they were captured. */
  readonly raw: Uint8Array;
}

/** An event of the decoder, of the kind that `kind` names. */
export type InspectEvent = DecodedFpdu | DecodedStartup | DecodedDatagram | StreamNote;
