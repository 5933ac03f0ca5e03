/**
 * Messages of the Sockets Direct Protocol: the header of 16 bytes (BSDH), Hello and HelloAck, and the
 * extended headers. Each message is one RDMAP Send. All fields are big-endian. Decoders are strict, encoders
 * are not: tests build messages that no endpoint may send.
 */
import { hi32, lo32, toBigInt } from '../base/u64.ts';

/** Bytes of the header that begins every message. */
export const BSDH_OCTETS = 16;

/** Message ids. */
export const MID = {
  HELLO: 0x00,
  HELLO_ACK: 0x01,
  DISCONN: 0x02,
  ABORT_CONN: 0x03,
  SEND_SM: 0x04,
  RDMA_WR_COMPL: 0x05,
  RDMA_RD_COMPL: 0x06,
  MODE_CHANGE: 0x07,
  SRC_AVAIL_CANCEL: 0x08,
  SINK_AVAIL_CANCEL: 0x09,
  SINK_CANCEL_ACK: 0x0a,
  CH_RCV_BUF: 0x0b,
  CH_RCV_BUF_ACK: 0x0c,
  SUSP_COMM: 0x0d,
  SUSP_COMM_ACK: 0x0e,
  LOCK_TABLE: 0x40,
  UPDATED_SRC_AVAIL: 0x41,
  SINK_AVAIL: 0xfd,
  SRC_AVAIL: 0xfe,
  DATA: 0xff,
} as const;

/** Bits of the flags. */
export const FLAG = { OOB_PRES: 1, OOB_PEND: 2, REQ_PIPE: 4 } as const;
const ALL_FLAGS = 7;

/** Name, bytes of the extended header, and whether payload may stand behind it. */
interface MessageForm {
  readonly name: string;
  readonly extension: number;
  readonly payload: boolean;
}

/** Every message but Hello and HelloAck, which are parts of the set-up. */
export const MESSAGE_TABLE: ReadonlyMap<number, MessageForm> = new Map([
  [MID.HELLO, { name: 'Hello', extension: 52, payload: false }],
  [MID.HELLO_ACK, { name: 'HelloAck', extension: 8, payload: false }],
  [MID.DISCONN, { name: 'DisConn', extension: 0, payload: false }],
  [MID.ABORT_CONN, { name: 'AbortConn', extension: 0, payload: false }],
  [MID.SEND_SM, { name: 'SendSm', extension: 0, payload: false }],
  [MID.RDMA_WR_COMPL, { name: 'RdmaWrCompl', extension: 4, payload: false }],
  [MID.RDMA_RD_COMPL, { name: 'RdmaRdCompl', extension: 4, payload: false }],
  [MID.MODE_CHANGE, { name: 'ModeChange', extension: 4, payload: false }],
  [MID.SRC_AVAIL_CANCEL, { name: 'SrcAvailCancel', extension: 0, payload: false }],
  [MID.SINK_AVAIL_CANCEL, { name: 'SinkAvailCancel', extension: 0, payload: false }],
  [MID.SINK_CANCEL_ACK, { name: 'SinkCancelAck', extension: 0, payload: false }],
  [MID.CH_RCV_BUF, { name: 'ChRcvBuf', extension: 4, payload: false }],
  [MID.CH_RCV_BUF_ACK, { name: 'ChRcvBufAck', extension: 4, payload: false }],
  [MID.SUSP_COMM, { name: 'SuspComm', extension: 8, payload: false }],
  [MID.SUSP_COMM_ACK, { name: 'SuspCommAck', extension: 0, payload: false }],
  [MID.LOCK_TABLE, { name: 'LockTable', extension: 20, payload: false }],
  [MID.UPDATED_SRC_AVAIL, { name: 'UpdatedSrcAvail', extension: 24, payload: false }],
  [MID.SINK_AVAIL, { name: 'SinkAvail', extension: 20, payload: true }],
  [MID.SRC_AVAIL, { name: 'SrcAvail', extension: 16, payload: true }],
  [MID.DATA, { name: 'Data', extension: 0, payload: true }],
]);

/** The header of a message. */
interface Bsdh {
  readonly mid: number;
  readonly flags: number;
  /** Private receive buffers that the sender has posted. */
  readonly bufs: number;
  /** Bytes of the whole message. */
  readonly length: number;
  /** Number of this message, modulo 2^32. */
  readonly mseq: number;
  /** Number of the last message that the sender has acted on. */
  readonly mseqAck: number;
}

