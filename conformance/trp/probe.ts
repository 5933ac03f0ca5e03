// The tools of a case of iWARP over UDP: one socket, and a connection to the target in either role. The
// probe acknowledges nothing and repeats nothing by itself: each case says what it sends.

import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { datagram, OPCODE, parse, parseSetup, sendSegment, setupDatagram } from './datagram.ts';
import type { Datagram, Setup } from './datagram.ts';

export type Profile = 'fixed' | 'urdma';
export type Role = 'passive' | 'active';

/** Why a case fails. */
export class Failure extends Error {}

export function check(holds: boolean, message: string): asserts holds {
  if (!holds) throw new Failure(message);
}

/** The judged peer: it echoes each Send, and its private data names a region of its memory. */
export interface Target {
  readonly host: string;
  /** Where it listens. */
  readonly port: number;
  /** Makes it connect to this port of the probe. */
  connect(port: number): void;
}

/** The ports from which endpoints that are closed by now have heard. */
const heard = new Set<number>();

/**
 * Ports that endpoints had. A target may still have a connection of such a port, which ended without a FIN,
 * and take a request from there for a repetition.
 */
const used = new Set<number>();
/** After this number of ports they may come again: a system has about three times as many. */
const MOST_USED = 10_000;

/** A UDP socket that keeps every datagram received. */
class Endpoint {
  readonly #socket: Socket;
  readonly got: Datagram[] = [];
  /** Octets received, of whatever. */
  octets = 0;
  #wake: () => void = () => undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('message', (raw, from) => {
      this.octets += raw.length;
      const one = parse(raw, from.port, performance.now());
      if (one !== null) this.got.push(one);
      this.#wake();
    });
    socket.on('error', () => undefined);
  }

  static async open(host: string): Promise<Endpoint> {
    for (;;) {
      const socket = createSocket({ type: host.includes(':') ? 'udp6' : 'udp4', recvBufferSize: 1 << 20 });
      socket.bind(0, host);
      await once(socket, 'listening');
      const { port } = socket.address();
      if (used.size >= MOST_USED) used.clear();
      if (!used.has(port)) {
        used.add(port);
        return new Endpoint(socket);
      }
      socket.close();
    }
  }

  get port(): number {
    return this.#socket.address().port;
  }

  send(bytes: Uint8Array, port: number, host: string): void {
    this.#socket.send(bytes, port, host);
  }

  /** The first datagram from index `from` on that fits, or null after `ms`. */
  async find(fits: (one: Datagram) => boolean, ms: number, from = 0): Promise<Datagram | null> {
    const end = performance.now() + ms;
    for (;;) {
      const found = this.got.slice(from).find(fits);
      if (found !== undefined) return found;
      const left = end - performance.now();
      if (left <= 0) return null;
      await Promise.race([sleep(left), new Promise<void>((resolve) => (this.#wake = resolve))]);
    }
  }

  /**
   * The datagrams that came, without those that earlier connections of the target repeat to a port which the
   * system gave us again: they send from the ports that they had.
   */
  fresh(target: Target): Datagram[] {
    return this.got.filter(({ port }) => port === target.port || !heard.has(port));
  }

  close(): void {
    for (const { port } of this.got) heard.add(port);
    this.#socket.close();
  }
}

/** One case at work. */
export class Probe {
  readonly target: Target;
  readonly profile: Profile;
  readonly role: Role;
  readonly #open: Endpoint[] = [];

  constructor(target: Target, profile: Profile, role: Role) {
    this.target = target;
    this.profile = profile;
    this.role = role;
  }

  async endpoint(host: string = this.target.host): Promise<Endpoint> {
    const made = await Endpoint.open(host);
    this.#open.push(made);
    return made;
  }

  /** The first PSN of the probe. */
  get first(): number {
    return this.profile === 'fixed' ? 0xffff_fffe : 0;
  }

  /** A connection that is set up, with the role that is the case's. */
  async connected(): Promise<Link> {
    return this.role === 'passive' ? await this.#toTarget() : await this.#fromTarget();
  }

  async #toTarget(): Promise<Link> {
    const end = await this.endpoint();
    const { host, port } = this.target;
    let accept: Datagram | null = null;
    for (let i = 0; i < 6 && accept === null; i++) {
      end.send(setupDatagram(OPCODE.REQUEST, this.first, 0), port, host);
      accept = await end.find(({ opcode }) => opcode === OPCODE.ACCEPT, 500);
    }
    check(accept !== null, 'the request is not answered with an accept');
    const setup = parseSetup(accept);
    check(setup !== null, 'the accept has not the length that it says');
    const link = new Link(this, end, accept.port, this.first, accept.psn, setup);
    link.acknowledge();
    return link;
  }

  async #fromTarget(): Promise<Link> {
    const listening = await this.endpoint();
    this.target.connect(listening.port);
    const request = await this.request(listening);
    return await this.accept(request);
  }

  async request(listening: Endpoint): Promise<Datagram> {
    const request = await listening.find(({ opcode }) => opcode === OPCODE.REQUEST, 10_000);
    check(request !== null, 'no request comes');
    return request;
  }

  /** Accept a request from a new port. */
  async accept(request: Datagram, end?: Endpoint): Promise<Link> {
    const setup = parseSetup(request);
    check(setup !== null, 'the request has not the length that it says');
    const own = end ?? (await this.endpoint());
    const link = new Link(this, own, request.port, this.first, request.psn, setup);
    link.put(setupDatagram(OPCODE.ACCEPT, this.first, this.profile === 'fixed' ? request.psn : 0));
    const answer = await own.find(({ port }) => port === request.port, 3000);
    check(answer !== null, 'the accept is not answered');
    return link;
  }

  end(): void {
    for (const one of this.#open) one.close();
  }
}

/** A connection: sequence numbers of both sides, counted by the case's own sends. */
export class Link {
  readonly probe: Probe;
  readonly end: Endpoint;
  readonly port: number;
  readonly setup: Setup;
  readonly ownFirst: number;
  readonly theirFirst: number;
  /** Next PSN of the probe, and the one that it expects. */
  next: number;
  expected: number;
  msn = 1;

  constructor(probe: Probe, end: Endpoint, port: number, own: number, theirs: number, setup: Setup) {
    this.probe = probe;
    this.end = end;
    this.port = port;
    this.ownFirst = this.next = own;
    this.theirFirst = this.expected = theirs;
    this.setup = setup;
  }

  put(bytes: Uint8Array): void {
    this.end.send(bytes, this.port, this.probe.target.host);
  }

  acknowledge(ack: number = this.expected): void {
    this.put(datagram(OPCODE.DATA, this.next, ack));
  }

  /** A segment under a PSN, the next one unless said otherwise. */
  data(body: Uint8Array, psn: number = this.next): void {
    if (psn === this.next) this.next = (this.next + 1) >>> 0;
    this.put(datagram(OPCODE.DATA, psn, this.expected, body));
  }

  /** A Send with the next PSN and MSN. */
  say(text: string): void {
    this.data(sendSegment(this.msn++, Buffer.from(text)));
  }

  fin(psn: number = this.next): void {
    this.put(datagram(OPCODE.FIN, psn, this.expected));
  }

  /** A datagram of the target on this connection. */
  async find(fits: (one: Datagram) => boolean, ms = 1500, from = 0): Promise<Datagram | null> {
    return await this.end.find((one) => one.port === this.port && fits(one), ms, from);
  }

  /** How many datagrams have come so far. */
  get mark(): number {
    return this.end.got.length;
  }

  async acked(psn: number, ms = 1500, from = 0): Promise<boolean> {
    return (
      (await this.find(
        ({ opcode, ack }) => (opcode === OPCODE.DATA || opcode === OPCODE.FIN) && ack === psn >>> 0,
        ms,
        from,
      )) !== null
    );
  }

  /** The echo of a Send, as it came, which is then acknowledged unless it is to be repeated. */
  async echo(text: string, acknowledge = true, ms = 3000, from = 0): Promise<Datagram> {
    const body = Buffer.from(text);
    const found = await this.find((one) => isSend(one) && one.body.subarray(18).equals(body), ms, from);
    check(found !== null, `the echo of ${JSON.stringify(text)} does not come`);
    if (acknowledge) {
      this.expected = (found.psn + 1) >>> 0;
      this.acknowledge();
    }
    return found;
  }

  /** Everything still works: a Send is echoed. */
  async alive(): Promise<void> {
    const text = `alive ${this.msn}`;
    const from = this.mark;
    this.say(text);
    await this.echo(text, true, 3000, from);
  }

  /** The region that the private data names: STag, offset, length. */
  region(): { stag: number; to: bigint; length: number } {
    const { privateData } = this.setup;
    check(privateData.length >= 16, 'the private data names no region');
    return {
      stag: privateData.readUInt32BE(0),
      to: privateData.readBigUInt64BE(4),
      length: privateData.readUInt32BE(12),
    };
  }
}

export function isSend({ opcode, body }: Datagram): boolean {
  return opcode === OPCODE.DATA && body.length >= 18 && (body[1]! & 15) === 3;
}
