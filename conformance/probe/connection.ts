// One connection of a case, as initiator or responder of the MPA start-up: frames and FPDUs out with any
// fault, frames and FPDUs in with everything noted. Read RFC 5044 7.1 and 4 first. Nothing is sent that a
// case did not ask for.

import { performance } from 'node:perf_hooks';
import type { Channel, End } from './channel.ts';
import { Deviation, Unsuited, check } from './deviation.ts';
import { describeSegment, describeStartup } from './decode.ts';
import { FpduReader, FpduWriter } from './fpdu.ts';
import type { FpduFaults, ReceivedFpdu } from './fpdu.ts';
import { parseSegment, parseTerminate, readRequestHeader, tagged, untagged } from './messages.ts';
import type { ParsedSegment, ReadRequestFields, TerminateFields } from './messages.ts';
import { parseStartup, startupFrame, startupLength } from './startup.ts';
import type { ParsedStartup, StartupFields } from './startup.ts';
import { Watch } from './watch.ts';
import { OPCODE, QN } from './wire.ts';

/** The probe's part in the MPA start-up. */
export type Role = 'initiator' | 'responder';

/** One line of what happened, with its octets. */
export interface LogEntry {
  readonly from: 'probe' | 'peer';
  readonly what: 'startup' | 'fpdu' | 'octets' | 'end';
  readonly text: string;
  readonly octets: Uint8Array;
  readonly markers: boolean;
}

export type Log = LogEntry[];

/** Time limits in milliseconds, already stretched for slow peers. */
export interface Limits {
  /** For an answer that must come. */
  readonly reaction: number;
  /** Silence that counts as "nothing". */
  readonly quiet: number;
  /** For a peer to connect, and for its own start-up time-outs. */
  readonly patience: number;
  /** Between a start-up frame and the first FPDU of the probe. */
  readonly settle: number;
}

/** The result of `receive`. */
type Incoming =
  | { readonly kind: 'segment'; readonly segment: ParsedSegment; readonly fpdu: ReceivedFpdu }
  | { readonly kind: 'end'; readonly how: End }
  | { readonly kind: 'silence' };

/** The result of `readStartup`. */
export type StartupArrival =
  | { readonly kind: 'frame'; readonly frame: ParsedStartup }
  | { readonly kind: 'end'; readonly how: End; readonly octets: Uint8Array }
  | { readonly kind: 'silence'; readonly octets: Uint8Array };

/**
 * Departures that touch most cases and would hide everything else; `--quirk` reads over them, and
 * one case that looks at the octets themselves still fails. `swapped-terminate`: layer and EType in each
 * other's place, M, D and R at the low end of their octet, as a driver with bit fields sends them on a
 * little-endian machine (Linux siw does).
 */
export type Quirk = 'swapped-terminate';
export const QUIRKS: readonly Quirk[] = ['swapped-terminate'];

/** How a peer reacted to a fault. */
export interface Reaction {
  readonly terminate: TerminateFields | null;
  readonly end: End | null;
  /** Everything it sent meanwhile, the Terminate included. */
  readonly segments: readonly ParsedSegment[];
  /** The peer neither ended nor went silent. */
  readonly goesOn: boolean;
}

const EMPTY = new Uint8Array(0);

/**
 * Bounds the wait for a peer that goes on sending, in limits for silence. The messages that a case lets a
 * peer send take a fraction of that; a program that repeats a message every second would hold the run up for
 * ever.
 */
export const NO_END = 4;

/** Messages that a peer sends without its program: answers, and the end. */
const OWN_OPCODES: ReadonlySet<number> = new Set([
  OPCODE.READ_RESPONSE,
  OPCODE.ATOMIC_RESPONSE,
  OPCODE.TERMINATE,
]);

