/**
 * A lower layer for tests alone: each ULPDU is one datagram, in order, over a pair of queues in memory. It
 * shares nothing with MPA, so it shows that DDP and RDMAP need of a lower layer what `src/llp` says and no
 * more. A sent ULPDU counts as done when the network has taken the transmission.
 *
 * Its start-up is a datagram of one kind octet, two octets of depths and private data in either direction.
 */
import { NO_BYTES, type Octets } from '../../src/base/copy.ts';
import { seededRandom } from '../../src/base/random.ts';
import { FINE } from '../../src/base/terminate-codes.ts';
import { StagTable, type StagEntry } from '../../src/ddp/stag-table.ts';
import type {
  LowerLayer,
  LowerLayerUser,
  TransmitBuffer,
  Transmission,
  UlpduWriter,
} from '../../src/llp/lower-layer.ts';
import type { DepthRequest, Negotiated, Role, StartupVerdict } from '../../src/llp/startup.ts';
import { DEFAULT_POLICY } from '../../src/mpa/policy.ts';
import type { StreamEndpoint } from '../../src/queues/endpoint.ts';
import { ReceiveQueue, SendQueue, type ReceiveWqe, type SendWqe } from '../../src/queues/work.ts';
import { RdmaStream } from '../../src/stream/stream.ts';
import type { StreamEvent } from '../../src/stream/types.ts';

const KIND = { REQUEST: 1, ACCEPT: 2, REJECT: 3 } as const;
const STARTUP_OCTETS = 3;
const DEPTH = 16;
/** Datagrams in one transmission. */
const BATCH = 16;

/** Datagrams of one transmission. */
class Batch implements TransmitBuffer, Transmission {
  readonly chunks: Uint8Array[] = [];
  octets = 0;

  get count(): number {
    return this.chunks.length;
  }

  /** Payloads are copied into datagrams at once. */
  pin(): void {}

  add(datagram: Uint8Array): void {
    this.chunks.push(datagram);
    this.octets += datagram.length;
  }
}

class DatagramWriter implements UlpduWriter {
  readonly target: Octets;
  readonly at = 0;
  readonly zeroCopy: boolean;

  constructor(mulpdu: number, zeroCopy: boolean) {
    const bytes = new Uint8Array(mulpdu);
    this.target = { bytes, view: new DataView(bytes.buffer) };
    this.zeroCopy = zeroCopy;
  }

  fits(batch: Batch, _ulpduLength: number): boolean {
    return batch.count < BATCH;
  }

  fitsZeroCopy(batch: Batch, _headerOctets: number, _payloadOctets: number): boolean {
    return batch.count < BATCH;
  }

  begin(_batch: Batch, ulpduLength: number): void {
    this.target.bytes.fill(0xa5, 0, ulpduLength);
  }

  finish(batch: Batch, ulpduLength: number): void {
    batch.add(this.target.bytes.slice(0, ulpduLength));
  }

  finishZeroCopy(batch: Batch, header: number, bytes: Uint8Array, from: number, payload: number): void {
    const datagram = new Uint8Array(header + payload);
    datagram.set(this.target.bytes.subarray(0, header));
    datagram.set(bytes.subarray(from, from + payload), header);
    batch.add(datagram);
  }

  finishGathered(batch: Batch, header: number, pieces: readonly Uint8Array[]): void {
    batch.add(Buffer.concat([this.target.bytes.subarray(0, header), ...pieces]));
  }
}

class DatagramLayer implements LowerLayer {
  readonly inOrder = true;
  readonly responderWaits = true;
  readonly mulpdu: number;
  octetsOut = 0;
  writer: DatagramWriter;
  verdict: StartupVerdict | null = null;
  peerPrivateData: Uint8Array = NO_BYTES;
  frameWaits = false;
  readonly betweenUlpdus = true; // a datagram is whole or not there
  readonly #role: Role;
  #frame: Uint8Array | null = null;
  #user: LowerLayerUser | null = null;
  #early: Uint8Array[] = [];
  /** Transmissions under way, the oldest first: true for those that carry ULPDUs. */
  readonly #underWay: boolean[] = [];

  constructor(role: Role, mulpdu: number, zeroCopy: boolean) {
    this.#role = role;
    this.mulpdu = mulpdu;
    this.writer = new DatagramWriter(mulpdu, zeroCopy);
  }

