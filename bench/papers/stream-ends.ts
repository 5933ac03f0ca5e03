/** Byte streams for the rows of the papers, over `node:net`, SDP, rsocket or extended sockets: both ends. */
import { once } from 'node:events';
import { connect as connectNet, createServer as createNetServer, type AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { openRnic, type EngineKind, type Rnic } from '../../src/api/environment.ts';
import {
  connect,
  connectExtended,
  createServer,
  type OnReadOptions,
  type RdmaSocket,
  type RdmaSocketOptions,
} from '../../src/sockets/index.ts';

const HOST = '127.0.0.1';
const READ_OCTETS = 65_536;
/** Places that a reader keeps posted. */
export const POSTED = 4;
const HEAD = 8;
/** The same as bare TCP, which adds no checksum. */
export const NO_CRC = { crc: 'off' } as const;

/** How both ends of a stream work. */
export interface StreamSpec {
  readonly wire: 'net' | 'sdp' | 'rsocket' | 'extended';
  /** Bytes of one message. */
  readonly size: number;
  readonly mode?: 'buffered' | 'source' | 'sink' | 'auto';
  readonly maxAdverts?: number;
  readonly engine?: EngineKind;
  readonly read?: 'data' | 'onread' | 'places';
  /** Nagle's algorithm, which all others have switched off. */
  readonly delay?: boolean;
}

const rnics = new Map<EngineKind, Rnic>();
export function rnicOf(engine: EngineKind = 'thread'): Rnic {
  let rnic = rnics.get(engine);
  if (rnic === undefined) rnics.set(engine, (rnic = openRnic({ engine })));
  return rnic;
}

/** Memory that an engine in any thread can use. */
function memory(octets: number, { engine }: Pick<StreamSpec, 'engine'>): Uint8Array {
  return new Uint8Array(engine === 'worker' ? new SharedArrayBuffer(octets) : new ArrayBuffer(octets)).fill(
    7,
  );
}

function options(spec: StreamSpec): RdmaSocketOptions & { readonly policy: typeof NO_CRC } {
  const { wire, mode, maxAdverts, engine, size } = spec;
  return {
    protocol: wire === 'rsocket' ? 'rsocket' : 'sdp',
    rnic: rnicOf(engine),
    policy: NO_CRC,
    ...(mode === undefined ? {} : { mode }),
    ...(maxAdverts === undefined ? {} : { maxAdverts }),
    // Each mode moves every message in its own way.
    ...(mode === 'source' && size >= 1024 ? { zeroCopyFrom: Math.min(size, 65_536) } : {}),
  };
}

type Take = (bytes: Uint8Array) => void;

/** Everything that comes goes to `take`, which keeps nothing. */
function readInto(socket: Duplex, spec: StreamSpec, take: Take): void {
  if (spec.read === 'places') void fillPlaces(socket as RdmaSocket, spec, take);
  else if (spec.read !== 'onread') socket.on('data', take);
}

async function fillPlaces(socket: RdmaSocket, spec: StreamSpec, take: Take): Promise<void> {
  const octets = Math.max(spec.size, READ_OCTETS);
  const waiting: { place: Uint8Array; got: Promise<number> }[] = [];
  const post = (place: Uint8Array): void => void waiting.push({ place, got: socket.receiveInto(place) });
  for (let i = 0; i < POSTED; i++) post(memory(octets, spec));
  for (;;) {
    const { place, got } = waiting.shift()!;
    const count = await got.catch(() => 0);
    if (count === 0) return;
    // The place goes back first, so that the peer finds it while the program works.
    take(place.subarray(0, count));
    post(place);
  }
}

function onread(take: Take): OnReadOptions {
  return {
    buffer: new Uint8Array(READ_OCTETS),
    callback: (octets, buffer) => take(buffer.subarray(0, octets)),
  };
}

/** One message there, one of the same size back; or a length and that many bytes there, one byte back. */
export type Role = 'echo' | 'sink';

function serverOf(role: Role, socket: Duplex, spec: StreamSpec): Take {
  if (role === 'echo') {
    const answer = memory(spec.size, spec);
    let left = spec.size;
    return ({ length }) => {
      for (left -= length; left <= 0; left += spec.size) socket.write(answer);
    };
  }
  const head = Buffer.alloc(HEAD);
  let have = 0;
  let left = 0;
  return (bytes) => {
    let at = 0;
    if (have < HEAD) {
      at = Math.min(HEAD - have, bytes.length);
      head.set(bytes.subarray(0, at), have);
      have += at;
      if (have < HEAD) return;
      if (at > 0) left = Number(head.readBigUInt64BE());
    }
    left -= bytes.length - at;
    if (left > 0) return;
    have = 0;
    socket.write('.');
  };
}

/** Listens; returns the port. */
export async function serveStreams(role: Role, spec: StreamSpec): Promise<number> {
  const takers = new WeakMap<Duplex, Take>();
  const takerOf = (socket: Duplex): Take => {
    let take = takers.get(socket);
    if (take === undefined) takers.set(socket, (take = serverOf(role, socket, spec)));
    return take;
  };
  const handle = (socket: Duplex): void => {
    socket.on('error', () => undefined);
    readInto(socket, spec, takerOf(socket));
  };
  const rdma = spec.wire === 'sdp' || spec.wire === 'rsocket';
  const reading = spec.read === 'onread' ? { onread: (socket: RdmaSocket) => onread(takerOf(socket)) } : {};
  const server = rdma
    ? createServer({ ...options(spec), ...reading }, handle)
    : createNetServer({ noDelay: spec.delay !== true }, handle);
  server.listen(0, HOST);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function open(spec: StreamSpec, port: number, take: Take): Promise<Duplex> {
  let socket: Duplex;
  if (spec.wire === 'net') socket = connectNet({ port, host: HOST, noDelay: spec.delay !== true });
  else if (spec.wire === 'extended') {
    // Plain until an option switches it: no call of it is wrapped.
    socket = connectExtended({ port, host: HOST, noDelay: true });
  } else {
    const reading = spec.read === 'onread' ? { onread: onread(take) } : {};
    socket = connect({ ...options(spec), ...reading, port, host: HOST });
  }
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

/** How a client sends a stream of messages. */
export interface SendPlan {
  readonly count: number;
  /**
   * `drain`: until the stream says stop. `callback`: this many writes wait for their callback. `lend`: this
   * many leases are out.
   */
  readonly how: 'drain' | 'callback' | 'lend';
  readonly depth?: number;
  /** Microseconds of computing before each message. */
  readonly compute?: number;
  /** Messages after which the buffer changes each time, behind a `touch` where it is lent. */
  readonly touchEvery?: number;
  readonly touch?: 'block' | 'copy';
}

function spin(us: number): void {
  for (const until = performance.now() + us / 1000; performance.now() < until; );
}

/** The client's end of one stream. */
export class StreamClient {
  readonly spec: StreamSpec;
  readonly socket: Duplex;
  readonly #message: Uint8Array;
  #left = 0;
  #arrived: () => void = () => undefined;

  private constructor(spec: StreamSpec, socket: Duplex) {
    this.spec = spec;
    this.socket = socket;
    this.#message = memory(spec.size, spec);
  }

  static async connect(spec: StreamSpec, port: number): Promise<StreamClient> {
    let client: StreamClient | null = null;
    const take: Take = ({ length }) => client!.#take(length);
    const socket = await open(spec, port, take);
    client = new StreamClient(spec, socket);
    readInto(socket, spec, take);
    return client;
  }

  #take(octets: number): void {
    this.#left -= octets;
    if (this.#left <= 0) this.#arrived();
  }

  /** Microseconds of a round trip, over this number of milliseconds. */
  async pingPong(ms: number): Promise<number> {
    const began = performance.now();
    let trips = 0;
    await new Promise<void>((resolve) => {
      const ask = (): void => {
        this.#left += this.spec.size;
        this.socket.write(this.#message);
      };
      this.#arrived = () => {
        trips++;
        if (performance.now() - began < ms) ask();
        else resolve();
      };
      this.#left = 0;
      ask();
    });
    return ((performance.now() - began) * 1000) / trips;
  }

  /** Sends messages, and waits until the peer has all; returns milliseconds. */
  async send(plan: SendPlan): Promise<number> {
    const head = Buffer.alloc(HEAD);
    head.writeBigUInt64BE(BigInt(plan.count * this.spec.size));
    this.#left = 1;
    const all = new Promise<void>((resolve) => (this.#arrived = resolve));
    const began = performance.now();
    this.socket.write(head);
    if (plan.touchEvery !== undefined) await this.#touching(plan, plan.touchEvery);
    else if (plan.how === 'drain') await this.#untilFull(plan);
    else await this.#counted(plan);
    await all;
    return performance.now() - began;
  }

  async #untilFull({ count, compute = 0 }: SendPlan): Promise<void> {
    for (let sent = 0; sent < count; sent++) {
      if (compute > 0) spin(compute);
      if (!this.socket.write(this.#message)) await once(this.socket, 'drain');
      else if (compute > 0) await turn();
    }
  }

  /** One message on its way; resolves when its memory is the program's again. */
  #one(how: SendPlan['how']): Promise<unknown> {
    if (how === 'lend') return (this.socket as RdmaSocket).lend(this.#message).done;
    return new Promise<void>((resolve, reject) => {
      this.socket.write(this.#message, (error) => (error == null ? resolve() : reject(error)));
    });
  }

  async #counted({ count, how, depth = 1, compute = 0 }: SendPlan): Promise<void> {
    let out = 0;
    let wake = (): void => undefined;
    const settled = (): void => {
      out--;
      wake();
    };
    for (let sent = 0; sent < count; sent++) {
      if (compute > 0) {
        spin(compute);
        // A program that computes still lets its event loop turn between messages.
        await turn();
      }
      while (out >= depth) await new Promise<void>((resolve) => (wake = resolve));
      out++;
      this.#one(how).then(settled, settled);
    }
  }

  async #touching({ count, how, touch = 'block' }: SendPlan, every: number): Promise<void> {
    const socket = this.socket as RdmaSocket;
    for (let sent = 0; sent < count; ) {
      const free: Promise<unknown>[] = [];
      const leases = [];
      for (let i = 0; i < every && sent < count; i++, sent++) {
        if (how === 'lend') leases.push(socket.lend(this.#message));
        else free.push(this.#one(how));
      }
      await Promise.all([...free, ...leases.map((lease) => lease.touch(touch))]);
      this.#message[sent % this.spec.size] = sent & 0xff;
    }
  }

  close(): void {
    this.socket.destroy();
  }
}

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