export class Connection {
  readonly channel: Channel;
  readonly role: Role;
  readonly limits: Limits;
  readonly log: Log;
  /**
   * Known departures of this peer that are read as if they were right, so that what lies behind them can
   * still be judged.
   */
  readonly quirks: ReadonlySet<Quirk>;
  /**
   * A peer that never said how many Reads it serves may serve none (revision 1, or IRD 0): then a zero-length
   * Write that leads to nothing has to do as proof of life.
   */
  readsUnsure = false;
  /** Reads that the peer serves at a time; null where neither frame says it. */
  #readsServed: number | null = null;
  /**
   * Messages of the program above the peer, which may come at any time, are entered in the log and judged as
   * FPDUs, and then read over.
   */
  programReadOver = false;
  request: ParsedStartup | null = null;
  reply: ParsedStartup | null = null;
  writer: FpduWriter = new FpduWriter(false, true);
  reader: FpduReader = new FpduReader(false);
  watch: Watch = new Watch(true);
  /** Next MSN of the probe, by queue. */
  readonly msn: number[];
  /** The segment last sent: what a Terminate should speak of. */
  lastUlpdu: Uint8Array = EMPTY;
  #startupOctets: Uint8Array = EMPTY;
  #operational = false;
  /** With which both sides begin queues 0, 1 and 3. */
  readonly #firstMsn: number;

  constructor(
    channel: Channel,
    role: Role,
    limits: Limits,
    log: Log,
    quirks: ReadonlySet<Quirk> = new Set(),
    firstMsn = 1,
  ) {
    this.channel = channel;
    this.role = role;
    this.limits = limits;
    this.log = log;
    this.quirks = quirks;
    this.#firstMsn = firstMsn;
    this.msn = [firstMsn, firstMsn, 1, firstMsn];
  }

  // ------------------------------------------------------------------------------------------------ start-up

  /** Send a start-up frame, lawful or not, in one write or cut at the given places. */
  async sendStartup(fields: StartupFields, cuts: readonly number[] = []): Promise<void> {
    const raw = startupFrame(fields);
    this.note('probe', 'startup', describeStartup(raw), raw);
    const parsed = parseStartup(raw);
    if (fields.kind === 'request') this.request = parsed;
    else this.reply = parsed;
    await this.writeCut(raw, cuts);
  }

