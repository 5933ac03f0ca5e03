/**
 * The data connections of a test: queue pairs that share a protection domain, the buffer, the credit words,
 * and what each side says of them.
 */
import { randomBytes } from 'node:crypto';
import type { CloseInfo } from '../../src/api/errors.ts';
import { IwarpError } from '../../src/base/errors.ts';
import type { MemoryRegion } from '../../src/verbs/memory.ts';
import { ipOctets, mappedIpv6 } from '../../src/transport/ip-address.ts';
import type { WorkCompletion } from '../../src/verbs/cq.ts';
import type { Session } from '../support/session.ts';
import type { RequestQueue, Tool } from '../support/tool.ts';
import type { SystemData } from './control.ts';
import { ACCESS } from '../../src/ddp/stag-table.ts';
import type { ReceiveWorkRequest } from '../../src/verbs/post.ts';
import type { SharedReceiveQueue } from '../../src/verbs/srq.ts';
import { fillWith } from './payload.ts';
import type { Verb } from './program.ts';
import { firstReceives, type Settings } from './settings.ts';
import type { Destination } from './wire.ts';

/** The client's patience with a server that does not listen yet, as the stock programs'. */
const CONNECT_TRIES = 10;
const CONNECT_PAUSE_MS = 100;
/** Room in the send queue for credits beside the operations of the test. */
const CREDIT_ROOM = 64;

/**
 * What the peer may do with the buffers of a test: no more than the stock programs let it, so that programs
 * of two verbs fit or do not fit together as stock ones. A Read over iWARP writes into the reader's memory.
 */
const REMOTE_RIGHTS: Readonly<Record<Verb, number>> = {
  write: ACCESS.REMOTE_WRITE,
  read: ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE,
  send: 0,
  atomic: ACCESS.REMOTE_ATOMIC,
};

export class DataConnections {
  readonly sessions: Session[] = [];
  /** One for all queue pairs, or one for each. */
  readonly #buffers: readonly MemoryRegion[];
  /** Octets that one queue pair has for what it sends, and again for what it receives. */
  readonly #share: number;
  readonly #srq: SharedReceiveQueue | undefined;
  /** One little-endian u32 for each queue pair: how many of our messages the peer has received. */
  readonly credits: MemoryRegion;
  readonly #tool: Tool;
  readonly #s: Settings;
  readonly #psn: number[] = [];
  /** Gets every completion, with the number of the queue pair. */
  onCompletion: (qp: number, wc: WorkCompletion) => void = () => undefined;
  /** True once the peer may leave. */
  finished = false;
  /** Asked when it leaves before: true if that was its way to end the test. */
  endsTest: (info: CloseInfo) => boolean = () => false;

  constructor(tool: Tool, s: Settings, system: SystemData, pd: Session) {
    this.#tool = tool;
    this.#s = s;
    this.#share = Math.max(s.size, system.cycleBuffer);
    const [regions, qpsEach] = s.mrPerQp ? [s.qps, 1] : [1, s.qps];
    this.#buffers = Array.from({ length: regions }, () =>
      pd.register(2 * qpsEach * this.#share, REMOTE_RIGHTS[s.program.verb]),
    );
    if (s.payload !== null) for (const { bytes } of this.#buffers) fillWith(bytes, s.payload);
    this.credits = pd.register(4 * s.qps, ACCESS.REMOTE_WRITE);
    // A client of one direction receives nothing.
    if (s.srq && (s.machine === 'server' || s.bidirectional || s.program.kind === 'lat'))
      this.#srq = pd.pd.createSrq({ maxWr: s.qps * this.#receiveRoom });
  }

  /** The receives of one size may still be there when those of the next are posted. */
  get #receiveRoom(): number {
    return 2 * firstReceives(this.#s);
  }

  #session(pd: Session): Session {
    const index = this.sessions.length;
    const session = this.#tool.session({
      pd: pd.pd,
      maxSendWr: this.#s.txDepth + CREDIT_ROOM,
      maxRecvWr: this.#srq === undefined ? this.#receiveRoom : this.#srq.maxWr,
      ...(this.#srq === undefined ? {} : { srq: this.#srq }),
      maxInline: Math.max(this.#s.inline, 64),
      onCompletion: (wc) => {
        this.onCompletion(index, wc);
        return true;
      },
    });
    void session.closed.then((info) => {
      if (this.sessions[index] === session) this.left(info);
    });
    return session;
  }

