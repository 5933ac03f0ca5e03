// One run of one case: connections in the probe's role, start-up with lawful defaults, and the verdict on a
// peer's reaction. Read RFC 5040 7.1 (what a Terminate carries) and RFC 6581 9 (start-up) first.

import { performance } from 'node:perf_hooks';
import type { Region, Tester } from '../profiles/tester.ts';
import type { Address, Session } from '../profiles/types.ts';
import { Channel, openChannel } from './channel.ts';
import type { Capture, Listener } from './channel.ts';
import { Connection, NO_END, pause } from './connection.ts';
import type { Limits, Log, Quirk, Reaction, Role } from './connection.ts';
import { describeSegment } from './decode.ts';
import { Deviation, Inapplicable, NotConnected, brief, check } from './deviation.ts';
import { packedCode, parseReadRequest, parseSegment, parseTerminate, tagged } from './messages.ts';
import type { TerminateFields } from './messages.ts';
import type { Random } from './random.ts';
import type { Enhanced, ParsedStartup, StartupFields } from './startup.ts';
import { describeTerminateCode } from './terminate-codes.ts';
import { OPCODE } from './wire.ts';

/** A reaction that a peer may lawfully show. */
export type Outcome =
  /** A Terminate with this packed code, then the end of the connection. */
  | { readonly kind: 'terminate'; readonly code: number }
  /** FIN or RST without a Terminate. */
  | { readonly kind: 'close' }
  /** Normal operation, proved by a zero-length Read. */
  | { readonly kind: 'normal' };

export const CLOSE: Outcome = { kind: 'close' };
export const NORMAL: Outcome = { kind: 'normal' };

/** Outcomes for packed Terminate codes, the one to send first. */
export function terms(...codes: readonly number[]): Outcome[] {
  return codes.map((code) => ({ kind: 'terminate', code }));
}

function describeOutcome(outcome: Outcome): string {
  if (outcome.kind === 'terminate') return `Terminate ${describeTerminateCode(outcome.code)}`;
  return outcome.kind === 'close' ? 'close' : 'normal operation';
}

export function describeOutcomes(outcomes: readonly Outcome[]): string {
  return outcomes.map(describeOutcome).join(', or ');
}

export type RtrKind = 'write' | 'read' | 'send';

/** The probe's part in a lawful start-up. */
export interface StartupChoice {
  readonly revision?: 1 | 2;
  readonly crc?: boolean;
  readonly markers?: boolean;
  /** Initiator: ask for the peer-to-peer model. The responder repeats the request. */
  readonly peerToPeer?: boolean;
  /** Initiator: kinds offered. Responder: kinds put into the Reply, instead of one of those asked for. */
  readonly rtr?: readonly RtrKind[];
  readonly ird?: number;
  readonly ord?: number;
  readonly privateData?: Uint8Array;
  /** Send the RTR message that the Reply asks for; true by default. */
  readonly sendRtr?: boolean;
}

interface TrialContext {
  readonly role: Role;
  readonly session: Session;
  readonly listener: Listener | null;
  readonly limits: Limits;
  readonly random: Random;
  readonly strict: boolean;
  /** The peer knows revision 1 only. */
  readonly plain: boolean;
  readonly quirks: ReadonlySet<Quirk>;
  /** MSN with which both sides begin queues 0, 1 and 3; 1 when undefined. */
  readonly firstMsn?: number | undefined;
}

const DEPTH = 16;

export class Trial {
  readonly role: Role;
  readonly random: Random;
  readonly limits: Limits;
  readonly strict: boolean;
  readonly log: Log = [];
  readonly capture: Capture = [];
  readonly connections: Connection[] = [];
  readonly #context: TrialContext;

  constructor(context: TrialContext) {
    this.#context = context;
    this.role = context.role;
    this.random = context.random;
    this.limits = context.limits;
    this.strict = context.strict;
  }

  /** The tester, for cases that need one. */
  get tester(): Tester {
    const { tester } = this.#context.session;
    if (tester === null) throw new Inapplicable('the profile has no tester');
    return tester;
  }

  get hasTester(): boolean {
    return this.#context.session.tester !== null;
  }

  // ---------------------------------------------------------------------------------------------- connecting