export function putBsdh(view: DataView, at: number, bsdh: Bsdh): void {
  view.setUint8(at, bsdh.mid);
  view.setUint8(at + 1, bsdh.flags);
  view.setUint16(at + 2, bsdh.bufs);
  view.setUint32(at + 4, bsdh.length);
  view.setUint32(at + 8, bsdh.mseq);
  view.setUint32(at + 12, bsdh.mseqAck);
}

export function getBsdh(view: DataView, at: number): Bsdh {
  return {
    mid: view.getUint8(at),
    flags: view.getUint8(at + 1),
    bufs: view.getUint16(at + 2),
    length: view.getUint32(at + 4),
    mseq: view.getUint32(at + 8),
    mseqAck: view.getUint32(at + 12),
  };
}

/** Memory that one side advertises. */
export interface Advertised {
  readonly length: number;
  readonly stag: number;
  readonly to: bigint;
}

/** A message of the established connection, decoded. `payload` is where its payload begins. */
export interface SdpMessage extends Bsdh {
  readonly form: MessageForm;
  readonly payload: number;
}

/**
 * The message in the first `octets` bytes of `view`, or the reason why it is none. Hello and HelloAck have
 * separate decoders.
 */
export function decodeMessage(view: DataView, octets: number): SdpMessage | string {
  if (octets < BSDH_OCTETS) return `a message of ${octets} bytes`;
  const bsdh = getBsdh(view, 0);
  if (bsdh.length !== octets) return `a message of ${octets} bytes whose header says ${bsdh.length}`;
  const form = MESSAGE_TABLE.get(bsdh.mid);
  if (form === undefined || bsdh.mid <= MID.HELLO_ACK) return `message id ${bsdh.mid}`;
  if ((bsdh.flags & ~ALL_FLAGS) !== 0) return `unknown flags ${bsdh.flags}`;
  const payload = BSDH_OCTETS + form.extension;
  if (octets < payload || (!form.payload && octets > payload)) return `${form.name} of ${octets} bytes`;
  if ((bsdh.flags & FLAG.OOB_PRES) !== 0 && (bsdh.mid !== MID.DATA || octets === payload))
    return `urgent data in ${form.name} without payload`;
  const { mid, flags, bufs, length, mseq, mseqAck } = bsdh;
  return { mid, flags, bufs, length, mseq, mseqAck, form, payload };
}

/** The extended header of SrcAvail, and the first fields of SinkAvail. */
export function putAdvertised(view: DataView, at: number, { length, stag, to }: Advertised): void {
  view.setUint32(at, length);
  view.setUint32(at + 4, stag);
  view.setUint32(at + 8, hi32(to));
  view.setUint32(at + 12, lo32(to));
}

export function getAdvertised(view: DataView, at: number): Advertised {
  return {
    length: view.getUint32(at),
    stag: view.getUint32(at + 4),
    to: toBigInt(view.getUint32(at + 8), view.getUint32(at + 12)),
  };
}

/** Lock words of one receiving half, {@link LOCK_OCTETS} bytes each, which the peer may compare and swap. */
export interface LockTable {
  readonly stag: number;
  readonly to: bigint;
  readonly slots: number;
}

/** Bytes of a lock word. */
export const LOCK_OCTETS = 8;

/** The extended header of LockTable. Four reserved bytes follow. */
export function putLockTable(view: DataView, at: number, { stag, to, slots }: LockTable): void {
  view.setUint32(at, stag);
  view.setUint32(at + 4, hi32(to));
  view.setUint32(at + 8, lo32(to));
  view.setUint32(at + 12, slots);
  view.setUint32(at + 16, 0);
}

export function getLockTable(view: DataView, at: number): LockTable {
  return {
    stag: view.getUint32(at),
    to: toBigInt(view.getUint32(at + 4), view.getUint32(at + 8)),
    slots: view.getUint32(at + 12),
  };
}

/** Memory that takes the place of what a SrcAvail has named: its lock, and the generation of that lock. */
export interface UpdatedSource extends Advertised {
  readonly slot: number;
  readonly generation: number;
}

/** The extended header of UpdatedSrcAvail. */
export function putUpdatedSource(view: DataView, at: number, updated: UpdatedSource): void {
  putAdvertised(view, at, updated);
  view.setUint32(at + 16, updated.slot);
  view.setUint32(at + 20, updated.generation);
}