  /** Make the connections, one after the other, so that both sides number them alike. */
  async connect(control: Session, host: string, port: number): Promise<void> {
    for (let i = 0; i < this.#s.qps; i++) this.#add(await this.#connectOne(control, host, port));
  }

  async #connectOne(control: Session, host: string, port: number): Promise<Session> {
    const depth = this.#s.outstandingReads;
    for (let attempt = 1; ; attempt++) {
      this.#tool.check();
      const session = this.#session(control);
      session.use(
        this.#tool.rnic.cm.connect(session.qp, {
          ...this.#tool.target({ host, port, source: this.#s.sourceAddress }),
          policy: this.#tool.policy,
          responderResources: depth,
          initiatorDepth: depth,
        }),
      );
      try {
        await session.established;
        return session;
      } catch (error) {
        if (attempt === CONNECT_TRIES || !(error instanceof IwarpError)) throw error;
        await new Promise((resolve) => setTimeout(resolve, CONNECT_PAUSE_MS));
      }
    }
  }

  async accept(control: Session, requests: RequestQueue): Promise<void> {
    for (let i = 0; i < this.#s.qps; i++) {
      const request = await requests.next();
      const session = this.#session(control);
      session.use(request);
      request.accept(session.qp);
      await session.established;
      this.#add(session);
    }
  }

  /** A connection has ended, one of these or the control connection. */
  left(info: CloseInfo): void {
    if (!this.finished && !this.endsTest(info)) this.#tool.fail(info.error!);
  }

  #add(session: Session): void {
    this.sessions.push(session);
    this.#psn.push(randomBytes(4).readUInt32BE() & 0xff_ffff);
  }

  /**
   * The destination sent to the peer of queue pair `i`: where it may read and write, or where our credit word
   * is.
   */
  destination(i: number): Destination {
    const credit = this.#s.program.verb === 'send' && this.#s.program.kind === 'bw';
    return {
      lid: 0,
      outReads: this.#s.outstandingReads,
      qpn: this.sessions[i]!.qp.number,
      psn: this.#psn[i]!,
      rkey: credit ? this.credits.rkey : this.memory(i).rkey,
      vaddr: credit ? this.credits.addr + BigInt(4 * i) : this.memory(i).addr + BigInt(this.receiveOffset(i)),
      gid: gidOf(this.sessions[i]!.connection.localAddress?.address ?? ''),
      srqn: 0,
      gidIndex: 0,
    };
  }

  /** The buffer of queue pair `i`. */
  memory(i: number): MemoryRegion {
    return this.#buffers[this.#s.mrPerQp ? i : 0]!;
  }

  /**
   * Where queue pair `i` sends from, in the first half of its buffer, and where it receives, in the second.
   */
  sendOffset(i: number): number {
    return this.#s.mrPerQp ? 0 : i * this.#share;
  }

  receiveOffset(i: number): number {
    return this.#s.mrPerQp ? this.#share : (this.#s.qps + i) * this.#share;
  }

  /** Post receives of queue pair `i`, or for all where they share a queue. */
  postReceives(i: number, list: readonly ReceiveWorkRequest[]): void {
    const session = this.sessions[i]!;
    if (session.over) return;
    if (this.#srq === undefined) session.qp.postRecv(list);
    else this.#srq.postRecv(list);
  }

  /** Our messages of queue pair `i` that the peer has received, as far as it has said. */
  credit(i: number): number {
    const { bytes } = this.credits;
    return (
      (bytes[4 * i]! | (bytes[4 * i + 1]! << 8) | (bytes[4 * i + 2]! << 16) | (bytes[4 * i + 3]! << 24)) >>> 0
    );
  }

  async close(): Promise<void> {
    this.finished = true;
    await Promise.all(this.sessions.map((session) => session.close()));
  }

  /** Wait until the server has ended every connection, as the stock client does. */
  async ended(): Promise<void> {
    this.finished = true;
    await Promise.all(this.sessions.map((session) => session.closed));
  }
}

/** An address as a GID: IPv4 mapped into IPv6; zeros for a text that is no address. */
export function gidOf(address: string): Uint8Array {
  const octets = ipOctets(address);
  return octets === undefined ? new Uint8Array(16) : mappedIpv6(octets);
}