  /** A TCP connection in the probe's role: made by the probe, or awaited from the peer. */
  async connect(): Promise<Connection> {
    const { session, listener } = this.#context;
    if (this.role === 'initiator') {
      if (session.address === null) throw new Inapplicable('there is no address to connect to');
      return this.connectTo(session.address);
    }
    if (listener === null) throw new Inapplicable('the probe does not listen');
    listener.clear();
    return this.acceptAnother((address) => session.invite(address));
  }

  /** A TCP connection of the probe to this address. */
  async connectTo({ host, port }: Address): Promise<Connection> {
    const socket = await openChannel(host, port, this.limits.patience);
    if (socket === null) throw new NotConnected(`no connection to ${host}:${port}`);
    return this.#add(new Channel(socket, this.capture, this.connections.length, 'probe'));
  }

  /** Where the peer lives. */
  get targetHost(): string {
    return this.#context.session.address?.host ?? '127.0.0.1';
  }

  /** As responder: one more connection, which `invite` makes the peer open. */
  async acceptAnother(invite: (address: Address) => Promise<unknown>): Promise<Connection> {
    const { listener, limits } = this.#context;
    if (listener === null) throw new Inapplicable('the probe does not listen');
    await invite(listener.address);
    const socket = await listener.accept(limits.patience);
    if (socket === null) throw new NotConnected('the peer did not connect');
    const channel = new Channel(socket, this.capture, this.connections.length, 'peer');
    socket.resume();
    return this.#add(channel);
  }

  #add(channel: Channel): Connection {
    const connection: Connection = new Connection(
      channel,
      this.role,
      this.limits,
      this.log,
      this.#context.quirks,
      this.#context.firstMsn,
    );
    if (this.#context.session.tester === null) connection.readsUnsure = true;
    this.connections.push(connection);
    return connection;
  }

  /** The Request a lawful initiator sends. */
  requestFields(choice: StartupChoice = {}): StartupFields {
    const { revision = this.#context.plain ? 1 : 2, crc = true, markers = false, privateData } = choice;
    return {
      kind: 'request',
      revision,
      crc,
      markers,
      privateData,
      enhanced: revision === 2 ? this.#offer(choice) : null,
    };
  }

  #offer({ peerToPeer = true, rtr = ['write'], ird = DEPTH, ord = DEPTH }: StartupChoice): Enhanced {
    const has = (kind: RtrKind): boolean => peerToPeer && rtr.includes(kind);
    return { a: peerToPeer, b: has('send'), c: has('write'), d: has('read'), ird, ord };
  }

  /**
   * The Reply a lawful responder gives to this Request: revision and S repeated, A repeated, one requested
   * RTR kind.
   */
  replyFields(request: ParsedStartup, choice: StartupChoice = {}): StartupFields {
    const { crc = true, markers = false, privateData, ird = DEPTH, ord } = choice;
    const asked = request.enhanced;
    let enhanced: Enhanced | null = null;
    if (asked !== null) {
      const kinds = choice.rtr ?? (!asked.a ? [] : asked.c ? ['write'] : asked.d ? ['read'] : ['send']);
      enhanced = {
        a: choice.peerToPeer ?? asked.a,
        b: kinds.includes('send'),
        c: kinds.includes('write'),
        d: kinds.includes('read'),
        ird,
        ord: ord ?? Math.min(DEPTH, asked.ird),
      };
    }
    return { kind: 'reply', revision: request.revision, crc, markers, privateData, enhanced };
  }

  /** Connect and go through a lawful start-up, RTR included. */
  async establish(choice: StartupChoice = {}): Promise<Connection> {
    const connection = await this.connect();
    await this.startUp(connection, choice);
    return connection;
  }

  /** A lawful start-up on a fresh TCP connection. */
  async startUp(connection: Connection, choice: StartupChoice = {}): Promise<void> {
    if (connection.role === 'initiator') {
      await connection.sendStartup(this.requestFields(choice));
      const reply = await connection.expectStartup();
      check(!reply.reject, 'an accepting Reply', 'a Reply with R=1');
      await connection.enter();
      if (choice.sendRtr !== false) await this.#open(connection);
    } else {
      const request = await connection.expectStartup();
      await connection.sendStartup(this.replyFields(request, withAskedKinds(request, choice)));
      await connection.enter();
      if (connection.reply!.enhanced?.a === true && request.enhanced?.a === true)
        await this.takeRtr(connection);
    }
    connection.programReadOver = this.#context.session.strangeProgram === true;
    await this.#context.session.established(connection);
  }