export function getUpdatedSource(view: DataView, at: number): UpdatedSource {
  const advert = getAdvertised(view, at);
  return { ...advert, slot: view.getUint32(at + 16), generation: view.getUint32(at + 20) };
}

/** Bit 7: the half that the receiver of the message changes is its send half; bits 6 to 4: the mode. */
const MODES = ['buffered', 'combined', 'pipelined'] as const;
/** Mode of one half of a connection. */
export type SdpMode = (typeof MODES)[number];
const SEND_HALF = 0x80;

/** A requested change of mode: `half` is that of the receiver of the message. */
interface ModeChange {
  readonly half: 'send' | 'receive';
  readonly mode: SdpMode;
}

/** The four bytes of the extended header of ModeChange. */
export function modeChangeWord({ half, mode }: ModeChange): number {
  const octet = (half === 'send' ? SEND_HALF : 0) | (MODES.indexOf(mode) << 4);
  return (octet << 24) >>> 0;
}

/** Null for a mode that does not exist, and for reserved bits that are set. */
export function decodeModeChange(word: number): ModeChange | null {
  const octet = word >>> 24;
  const mode = MODES[(octet >> 4) & 7];
  if (mode === undefined || (word & 0x0fff_ffff) !== 0) return null;
  return { half: (octet & SEND_HALF) !== 0 ? 'send' : 'receive', mode };
}

/** Version octet that we announce: major and minor 2, as the OFED driver. */
export const VERSION = 0x22;
const LEAST_BUFFERS = 3;
const LEAST_BUFFER_OCTETS = 64;
const HELLO_OCTETS = 68;
const SHORT_HELLO_OCTETS = 64;
const HELLO_ACK_OCTETS = 24;
const EXTENDED_ADVERTS = 2;
const IPV6_OCTETS = 16;
/** `AZ01` behind the set-up message, and its version: the sender has copy-on-write. */
const COPY_MARK = 0x415a_3031;
const COPY_VERSION = 1;
const COPY_OCTETS = 8;

/** What a Hello says. */
export interface Hello {
  readonly version: number;
  readonly family: 4 | 6;
  /** The sender accepts Send with Invalidate. */
  readonly invalidates: boolean;
  /** SrcAvails and SinkAvails that the sender can take at a time. */
  readonly maxAdverts: number;
  /** Size of private buffers that the sender would like its peer to have. */
  readonly desiredSize: number;
  /** Size of the sender's private buffers, headers included. */
  readonly localSize: number;
  readonly port: number;
  /** 16 bytes each; an IPv4 address stands in the last four. Informative only. */
  readonly source: Uint8Array;
  readonly destination: Uint8Array;
  /** Private buffers that are posted. */
  readonly bufs: number;
  /** The sender has copy-on-write: LockTable and UpdatedSrcAvail. */
  readonly copyOnWrite: boolean;
}

/** What a HelloAck says. */
export interface HelloAck {
  readonly version: number;
  readonly family: 4 | 6;
  readonly invalidates: boolean;
  readonly maxAdverts: number;
  /** Size of the sender's private buffers, headers included. */
  readonly localSize: number;
  readonly bufs: number;
  /** As in {@link Hello}. */
  readonly copyOnWrite: boolean;
}

/** Copy-on-write is announced behind the length that the header says: other peers look no further. */
function begin(
  mid: number,
  octets: number,
  { bufs, copyOnWrite }: Hello | HelloAck,
): { bytes: Uint8Array; view: DataView } {
  const bytes = new Uint8Array(octets + (copyOnWrite ? COPY_OCTETS : 0));
  const view = new DataView(bytes.buffer);
  putBsdh(view, 0, { mid, flags: 0, bufs, length: octets, mseq: 0, mseqAck: 0 });
  if (copyOnWrite) {
    view.setUint32(octets, COPY_MARK);
    view.setUint32(octets + 4, COPY_VERSION);
  }
  return { bytes, view };
}

/** Anything else behind the message, longer or shorter, is ignored. */
function announcesCopy(view: DataView): boolean {
  const length = view.getUint32(4);
  if (view.byteLength !== length + COPY_OCTETS || view.getUint32(length) !== COPY_MARK) return false;
  return view.getUint32(length + 4) >= COPY_VERSION;
}