  #negotiated(): Negotiated {
    return {
      role: this.#role,
      revision: 0,
      enhanced: false,
      crc: false,
      sendMarkers: false,
      receiveMarkers: false,
      ird: DEPTH,
      ord: DEPTH,
      autoOrd: false,
      peerIrd: DEPTH,
      peerOrd: DEPTH,
      rtr: null,
      ddpVersion: 1,
    };
  }

  #send(kind: number, privateData: Uint8Array): void {
    this.#frame = Uint8Array.of(kind, DEPTH, DEPTH, ...privateData);
    this.frameWaits = true;
  }

  start(privateData: Uint8Array, _depths: DepthRequest): number {
    if (this.#role === 'initiator') this.#send(KIND.REQUEST, privateData);
    return 1000;
  }

  handleStartup(bytes: Uint8Array, start: number, end: number): number {
    const wanted = this.#role === 'initiator' ? [KIND.ACCEPT, KIND.REJECT] : [KIND.REQUEST];
    const kind = bytes[start]!;
    if (end - start < STARTUP_OCTETS || !(wanted as number[]).includes(kind)) {
      this.verdict = { kind: 'failed', reason: 'bad-key' };
      return end;
    }
    const privateData = bytes.slice(start + STARTUP_OCTETS, end);
    this.peerPrivateData = privateData;
    const depths = { revision: 0, privateData, peerIrd: bytes[start + 1], peerOrd: bytes[start + 2] };
    if (kind === KIND.REQUEST) this.verdict = { kind: 'request', request: depths };
    else if (kind === KIND.REJECT)
      this.verdict = { kind: 'rejected', rejection: { ...depths, markersAsked: false } };
    else this.verdict = { kind: 'accepted', negotiated: this.#negotiated(), privateData, terminate: FINE };
    return end;
  }

  accept(privateData: Uint8Array, _depths: DepthRequest): Negotiated {
    this.#send(KIND.ACCEPT, privateData);
    return this.#negotiated();
  }

  reject(privateData: Uint8Array): void {
    this.#send(KIND.REJECT, privateData);
  }

  keepEarly(bytes: Uint8Array, start: number, end: number): boolean {
    return this.#early.push(bytes.slice(start, end)) <= BATCH;
  }

  expire(): void {
    this.verdict = { kind: 'failed', reason: 'timeout' };
  }

  lose(): void {
    this.verdict = { kind: 'failed', reason: 'truncated' };
  }

  abandon(): void {
    this.#early = [];
  }

  establish(_negotiated: Negotiated): void {}

  deliverTo(user: LowerLayerUser): void {
    this.#user = user;
  }

  receiveEarly(): number {
    for (const datagram of this.#early.splice(0)) {
      const code = this.receive(datagram, 0, datagram.length);
      if (code !== FINE) return code;
    }
    return FINE;
  }

  receive(bytes: Uint8Array, start: number, end: number): number {
    return this.#user!.handleUlpdu(bytes, start, end - start);
  }

  readTarget(): null {
    return null;
  }

  pollFrame(): Transmission | null {
    const frame = this.#frame;
    if (frame === null) return null;
    this.#frame = null;
    this.frameWaits = false;
    this.octetsOut += frame.length;
    this.#underWay.push(false);
    return { chunks: [frame], count: 1 };
  }

  get busy(): boolean {
    return this.#underWay.length >= 2;
  }

  acquire(): Batch {
    return new Batch();
  }

  release(_batch: Batch): void {
    // The garbage collector has it.
  }

  handOut(batch: Batch): Transmission {
    this.octetsOut += batch.octets;
    this.#underWay.push(true);
    return batch;
  }

  handleTaken(): void {
    // Batches are not used again.
  }

  handleTransmitted(ok: boolean): void {
    if (this.#underWay.shift() === true && ok) this.#user!.transmissionDone();
  }

  dispose(): void {
    this.#underWay.length = 0;
  }
}

/** Options of a pair. */
export interface DatagramOptions {
  readonly mulpdu?: number;
  readonly zeroCopy?: boolean;
  readonly extensions?: boolean;
  /** Changes what the network carries: datagrams in place of each one. */
  readonly mangle?: (datagram: Uint8Array, from: Role) => readonly Uint8Array[];
}

/** One end: a stream over datagrams with separate queues, and no verbs. */
export class DatagramEnd {
  readonly stags: StagTable;
  readonly sq: SendQueue = new SendQueue(64);
  readonly rq: ReceiveQueue = new ReceiveQueue(64);
  readonly events: StreamEvent[] = [];
  readonly sent: { wrId: number | bigint; status: string }[] = [];
  readonly received: { wrId: number | bigint; status: string; byteLength: number }[] = [];
  readonly stream: RdmaStream;
  readonly endpoint: StreamEndpoint;
  /** Datagrams on their way to the other end; null stands for its FIN. */
  readonly out: (Uint8Array | null)[] = [];
  state: 'open' | 'ended' | 'reset' = 'open';

  constructor(role: Role, options: DatagramOptions) {
    const policy = { ...DEFAULT_POLICY, silentPeerNudge: 0 };
    this.stags = new StagTable(seededRandom(role === 'initiator' ? 11 : 12), 100);
    this.stream = new RdmaStream(
      { role, policy },
      new DatagramLayer(role, options.mulpdu ?? 1024, options.zeroCopy ?? true),
    );
    this.endpoint = {
      stags: this.stags,
      pdHandle: 1,
      number: 1,
      sq: this.sq,
      rq: this.rq,
      rqShared: false,
      rights: { read: true, write: true },
      extensions: options.extensions ?? true,
      owner: {
        sendCompleted: (wqe: SendWqe) => {
          this.sent.push({ wrId: wqe.wrId, status: wqe.status });
          this.sq.complete(true);
        },
        receiveTaken: () => undefined,
        receiveCompleted: (wqe: ReceiveWqe) => {
          this.received.push({ wrId: wqe.wrId, status: wqe.status, byteLength: wqe.byteLength });
          this.rq.release(wqe);
        },
      },
      maxOrd: DEPTH,
      sinkRight: 1,
    };
  }

  /** A region over this memory, with every right. */
  region(bytes: Uint8Array, access = 15): StagEntry {
    const entry = this.stags.allocate('region', 1);
    entry.bytes = bytes;
    entry.access = access;
    return entry;
  }

  post(wrId: number, fill: (wqe: SendWqe) => void): void {
    const wqe = this.sq.peekFree()!;
    wqe.wrId = wrId;
    fill(wqe);
    this.sq.push();
  }
}

/** Two ends and the network between them, under a time of the test's own. */
export class DatagramPair {
  readonly initiator: DatagramEnd;
  readonly responder: DatagramEnd;
  readonly #mangle: (datagram: Uint8Array, from: Role) => readonly Uint8Array[];
  now = 0;

  constructor(options: DatagramOptions = {}) {
    this.#mangle = options.mangle ?? ((datagram) => [datagram]);
    this.initiator = new DatagramEnd('initiator', options);
    this.responder = new DatagramEnd('responder', options);
  }

  /** Both ends start, and the responder accepts. */
  connect(): this {
    this.initiator.stream.start(this.now, this.initiator.endpoint, Uint8Array.of(1, 2), {});
    this.responder.stream.start(this.now, null, NO_BYTES, {});
    this.settle();
    this.responder.stream.accept(this.now, this.responder.endpoint, Uint8Array.of(3), {});
    return this.settle();
  }

  /** Carry datagrams and drain outputs until nothing moves. */
  settle(): this {
    for (let round = 0; round < 10_000; round++) {
      const moved = [this.#drain(this.initiator), this.#drain(this.responder)];
      moved.push(this.#carry(this.initiator, this.responder, 'initiator'));
      moved.push(this.#carry(this.responder, this.initiator, 'responder'));
      if (!moved.includes(true)) return this;
    }
    throw new Error('the pair does not come to rest');
  }

  /** The time goes on, and timers expire. */
  later(ms: number): this {
    this.now += ms;
    for (const end of [this.initiator, this.responder])
      if (end.stream.pollTimeout() <= this.now) end.stream.handleTimeout(this.now);
    return this.settle();
  }

  #drain(end: DatagramEnd): boolean {
    const { stream } = end;
    let moved = false;
    for (let event = stream.pollEvent(); event !== null; event = stream.pollEvent()) {
      end.events.push(event);
      moved = true;
    }
    if (end.state !== 'open') return moved;
    for (let write = stream.pollTransmit(); write !== null; write = stream.pollTransmit()) {
      end.out.push(...write.chunks.slice(0, write.count));
      stream.handleTaken();
      stream.handleTransmitted(true, this.now);
      moved = true;
    }
    const action = stream.pollClose();
    if (action === 'none') return moved;
    end.state = action === 'end' ? 'ended' : 'reset';
    end.out.push(null);
    return true;
  }

  #carry(from: DatagramEnd, to: DatagramEnd, role: Role): boolean {
    const datagrams = from.out.splice(0);
    for (const datagram of datagrams) {
      if (datagram === null) this.#end(from, to);
      else
        for (const piece of this.#mangle(datagram, role)) {
          // Borrowed memory, which is overwritten afterwards.
          const borrowed = Uint8Array.of(0x5a, ...piece, 0x5a);
          to.stream.handleBytes(borrowed, 1, 1 + piece.length, this.now);
          borrowed.fill(0xdb);
          this.#drain(to);
        }
    }
    return datagrams.length > 0;
  }

  #end(from: DatagramEnd, to: DatagramEnd): void {
    if (from.state === 'reset') {
      const error = new Error('reset');
      to.stream.handleClose(error, this.now);
      from.stream.handleClose(undefined, this.now);
      to.state = 'reset';
      return;
    }
    to.stream.handleEnd(this.now);
    this.#drain(to);
    if (to.state === 'open') return;
    for (const end of [from, to]) end.stream.handleClose(undefined, this.now);
  }
}