  /**
   * As initiator: the RTR message, or where there is none another FPDU: until it has got one the peer has to
   * be silent (MPA-028, MPA-029).
   */
  async #open(connection: Connection): Promise<void> {
    if (connection.reply!.enhanced?.a === true) return this.sendRtr(connection);
    connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n }));
    if (this.limits.settle > 0) await pause(this.limits.settle);
  }

  /** As initiator: the RTR message that the Reply asks for, if any; the answer to a Read is taken. */
  async sendRtr(connection: Connection): Promise<void> {
    const e = connection.reply!.enhanced;
    if (e === null || !e.a) return;
    if (e.c) connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n }));
    else if (e.d) {
      connection.send(
        connection.makeRead({ sinkStag: 0, sinkTo: 0n, size: 0, sourceStag: 1, sourceTo: 0n }, true, true),
      );
      // The RTR has opened the peer's direction (ENH-045), so its program may be first.
      connection.programReadOver = this.#context.session.strangeProgram === true;
      await connection.expectOpcode(OPCODE.READ_RESPONSE, 'an answer to the Read RTR');
    } else if (e.b) connection.send(connection.makeSend(new Uint8Array(0)));
    if (this.limits.settle > 0) await pause(this.limits.settle);
  }

  /**
   * Before the connections are dropped: some peers do not survive the end of one between their Reply and the
   * RTR message (Linux siw, report K2), and a case that only looked at the Reply is not about that. Nothing
   * that a case has looked at changes.
   */
  async tidy(): Promise<void> {
    for (const connection of this.connections) {
      if (!connection.owesRtr) continue;
      if (!connection.operational) await connection.enter();
      await this.sendRtr(connection).catch(() => undefined);
    }
  }

  /** As responder: take the RTR message and answer it if it is a Read. */
  async takeRtr(connection: Connection): Promise<void> {
    const what = 'a zero-length RTR message as the first FPDU';
    const segment = await connection.expectSegment(what);
    if (segment.opcode === OPCODE.READ_REQUEST) {
      const request = parseReadRequest(segment.payload);
      check(request?.size === 0, what, describeSegment(segment), ['ENH-038']);
      connection.send(tagged({ opcode: OPCODE.READ_RESPONSE, stag: request.sinkStag, to: request.sinkTo }));
      return;
    }
    const rtr = segment.opcode === OPCODE.RDMA_WRITE || segment.opcode === OPCODE.SEND;
    check(rtr && segment.payload.length === 0 && segment.last, what, describeSegment(segment), ['ENH-038']);
  }

  // --------------------------------------------------------------------------------- with the profile's help

  region(connection: Connection, length = 64): Promise<Region> {
    return this.#context.session.region(connection, length);
  }

  /** Payload of a Send that the peer takes. */
  acceptableSend(): Uint8Array {
    return this.#context.session.acceptableSend();
  }

  /** Octets that a posted receive of the peer holds. */
  get receiveSize(): number {
    return this.#context.session.receiveSize;
  }

  delivered(connection: Connection, payload: Uint8Array): Promise<void> {
    return this.#context.session.delivered(connection, payload);
  }

  // ------------------------------------------------------------------------------------------------- verdict

  /** Throw a Deviation unless the peer's reaction is one of these; `--strict` leaves only the first. */
  async expect(
    connection: Connection,
    outcomes: readonly Outcome[],
    offending: Uint8Array = connection.lastUlpdu,
  ): Promise<Reaction | null> {
    const allowed = this.strict ? outcomes.slice(0, 1) : outcomes;
    const expected = describeOutcomes(allowed);
    const normal = allowed.some((outcome) => outcome.kind === 'normal');
    if (normal && allowed.length === 1) {
      await connection.ping();
      return null;
    }
    if (normal) {
      const mark = connection.msn[1]!;
      connection.send(
        connection.makeRead({ sinkStag: mark, sinkTo: 0n, size: 0, sourceStag: 1, sourceTo: 0n }),
      );
      const latest = performance.now() + NO_END * this.limits.reaction;
      for (;;) {
        const incoming = await connection.receive();
        if (incoming.kind === 'segment' && incoming.segment.opcode === OPCODE.READ_RESPONSE) return null;
        if (incoming.kind === 'silence') throw new Deviation(expected, 'silence');
        if (incoming.kind === 'segment' && incoming.segment.opcode !== OPCODE.TERMINATE) {
          check(
            performance.now() < latest,
            expected,
            `${describeSegment(incoming.segment)}, and no answer to a zero-length Read`,
          );
          continue;
        }
        if (incoming.kind === 'end')
          return this.#judgeEnd(
            allowed,
            expected,
            { terminate: null, end: incoming.how, segments: [], goesOn: false },
            offending,
          );
        const rest = await connection.reaction();
        const first = parseTerminate(incoming.segment.payload);
        return this.#judgeEnd(
          allowed,
          expected,
          { ...rest, terminate: first, segments: [incoming.segment, ...rest.segments] },
          offending,
        );
      }
    }
    return this.#judgeEnd(allowed, expected, await connection.reaction(), offending);
  }

  #judgeEnd(
    allowed: readonly Outcome[],
    expected: string,
    reaction: Reaction,
    offending: Uint8Array,
  ): Reaction {
    const { terminate, end } = reaction;
    if (terminate === null) {
      if (end === null)
        throw new Deviation(
          expected,
          reaction.segments.length === 0
            ? 'silence'
            : `${describeSegment(reaction.segments.at(-1)!)}, then ` +
                `${reaction.goesOn ? 'more of it' : 'silence'}`,
        );
      if (!allowed.some((outcome) => outcome.kind === 'close'))
        throw new Deviation(expected, `${end.toUpperCase()} without a Terminate`);
      return reaction;
    }
    const code = packedCode(terminate);
    if (!allowed.some((outcome) => outcome.kind === 'terminate' && sameCode(outcome.code, code))) {
      throw new Deviation(expected, `Terminate ${describeTerminateCode(code)}`);
    }
    if (end === null)
      throw new Deviation(
        `${expected}, then the end of the connection`,
        'no FIN or RST after the Terminate',
        ['RDMAP-091'],
      );
    checkIncluded(terminate, offending);
    return reaction;
  }
}