/** Hello with ExtMaxAdverts: 68 bytes, and 8 that announce copy-on-write. */
export function encodeHello(hello: Hello): Uint8Array {
  const { bytes, view } = begin(MID.HELLO, HELLO_OCTETS, hello);
  view.setUint8(16, hello.version);
  view.setUint8(17, (hello.family << 4) | EXTENDED_ADVERTS | (hello.invalidates ? 1 : 0));
  view.setUint8(19, Math.min(hello.maxAdverts, 255));
  view.setUint32(20, hello.desiredSize);
  view.setUint32(24, hello.localSize);
  view.setUint16(28, hello.port);
  bytes.set(hello.source.subarray(0, IPV6_OCTETS), 32);
  bytes.set(hello.destination.subarray(0, IPV6_OCTETS), 48);
  view.setUint16(66, hello.maxAdverts);
  return bytes;
}

export function encodeHelloAck(ack: HelloAck): Uint8Array {
  const { bytes, view } = begin(MID.HELLO_ACK, HELLO_ACK_OCTETS, ack);
  view.setUint8(16, ack.version);
  view.setUint8(17, (ack.family << 4) | (ack.invalidates ? 1 : 0));
  view.setUint8(19, Math.min(ack.maxAdverts, 255));
  view.setUint32(20, ack.localSize);
  return bytes;
}

/** The checks that Hello and HelloAck share: the reason for a refusal, or null. */
function faultOfSetup(view: DataView, octets: number, mid: number, least: number): string | null {
  if (octets < least) return `${octets} bytes of private data`;
  const bsdh = getBsdh(view, 0);
  if (bsdh.mid !== mid) return `message id ${bsdh.mid} in the set-up`;
  if (bsdh.length < least || bsdh.length > octets) return `a set-up message whose length is ${bsdh.length}`;
  if (bsdh.mseq !== 0 || bsdh.mseqAck !== 0) return 'a set-up message with sequence numbers';
  if (bsdh.bufs < LEAST_BUFFERS) return `${bsdh.bufs} receive buffers`;
  return null;
}

/** A Hello from private data, or the reason why it is refused. Majors 1 and 2 are taken. */
export function decodeHello(bytes: Uint8Array): Hello | string {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const fault = faultOfSetup(view, bytes.length, MID.HELLO, SHORT_HELLO_OCTETS);
  if (fault !== null) return fault;
  const version = bytes[16]!;
  if (version >> 4 !== 1 && version >> 4 !== 2) return `version ${version >> 4}`;
  const family = bytes[17]! >> 4;
  if (family !== 4 && family !== 6) return `an address of version ${family}`;
  const extended = (bytes[17]! & EXTENDED_ADVERTS) !== 0 && view.getUint32(4) >= HELLO_OCTETS;
  const maxAdverts = extended ? view.getUint16(66) : bytes[19]!;
  if (maxAdverts === 0) return 'a limit of 0 advertisements';
  const localSize = view.getUint32(24);
  if (localSize < LEAST_BUFFER_OCTETS) return `receive buffers of ${localSize} bytes`;
  return {
    version,
    family,
    invalidates: (bytes[17]! & 1) !== 0,
    maxAdverts,
    desiredSize: view.getUint32(20),
    localSize,
    port: view.getUint16(28),
    source: bytes.slice(32, 48),
    destination: bytes.slice(48, 64),
    bufs: view.getUint16(2),
    copyOnWrite: announcesCopy(view),
  };
}

/** A HelloAck from private data, or the reason why it is refused; `major` is that of our Hello. */
export function decodeHelloAck(bytes: Uint8Array, major: number): HelloAck | string {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const fault = faultOfSetup(view, bytes.length, MID.HELLO_ACK, HELLO_ACK_OCTETS);
  if (fault !== null) return fault;
  const version = bytes[16]!;
  if (version >> 4 !== major) return `version ${version >> 4}`;
  const maxAdverts = bytes[19]!;
  if (maxAdverts === 0) return 'a limit of 0 advertisements';
  const localSize = view.getUint32(20);
  if (localSize < LEAST_BUFFER_OCTETS) return `receive buffers of ${localSize} bytes`;
  const invalidates = (bytes[17]! & 1) !== 0;
  const family = bytes[17]! >> 4 === 6 ? 6 : 4;
  const bufs = view.getUint16(2);
  return { version, family, invalidates, maxAdverts, localSize, bufs, copyOnWrite: announcesCopy(view) };
}
