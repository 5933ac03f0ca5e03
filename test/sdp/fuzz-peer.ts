/**
 * A peer of SDP for the fuzzer: it knows enough of the protocol to bring a connection into every state by
 * lawful messages, and sends changed and unlawful ones there. The octets are made by a table of fields and
 * nothing of src/sdp.
 */
import type { Rnic } from '../../src/api/environment.ts';
import type { RandomU32 } from '../../src/base/random.ts';
import type { CmConnection } from '../../src/cm/connection.ts';
import {
  ACCESS,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type WorkCompletion,
} from '../../src/verbs/index.ts';

const DISCONN = 2;
const ABORT_CONN = 3;
const SEND_SM = 4;
const WR_COMPL = 5;
const RD_COMPL = 6;
const MODE_CHANGE = 7;
const SRC_CANCEL = 8;
const SINK_CANCEL = 9;
const CANCEL_ACK = 10;
const RESIZE = 11;
const RESIZE_ACK = 12;
const SINK_AVAIL = 0xfd;
const SRC_AVAIL = 0xfe;
const DATA = 0xff;
const HEADER = 16;

/** Octets of the extended header of each message. */
const EXTENSIONS: Readonly<Record<number, number>> = {
  ...{ 0: 52, 1: 8, 2: 0, 3: 0, 4: 0, 5: 4, 6: 4, 7: 4, 8: 0, 9: 0, 10: 0, 11: 4, 12: 4, 13: 8, 14: 0 },
  [SINK_AVAIL]: 20,
  [SRC_AVAIL]: 16,
  [DATA]: 0,
};
const IDS = [...Object.keys(EXTENSIONS).map(Number), 0x0f, 0x40, 0x80, 0xfc];
const EDGES = [0, 1, 2, 3, 15, 16, 17, 255, 4095, 65_535, 65_536, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
const SLOTS = 64;
const SLOT = 4096;
const BUFFERS = 40;
/** Memory that is advertised. */
const MEMORY = 1 << 18;

/** A message before it has numbers. */
interface Draft {
  readonly mid: number;
  readonly flags?: number;
  readonly words?: readonly number[];
  readonly payload?: number;
}

/** One advertisement. */
interface Advert {
  octets: number;
  readonly stag: number;
  readonly to: bigint;
}

type Mode = 'buffered' | 'combined' | 'pipelined';
const MODES: readonly Mode[] = ['buffered', 'combined', 'pipelined'];

/** What one peer has done. */
export interface FuzzCounts {
  messages: number;
  changed: number;
  unlawful: number;
}

/** The device of all peers of a run, with memory that they use one after the other. */
export class FuzzDevice {
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly memory: MemoryRegion;
  readonly inbox: MemoryRegion;
  readonly stage: MemoryRegion;

  constructor(rnic: Rnic) {
    this.rnic = rnic;
    this.pd = rnic.device.allocatePd();
    this.memory = this.pd.registerMemory(new Uint8Array(MEMORY).fill(0x77), ACCESS.LOCAL_WRITE);
    this.inbox = this.pd.registerMemory(new Uint8Array(BUFFERS * SLOT), ACCESS.LOCAL_WRITE);
    this.stage = this.pd.registerMemory(new Uint8Array(SLOTS * SLOT), ACCESS.LOCAL_WRITE);
  }
}

export class FuzzPeer {
  readonly rnic: Rnic;
  readonly #draw: RandomU32;
  readonly #counts: FuzzCounts;
  readonly #cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly #memory: MemoryRegion;
  /** The same bytes for the other side, which may invalidate them: a changed Hello says that it may. */
  readonly #shared: MemoryRegion;
  readonly #inbox: MemoryRegion;
  readonly #stage: MemoryRegion;
  #staged = 0;
  #mseq = 0;
  #ack = 0;
  /** Number up to which the other side takes messages. */
  limit = 0;
  /** The mode of our sending half, and that of the other side. */
  mode: Mode = 'combined';
  theirMode: Mode = 'combined';
  readonly ours: Advert[] = [];
  readonly theirs: Advert[] = [];
  readonly places: Advert[] = [];
  readonly theirPlaces: Advert[] = [];
  readonly #retired: Advert[] = [];
  #nonDiscards = 0;
  #owed = 0;
  #cancelSeen = false;
  cancelSent = false;
  #sinkCancelSeen = 0;
  #resizeSeen = false;
  ended = false;
  /** A DisConn has gone out, lawful or not. */
  disconnected = false;
  theyEnded = false;
  connection: CmConnection | null = null;
  #last: Buffer = Buffer.alloc(16);
  readonly #wc: WorkCompletion[] = [];

  constructor({ rnic, pd, memory, inbox, stage }: FuzzDevice, draw: RandomU32, counts: FuzzCounts) {
    this.rnic = rnic;
    this.#draw = draw;
    this.#counts = counts;
    this.#memory = memory;
    const rights = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE;
    this.#shared = pd.registerMemory(memory.bytes, rights);
    this.#inbox = inbox;
    this.#stage = stage;
    this.#cq = rnic.device.createCq(512);
    this.qp = pd.createQp({ sendCq: this.#cq, recvCq: this.#cq, maxSendWr: 256, maxRecvWr: 64 });
    for (let slot = 0; slot < BUFFERS; slot++) this.#receive(slot);
  }

  close(): void {
    this.qp.destroy();
    this.#cq.destroy();
    this.#shared.deregister();
  }

  #one<T>(...values: readonly T[]): T {
    return values[this.#draw() % values.length]!;
  }

  #receive(slot: number): void {
    this.qp.postRecv({ wrId: slot, sges: [{ mr: this.#inbox, offset: slot * SLOT, length: SLOT }] });
  }

  /** Private data of one side or the other, mostly good. */
  setup(mid: 0 | 1): Buffer {
    const hello = mid === 0;
    const bytes = Buffer.alloc(hello ? this.#one(64, 68, 68, 92) : this.#one(24, 24, 196));
    bytes[0] = mid;
    bytes.writeUInt16BE(BUFFERS, 2);
    bytes.writeUInt32BE(hello ? (bytes.length === 64 ? 64 : 68) : 24, 4);
    bytes[16] = 0x22;
    bytes[17] = 0x40;
    bytes[19] = this.#one(1, 4, 16);
    if (hello) bytes.writeUInt32BE(65_536, 20);
    bytes.writeUInt32BE(SLOT, hello ? 24 : 20);
    if (this.#draw() % 12 !== 0) return bytes;
    this.#counts.changed++;
    return this.#change(bytes);
  }

  // ------------------------------------------------------------------------------------------ arrivals

  poll(): void {
    while (this.#cq.poll(this.#wc, 64) > 0)
      for (const { opcode, status, wrId, byteLength } of this.#wc.splice(0)) {
        if (opcode !== 'receive' || status !== 'success') continue;
        const at = Number(wrId) * SLOT;
        const bytes = Buffer.from(this.#inbox.bytes.buffer, this.#inbox.bytes.byteOffset + at, byteLength);
        this.#heard(bytes);
        if (this.qp.state === 'rts') this.#receive(Number(wrId));
      }
  }

  #heard(bytes: Buffer): void {
    const mid = bytes[0]!;
    this.#ack = bytes.readUInt32BE(8);
    this.limit = bytes.readUInt16BE(2) + bytes.readUInt32BE(12);
    const word = (at: number): number => bytes.readUInt32BE(HEADER + at);
    const advert = (): Advert => ({ octets: word(0), stag: word(4), to: bytes.readBigUInt64BE(HEADER + 8) });
    const payload = bytes.length - HEADER - EXTENSIONS[mid]!;
    if (mid === DATA && payload > 0 && this.places.shift() === undefined) this.#nonDiscards++;
    else if (mid === SRC_AVAIL && this.places.length === 0) {
      if (payload > 0) this.#nonDiscards++;
      const { octets, stag, to } = advert();
      this.theirs.push({ octets: octets - payload, stag, to: to + BigInt(payload) });
    } else if (mid === SINK_AVAIL) this.theirPlaces.push(advert());
    else if (mid === WR_COMPL) this.places.shift();
    else if (mid === RD_COMPL && this.ours.length > 0) {
      this.ours[0]!.octets -= word(0);
      if (this.ours[0]!.octets <= 0) this.ours.shift();
    } else if (mid === SEND_SM) this.#sendSmall();
    else if (mid === MODE_CHANGE && bytes[HEADER]! < 0x80) {
      this.theirMode = MODES[bytes[HEADER]! >> 4]!;
      if (this.theirMode !== 'pipelined') this.places.length = 0;
    } else if (mid === SRC_CANCEL) this.#cancelSeen = true;
    else if (mid === SINK_CANCEL) this.#sinkCancelSeen++;
    else if (mid === CANCEL_ACK) this.places.length = 0;
    else if (mid === RESIZE) this.#resizeSeen = true;
    else if (mid === DISCONN) this.theyEnded = true;
  }

  #sendSmall(): void {
    const left = this.cancelSent ? this.ours.splice(0) : this.ours.splice(0, 1);
    for (const { octets } of left) this.#owed += octets;
    this.cancelSent = false;
  }

  // ------------------------------------------------------------------------------------------ what goes

  /** Where the connection is, as this peer sees it. */
  get where(): string {
    const life = this.ended
      ? this.theyEnded
        ? 'closing'
        : 'peer-ended'
      : this.theyEnded
        ? 'ending'
        : 'open';
    const out = [
      this.ours.length > 0 && 'SrcAvail here',
      this.theirs.length > 0 && 'SrcAvail there',
      this.places.length > 0 && 'SinkAvail here',
      this.theirPlaces.length > 0 && 'SinkAvail there',
      this.cancelSent && 'cancel here',
      this.#cancelSeen && 'cancel there',
    ].filter((word) => word !== false);
    return [life, `${this.mode} here`, `${this.theirMode} there`, ...out].join(', ');
  }

  /** One message: lawful for the most part, else changed, or of another time. */
  speak(): void {
    if (this.qp.state !== 'rts') return;
    this.poll();
    const dice = this.#draw() % 100;
    // Without credits a lawful peer waits.
    if (this.limit - this.#mseq < 3 && dice < 98) return;
    if (dice < 88) this.#lawful();
    else if (dice < 91) {
      this.#counts.unlawful++;
      this.#send(this.#wild());
    } else if (dice < 92) this.#strayWrite();
    else {
      this.#counts.changed++;
      const bytes = dice < 93 ? Buffer.from(this.#last) : this.#encode(this.#draft() ?? this.#wild());
      this.#raw(this.#change(bytes));
    }
  }

  #lawful(): void {
    const draft = this.#draft();
    if (draft !== null) this.#send(draft);
  }

  #encode({ mid, flags = 0, words = [], payload = 0 }: Draft): Buffer {
    const bytes = Buffer.alloc(HEADER + EXTENSIONS[mid]! + payload, this.#draw() & 0xff);
    this.#mseq = (this.#mseq + 1) >>> 0;
    bytes[0] = mid;
    bytes[1] = flags;
    bytes.writeUInt16BE(BUFFERS, 2);
    bytes.writeUInt32BE(bytes.length, 4);
    bytes.writeUInt32BE(this.#mseq, 8);
    bytes.writeUInt32BE(this.#ack, 12);
    for (const [at, word] of words.entries()) bytes.writeUInt32BE(word >>> 0, HEADER + 4 * at);
    return bytes;
  }

  #send(draft: Draft): void {
    this.#raw(this.#encode(draft));
  }

  #raw(bytes: Buffer): void {
    this.#counts.messages++;
    this.#last = bytes;
    if (bytes[0] === DISCONN) this.disconnected = true;
    const slot = this.#staged++ % SLOTS;
    const length = Math.min(bytes.length, SLOT);
    this.#stage.bytes.set(bytes.subarray(0, length), slot * SLOT);
    this.qp.postSend({ opcode: 'send', sges: [{ mr: this.#stage, offset: slot * SLOT, length }] });
  }

  /** Fields at their edges, octets at random, other lengths. */
  #change(bytes: Buffer): Buffer {
    const draw = this.#draw;
    const word = (): number => {
      const edge = EDGES[draw() % EDGES.length]!;
      return this.#one(edge, draw(), edge + this.#mseq, edge + this.#ack, MEMORY) >>> 0;
    };
    const words = (bytes.length - HEADER) >> 2;
    switch (draw() % 8) {
      case 0:
        bytes[draw() % bytes.length] = draw() & 0xff;
        break;
      case 1:
        bytes[0] = this.#one(...IDS);
        break;
      case 2:
        bytes[1] = draw() & 0xff;
        break;
      case 3:
        bytes.writeUInt16BE(word() & 0xffff, 2);
        break;
      case 4:
        bytes.writeUInt32BE(word(), this.#one(4, 8, 12));
        break;
      case 5:
        return bytes.subarray(0, draw() % (bytes.length + 1));
      case 6: {
        const longer = Buffer.concat([bytes, Buffer.alloc(1 + (draw() % 40), draw() & 0xff)]);
        if (draw() % 2 === 0) longer.writeUInt32BE(longer.length, 4);
        return longer;
      }
      default:
        if (words > 0) bytes.writeUInt32BE(word(), HEADER + 4 * (draw() % Math.min(words, 9)));
        else bytes[0] = this.#one(...IDS);
    }
    return bytes;
  }

  /** A message of any kind, with good numbers, at a time when it may make no sense. */
  #wild(): Draft {
    const mid = this.#one(...Object.keys(EXTENSIONS).map(Number));
    const draw = this.#draw;
    const word = (): number => this.#one(EDGES[draw() % EDGES.length]!, draw() % 70_000, this.#shared.rkey);
    const words = Array.from({ length: EXTENSIONS[mid]! / 4 }, word);
    if (mid === MODE_CHANGE) words[0] = (this.#one(0, 0x80) | ((draw() % 4) << 4)) * 2 ** 24;
    return {
      mid,
      flags: draw() % 10 === 0 ? draw() % 8 : 0,
      words,
      payload: mid >= SINK_AVAIL ? this.#one(0, 1, 200) : 0,
    };
  }

  /** A Write to memory that is no longer, or never was, advertised, or over its end. */
  #strayWrite(): void {
    const all = [...this.#retired.slice(-4), ...this.theirPlaces];
    if (all.length === 0) return;
    const advert = this.#one(...all);
    const past = BigInt(this.#one(0, 1, advert.octets));
    this.#write(advert.stag + (this.#draw() % 8 === 0 ? 1 : 0), advert.to + past, 1 + (this.#draw() % 300));
  }

  #write(stag: number, to: bigint, length: number): void {
    const sges = [{ mr: this.#memory, offset: 0, length: Math.min(length, MEMORY) }];
    this.qp.postSend({ opcode: 'rdma-write', sges, rkey: stag >>> 0, remoteAddr: to });
  }

  #advert(octets: number): number[] {
    const { rkey, addr } = this.#shared;
    return [octets, rkey, Number(addr >> 32n), Number(addr & 0xffff_ffffn)];
  }

  /** The next message that may be sent now; null for none. */
  #draft(): Draft | null {
    const answers = this.#answers();
    const free = this.ended ? [] : this.#moves();
    const rest: (() => Draft | null)[] = [
      () => ({ mid: DATA, flags: this.#one(0, 0, 4) }),
      ...this.#sinkMoves(),
    ];
    const all = this.#draw() % 2 === 0 && answers.length > 0 ? answers : [...answers, ...free, ...rest];
    return this.#one(...all)();
  }

  #answers(): (() => Draft | null)[] {
    const answers: (() => Draft | null)[] = [];
    if (this.theirs.length > 0 && !this.#cancelSeen) {
      answers.push(
        () => this.#readSome(),
        () => this.#readSome(),
      );
      answers.push(() => this.#refuse());
    }
    if (this.#cancelSeen)
      answers.push(() => {
        this.#cancelSeen = false;
        return this.theirs.splice(0).length > 0 ? { mid: SEND_SM } : { mid: DATA };
      });
    if (this.#sinkCancelSeen > 0)
      answers.push(() => {
        this.#sinkCancelSeen--;
        this.#retired.push(...this.theirPlaces.splice(0));
        return { mid: CANCEL_ACK };
      });
    if (this.#resizeSeen)
      answers.push(() => {
        this.#resizeSeen = false;
        return { mid: RESIZE_ACK, words: [SLOT] };
      });
    if (this.theirPlaces.length > 0 && this.mode === 'pipelined' && this.ours.length === 0 && !this.ended)
      answers.push(() => this.#fillPlace());
    if (this.#owed > 0 && !this.ended) answers.push(() => this.#data());
    return answers;
  }

  #refuse(): Draft {
    this.theirs.shift();
    return { mid: SEND_SM };
  }

  #readSome(): Draft {
    const advert = this.theirs[0]!;
    const octets = Math.min(advert.octets, this.#one(1, 5000, 1 << 30), MEMORY);
    const sges = [{ mr: this.#memory, offset: 0, length: octets }];
    this.qp.postSend({ opcode: 'rdma-read', sges, rkey: advert.stag, remoteAddr: advert.to });
    advert.octets -= octets;
    if (advert.octets === 0) this.theirs.shift();
    else this.theirs[0] = { ...advert, to: advert.to + BigInt(octets) };
    return { mid: RD_COMPL, words: [octets] };
  }

  #fillPlace(): Draft {
    const place = this.theirPlaces.shift()!;
    this.#retired.push(place);
    const octets = Math.min(place.octets, this.#one(1, 100, 1 << 30), MEMORY);
    this.#write(place.stag, place.to, octets);
    return { mid: WR_COMPL, words: [octets] };
  }

  #data(): Draft {
    const payload = this.#owed > 0 ? Math.min(this.#owed, 3000) : 1 + (this.#draw() % 300);
    this.#owed = Math.max(0, this.#owed - payload);
    const discarded = this.theirPlaces.shift();
    if (discarded !== undefined) this.#retired.push(discarded);
    return { mid: DATA, payload };
  }

  #moves(): (() => Draft | null)[] {
    const moves: (() => Draft | null)[] = [];
    const still = this.ours.length === 0 && this.#owed === 0;
    if (still) {
      moves.push(
        () => this.#data(),
        () => this.#data(),
      );
      if (this.mode === 'pipelined') moves.push(() => this.#changeMode('combined'));
      if (this.mode === 'combined')
        moves.push(
          () => this.#changeMode('pipelined'),
          () => (this.#draw() % 8 === 0 ? this.#changeMode('buffered') : this.#changeMode('pipelined')),
        );
      moves.push(() => {
        if (this.#draw() % 12 !== 0) return null;
        this.ended = true;
        return { mid: DISCONN };
      });
    } else if (this.ours.length > 0 && !this.cancelSent)
      moves.push(() => {
        this.cancelSent = true;
        return { mid: SRC_CANCEL };
      });
    if (this.#owed === 0 && !this.cancelSent)
      if ((this.mode === 'combined' && still) || (this.mode === 'pipelined' && this.ours.length < 4))
        moves.push(
          () => this.#advertise(),
          () => this.#advertise(),
        );
    return moves;
  }

  #changeMode(mode: Mode): Draft {
    this.mode = mode;
    if (mode !== 'pipelined') this.#retired.push(...this.theirPlaces.splice(0));
    return { mid: MODE_CHANGE, words: [MODES.indexOf(mode) * 2 ** 28] };
  }

  #advertise(): Draft {
    const octets = this.#one(2, 500, 20_000, MEMORY);
    const inline = this.mode === 'combined' ? 1 + (this.#draw() % Math.min(octets - 1, 100)) : 0;
    this.ours.push({ octets: octets - inline, stag: this.#shared.rkey, to: this.#shared.addr });
    return { mid: SRC_AVAIL, words: this.#advert(octets), payload: inline };
  }

  #sinkMoves(): (() => Draft | null)[] {
    const moves: (() => Draft | null)[] = [];
    const quiet = this.theirs.length === 0 && !this.#cancelSeen;
    if (this.theirMode === 'pipelined' && quiet && !this.theyEnded && this.places.length < 3)
      moves.push(() => {
        const octets = this.#one(SLOT, 20_000, MEMORY);
        this.places.push({ octets, stag: this.#shared.rkey, to: this.#shared.addr });
        return { mid: SINK_AVAIL, words: [...this.#advert(octets), this.#nonDiscards] };
      });
    if (this.places.length > 0) moves.push(() => ({ mid: SINK_CANCEL }));
    if (this.#draw() % 10 === 0) moves.push(() => ({ mid: RESIZE, words: [this.#one(0, 5000, 70_000)] }));
    if (this.#draw() % 60 === 0) moves.push(() => ({ mid: ABORT_CONN }));
    return moves;
  }
}