/** Without the RTR kinds that the peer has not asked for: it may not know them. */
function withAskedKinds(request: ParsedStartup, choice: StartupChoice): StartupChoice {
  const { rtr, ...rest } = choice;
  const e = request.enhanced;
  const asked = rtr?.filter((kind) => e !== null && { send: e.b, write: e.c, read: e.d }[kind]) ?? [];
  return asked.length === 0 ? rest : { ...rest, rtr: asked };
}

/** Layer 2 has one EType; hardware sends 3 there. Layer 0 type 0 leaves the code open. */
export function sameCode(wanted: number, got: number): boolean {
  if (got >>> 12 === 2) return wanted >>> 12 === 2 && (wanted & 0xff) === (got & 0xff);
  if ((got & 0xff00) === 0) return (wanted & 0xff00) === 0;
  return (wanted & 0xffff) === got;
}

/** A header that a Terminate includes must be that of the segment in error (RDMAP-073). */
function checkIncluded(terminate: TerminateFields, offending: Uint8Array): void {
  if (terminate.ddpHeader === null) return;
  const wanted = parseSegment(offending)?.header ?? offending;
  const got = terminate.ddpHeader;
  if (got.length !== wanted.length || got.some((octet, i) => octet !== wanted[i])) {
    throw new Deviation(
      `the DDP header of the segment in error (${brief(wanted)}) in the Terminate`,
      brief(got),
      ['RDMAP-073', 'DDP-053'],
    );
  }
  const request = parseSegment(offending);
  if (
    terminate.rdmapHeader === null ||
    request?.opcode !== OPCODE.READ_REQUEST ||
    request.payload.length !== terminate.rdmapHeader.length
  )
    return;
  if (terminate.rdmapHeader.some((octet, i) => octet !== request.payload[i])) {
    throw new Deviation(
      `the header of the Read Request in error (${brief(request.payload)}) in the Terminate`,
      brief(terminate.rdmapHeader),
      ['RDMAP-074'],
    );
  }
}