  /** Collect the peer's start-up frame, up to its end and no further. */
  async readStartup(ms: number = this.limits.reaction): Promise<StartupArrival> {
    const deadline = performance.now() + ms;
    for (;;) {
      const arrival = this.#completeStartup();
      if (arrival !== null) return arrival;
      const chunk = this.channel.take();
      if (chunk !== null) {
        this.#startupOctets = join(this.#startupOctets, chunk);
        continue;
      }
      const { end } = this.channel;
      if (end !== null) {
        this.note('peer', 'end', end === 'fin' ? 'FIN' : 'RST', EMPTY);
        return { kind: 'end', how: end, octets: this.#startupOctets };
      }
      const left = deadline - performance.now();
      if (left <= 0 || !(await this.channel.wait(left)))
        return { kind: 'silence', octets: this.#startupOctets };
    }
  }

  #completeStartup(): StartupArrival | null {
    const octets = this.#startupOctets;
    const length = startupLength(octets);
    if (length === null || octets.length < length) return null;
    const raw = octets.slice(0, length);
    this.#startupOctets = octets.slice(length);
    this.note('peer', 'startup', describeStartup(raw), raw);
    const frame = parseStartup(raw);
    if (this.role === 'initiator') this.reply = frame;
    else this.request = frame;
    return { kind: 'frame', frame };
  }

  /** The peer's frame, or a {@link Deviation}. */
  async expectStartup(): Promise<ParsedStartup> {
    const arrival = await this.readStartup(this.limits.reaction);
    const wanted = this.role === 'initiator' ? 'an MPA Reply' : 'an MPA Request';
    if (arrival.kind !== 'frame')
      throw new Deviation(wanted, arrival.kind === 'end' ? arrival.how.toUpperCase() : 'silence');
    return arrival.frame;
  }

  /**
   * Begin full operation with what the two frames settled (MPA-054, MPA-059), after the settling time: some
   * peers miss or refuse FPDUs that follow a start-up frame at once.
   */
  async enter(): Promise<void> {
    const request = this.request;
    const reply = this.reply;
    if (request === null || reply === null)
      throw new Error('full operation begins after both start-up frames');
    const crc = request.crc || reply.crc;
    const [mine, theirs] = this.role === 'initiator' ? [request, reply] : [reply, request];
    this.writer = new FpduWriter(theirs.markers, crc);
    this.reader = new FpduReader(mine.markers);
    this.watch = new Watch(crc, this.#firstMsn);
    this.#readsServed = readsServed(this.role, request, reply);
    if (this.#readsServed !== null || theirs.enhanced?.ird === OPEN_DEPTH)
      this.readsUnsure = this.#readsServed === 0;
    this.#operational = true;
    this.reader.push(this.#startupOctets);
    this.#startupOctets = EMPTY;
    if (this.limits.settle > 0) await pause(this.limits.settle);
  }

  get operational(): boolean {
    return this.#operational;
  }

  /** As initiator: the Reply has granted an RTR message that the peer can take, and it has not been sent. */
  get owesRtr(): boolean {
    const { request, reply } = this;
    if (
      this.role !== 'initiator' ||
      request?.enhanced?.a !== true ||
      reply?.enhanced?.a !== true ||
      reply.reject
    )
      return false;
    return (
      this.channel.open &&
      this.lastUlpdu.length === 0 &&
      (reply.enhanced.c || (reply.enhanced.d && reply.enhanced.ird > 0))
    );
  }

  // ------------------------------------------------------------------------------------------------- sending

  /** Write octets as they are. */
  sendOctets(bytes: Uint8Array, text = 'octets'): void {
    this.note('probe', 'octets', text, bytes);
    this.channel.write(bytes);
  }

  /** Write octets in pieces that TCP sends apart: a cut at n ends a piece after the n-th octet. */
  async writeCut(bytes: Uint8Array, cuts: readonly number[]): Promise<void> {
    let from = 0;
    for (const cut of cuts) {
      if (cut <= from || cut >= bytes.length) continue;
      this.channel.write(bytes.subarray(from, cut));
      from = cut;
      await pause(1);
    }
    this.channel.write(bytes.subarray(from));
  }

  /** Send one segment as an FPDU. */
  send(ulpdu: Uint8Array, faults: FpduFaults = {}): void {
    this.channel.write(this.encode(ulpdu, faults));
  }

  /** The FPDU around a segment, entered in the log as sent; the caller writes it. */
  encode(ulpdu: Uint8Array, faults: FpduFaults = {}): Uint8Array {
    const octets = this.writer.encode(ulpdu, faults);
    const segment = parseSegment(ulpdu);
    this.lastUlpdu = ulpdu;
    this.note(
      'probe',
      'fpdu',
      segment === null ? `ULPDU of ${ulpdu.length} octets` : describeSegment(segment),
      octets,
    );
    return octets;
  }

  /** Several segments in one write. */
  sendTogether(ulpdus: readonly Uint8Array[]): void {
    this.channel.write(ulpdus.map((ulpdu) => this.encode(ulpdu)).reduce(join, EMPTY));
  }

  /** The next MSN of a queue. */
  takeMsn(qn: number): number {
    const msn = this.msn[qn]!;
    this.msn[qn] = (msn + 1) >>> 0;
    return msn;
  }

  /** A lawful Send with the next MSN. */
  makeSend(payload: Uint8Array, opcode: number = OPCODE.SEND, word = 0): Uint8Array {
    return untagged({ opcode, qn: QN.SEND, msn: this.takeMsn(QN.SEND), payload, word });
  }

  makeWrite(stag: number, to: bigint, payload: Uint8Array): Uint8Array {
    return tagged({ opcode: OPCODE.RDMA_WRITE, stag, to, payload });
  }

  /**
   * Throw unless the peer serves one Read or Atomic more than those that it owes an answer: RDMAP-052 lets it
   * refuse them, and one without IRD serves none.
   */
  needsRead(): void {
    const owed = this.watch.reads.length + this.watch.atomics.length;
    const most = this.#readsServed;
    if (most !== null && owed >= most)
      throw new Unsuited(
        most === 0
          ? 'the peer serves no Reads'
          : `the peer serves ${most} Read${most === 1 ? '' : 's'} at a time, and the case makes more`,
      );
  }

  /**
   * A Read Request with the next MSN, whose answer the watch expects. `excess`: whether or not the peer
   * serves as many.
   */
  makeRead(fields: ReadRequestFields, answered = true, excess = false): Uint8Array {
    if (!excess) this.needsRead();
    if (answered) this.watch.reads.push(fields);
    return untagged({
      opcode: OPCODE.READ_REQUEST,
      qn: QN.READ_REQUEST,
      msn: this.takeMsn(QN.READ_REQUEST),
      payload: readRequestHeader(fields),
    });
  }

  // ----------------------------------------------------------------------------------------------- receiving

  /** The next FPDU, the end, or silence for `ms`. */
  async receive(ms: number = this.limits.reaction): Promise<Incoming> {
    const deadline = performance.now() + ms;
    for (;;) {
      const fpdu = this.#operational ? this.reader.next() : null;
      if (fpdu !== null) {
        const segment = parseSegment(
          this.quirks.has('swapped-terminate') ? unswapped(fpdu.ulpdu) : fpdu.ulpdu,
        );
        this.note(
          'peer',
          'fpdu',
          segment === null ? `ULPDU of ${fpdu.ulpdu.length} octets` : describeSegment(segment),
          fpdu.raw,
          this.reader.markers,
        );
        this.watch.see(fpdu, segment);
        if (segment === null)
          throw new Deviation('a DDP segment', `a ULPDU of ${fpdu.ulpdu.length} octets`, ['DDP-020']);
        if (this.programReadOver && !OWN_OPCODES.has(segment.opcode)) continue;
        return { kind: 'segment', segment, fpdu };
      }
      const chunk = this.channel.take();
      if (chunk !== null) {
        if (this.#operational) this.reader.push(chunk);
        else this.#startupOctets = join(this.#startupOctets, chunk);
        continue;
      }
      const { end } = this.channel;
      if (end !== null) {
        this.note('peer', 'end', end === 'fin' ? 'FIN' : 'RST', EMPTY);
        if (this.#operational) this.watch.seeEnd(this.reader.pending);
        return { kind: 'end', how: end };
      }
      const left = deadline - performance.now();
      if (left <= 0 || !(await this.channel.wait(left))) return { kind: 'silence' };
    }
  }

  /** The next segment, or a {@link Deviation} that names the event instead of it. */
  async expectSegment(what: string): Promise<ParsedSegment> {
    const incoming = await this.receive(this.limits.reaction);
    if (incoming.kind !== 'segment') throw new Deviation(what, describeIncoming(incoming));
    return incoming.segment;
  }

  /** The next segment, which must have this opcode. */
  async expectOpcode(opcode: number, what: string): Promise<ParsedSegment> {
    const segment = await this.expectSegment(what);
    if (segment.opcode !== opcode) throw new Deviation(what, describeSegment(segment));
    return segment;
  }

  /** A whole message of this opcode: its segments and their payload together. */
  async expectMessage(
    opcode: number,
    what: string,
  ): Promise<{ segments: ParsedSegment[]; payload: Uint8Array }> {
    const segments: ParsedSegment[] = [];
    for (;;) {
      const segment = await this.expectOpcode(opcode, what);
      segments.push(segment);
      if (segment.last) return { segments, payload: joinAll(segments.map((s) => s.payload)) };
    }
  }

  /** Read `size` octets from the peer and return them. */
  async read(stag: number, to: bigint, size: number): Promise<Uint8Array> {
    this.send(this.makeRead({ sinkStag: 0x1234_5600, sinkTo: 0n, size, sourceStag: stag, sourceTo: to }));
    return (await this.expectMessage(OPCODE.READ_RESPONSE, `a Read Response of ${size} octets`)).payload;
  }

  /**
   * Prove that the peer works on: a zero-length Read with names nobody knows must be answered by a
   * zero-length Read Response (RDMAP-032, RDMAP-033), and everything sent before it has been processed by
   * then. Other messages on the way are returned.
   */
  async ping(): Promise<ParsedSegment[]> {
    if (this.readsUnsure) {
      this.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n }));
      return this.#quietBut('normal operation: no reaction to a zero-length Write');
    }
    const mark = this.msn[QN.READ_REQUEST]!;
    this.send(this.makeRead({ sinkStag: mark, sinkTo: BigInt(mark), size: 0, sourceStag: 1, sourceTo: 0n }));
    const others: ParsedSegment[] = [];
    const latest = performance.now() + NO_END * this.limits.reaction;
    for (;;) {
      const segment = await this.expectSegment('normal operation: an answer to a zero-length Read');
      if (segment.opcode === OPCODE.TERMINATE)
        throw new Deviation('normal operation', describeSegment(segment));
      if (segment.opcode === OPCODE.READ_RESPONSE && segment.stag === mark && segment.payload.length === 0)
        return others;
      others.push(segment);
      check(
        performance.now() < latest,
        'normal operation: an answer to a zero-length Read',
        `${others.length} other messages`,
      );
    }
  }

  /** Throw unless nothing at all arrives for the quiet time. */
  async expectQuiet(what: string): Promise<void> {
    const incoming = await this.receive(this.limits.quiet);
    if (incoming.kind !== 'silence') throw new Deviation(what, describeIncoming(incoming));
  }

  /** The event of the quiet time, which must not be an answer, a Terminate or the end. */
  async #quietBut(what: string): Promise<ParsedSegment[]> {
    const deadline = performance.now() + this.limits.quiet;
    const others: ParsedSegment[] = [];
    for (;;) {
      const incoming = await this.receive(Math.max(0, deadline - performance.now()));
      if (incoming.kind === 'silence') return others;
      if (incoming.kind === 'end' || OWN_OPCODES.has(incoming.segment.opcode))
        throw new Deviation(what, describeIncoming(incoming));
      others.push(incoming.segment);
      if (performance.now() >= deadline) return others;
    }
  }

  /** Take whatever comes until the peer ends or goes silent; or goes on for so long that it does neither. */
  async reaction(ms: number = this.limits.reaction): Promise<Reaction> {
    const segments: ParsedSegment[] = [];
    let terminate: TerminateFields | null = null;
    const latest = performance.now() + NO_END * ms;
    for (;;) {
      const incoming = await this.receive(ms);
      if (incoming.kind === 'end') return { terminate, end: incoming.how, segments, goesOn: false };
      if (incoming.kind === 'silence') return { terminate, end: null, segments, goesOn: false };
      segments.push(incoming.segment);
      if (incoming.segment.opcode === OPCODE.TERMINATE) {
        terminate = parseTerminate(incoming.segment.payload);
        check(terminate !== null, 'a well-formed Terminate', describeSegment(incoming.segment), [
          'RDMAP-082',
        ]);
      }
      if (performance.now() >= latest) return { terminate, end: null, segments, goesOn: true };
    }
  }

  note(
    from: LogEntry['from'],
    what: LogEntry['what'],
    text: string,
    octets: Uint8Array,
    markers: boolean = from === 'probe' && this.writer.markers,
  ): void {
    this.log.push({ from, what, text, octets, markers: what === 'fpdu' && markers });
  }
}

/** A depth that is settled elsewhere (RFC 6581 9.1). */
const OPEN_DEPTH = 0x3fff;

/**
 * The peer's IRD by the two frames: a responder's is in its Reply, an initiator raises its own to the ORD of
 * the Reply (ENH-021).
 */
function readsServed(role: Role, request: ParsedStartup, reply: ParsedStartup): number | null {
  const asked = request.enhanced;
  const answered = reply.enhanced;
  if (asked === null || answered === null) return null;
  const told = role === 'initiator' ? [answered.ird] : [asked.ird, answered.ord];
  if (told[0] === OPEN_DEPTH) return null;
  return Math.max(...told.filter((depth) => depth !== OPEN_DEPTH));
}

/** A Terminate with its first and third octet put right; anything else as it is. */
function unswapped(ulpdu: Uint8Array): Uint8Array {
  const TERMINATE = 0x47;
  if (ulpdu[1] !== TERMINATE || ulpdu.length < 22) return ulpdu;
  const out = ulpdu.slice();
  out[18] = ((ulpdu[18]! & 0xf) << 4) | (ulpdu[18]! >>> 4);
  const flags = ulpdu[20]!;
  out[20] = ((flags & 0x01) << 7) | ((flags & 0x02) << 5) | ((flags & 0x04) << 3) | (flags >>> 3);
  return out;
}

function describeIncoming(incoming: Incoming): string {
  if (incoming.kind === 'segment') return describeSegment(incoming.segment);
  return incoming.kind === 'end' ? incoming.how.toUpperCase() : 'silence';
}

function join(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length === 0) return b;
  const out = new Uint8Array(a.length + b.length);
  out.set(a);
  out.set(b, a.length);
  return out;
}

export function joinAll(parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Let `ms` milliseconds pass. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
