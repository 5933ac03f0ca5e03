/**
 * A scripted peer made of octets: one end of an in-memory connection under virtual time, with our stack at
 * the other. It keeps no protocol rule by itself; what it sends is built by the naive encoder, what it gets
 * is read by the naive decoder.
 *
 * `rawInitiator`: our stack listens, the peer connects and sends what it likes. `rawResponder`: our stack
 * connects to the peer.
 *
 * @example
 * const { bench, peer } = await rawInitiator();
 * peer.request({ revision: 1 });
 * bench.settle();
 * peer.startup(); // our Reply, decoded
 * peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 1, to: 0n })]);
 * bench.settle();
 * peer.fpdus(); // what we sent after the Reply, decoded
 */
import type { ConnParam, CmConnection } from '../../src/cm/connection.ts';
import type {
  CmListener,
  ConnectOptions,
  ListenFailure,
  ListenOptions,
  PassiveConnection,
} from '../../src/cm/index.ts';
import type { CmEvent } from '../../src/cm/events.ts';
import type { ConnectionPolicy } from '../../src/cm/index.ts';
import { MemoryTransport, VirtualTime, type MemoryTransportOptions } from '../../src/simnet/memory.ts';
import type { Port, PortHandler } from '../../src/transport/port.ts';
import { decodeFpdus, decodeStartup, type NaiveFpdu, type NaiveStartupResult } from './naive/decoder.ts';
import { encodeFpdus, encodeStartup, type NaiveFpduInput, type NaiveStartupInput } from './naive/encoder.ts';
import type { NaiveSegment, NaiveStartup } from './naive/types.ts';
import { Side, type SideOptions } from './pair.ts';

const ADDRESS = { host: '10.0.0.2', port: 4711 };

/** How the connection ended, as the peer saw it. */
type PeerEnd = 'open' | 'fin' | 'closed' | 'reset';

/** The scripted end. */
export class RawPeer implements PortHandler {
  readonly #time: Pick<VirtualTime, 'now'>;
  readonly #port: Port;
  #received: number[] = [];
  /** Octets of each delivery and when it came: what travelled together. */
  readonly deliveries: { readonly at: number; readonly octets: number }[] = [];
  #end: PeerEnd = 'open';
  /** When the peer learnt of the end. */
  endedAt: number | undefined;
  #sent: NaiveStartup | null = null;
  /** Octets sent after our start-up frame. */
  #position = 0;

  constructor(time: Pick<VirtualTime, 'now'>, port: Port) {
    this.#time = time;
    this.#port = port;
    port.attach(this);
  }

  // ------------------------------------------------------------------------------------------- what it sends

  /** Any octets. They do not count towards the marker position. */
  sendRaw(bytes: Uint8Array | readonly number[]): void {
    this.#port.write([Uint8Array.from(bytes)], 1, () => undefined);
  }

  /** A Request; absent fields as {@link NaiveStartupInput} says. Returns its octets. */
  request(input: Omit<NaiveStartupInput, 'kind'> = {}): Uint8Array {
    return this.#startupFrame({ ...input, kind: 'request' });
  }

  /** A Reply. */
  reply(input: Omit<NaiveStartupInput, 'kind'> = {}): Uint8Array {
    return this.#startupFrame({ ...input, kind: 'reply' });
  }

  #startupFrame(input: NaiveStartupInput): Uint8Array {
    const bytes = encodeStartup(input);
    this.claim(bytes);
    this.sendRaw(bytes);
    return bytes;
  }

  /** Take a frame as sent, which the caller sends itself in the pieces it wants. */
  claim(frame: Uint8Array): void {
    this.#sent = decodeStartup(frame)?.frame ?? null;
  }

  /** FPDUs with markers and CRC as negotiated, faults as given. Returns their octets. */
  sendFpdus(fpdus: readonly (Uint8Array | NaiveFpduInput)[]): Uint8Array {
    const bytes = this.encode(fpdus);
    this.sendRaw(bytes);
    return bytes;
  }

  /** The octets that {@link sendFpdus} would send; the position moves on. */
  encode(fpdus: readonly (Uint8Array | NaiveFpduInput)[]): Uint8Array {
    const bytes = encodeFpdus(fpdus, {
      markers: this.startup().frame.markers,
      crc: this.crc,
      streamOffset: this.#position,
    });
    this.#position += bytes.length;
    return bytes;
  }

  end(): void {
    this.#port.end();
  }

  reset(): void {
    this.#port.reset();
  }

  pause(): void {
    this.#port.pause();
  }

  resume(): void {
    this.#port.resume();
  }

  // -------------------------------------------------------------------------------------------- what it gets

  /** Everything received. */
  get received(): Uint8Array {
    return Uint8Array.from(this.#received);
  }

  /** Whether the stack has ended the connection, and how: FIN only, FIN both ways, or reset. */
  get ending(): PeerEnd {
    return this.#end;
  }

  /** CRC is in use: either frame had C=1 (RFC 5044 7.1.1). */
  get crc(): boolean {
    return this.startup().frame.crc || (this.#sent?.crc ?? false);
  }

  /** The stack's start-up frame; throws if it has not sent a whole one. */
  startup(): NaiveStartupResult {
    const result = decodeStartup(this.received);
    if (result === null) throw new Error(`no start-up frame in the ${this.#received.length} octets received`);
    return result;
  }

  /** Octets received after the stack's start-up frame. */
  behind(): Uint8Array {
    return this.received.slice(this.startup().octets);
  }

  /** The FPDUs received, read with the markers we asked for and the CRC negotiated. */
  fpdus(): NaiveFpdu[] {
    return decodeFpdus(this.behind(), { markers: this.#sent?.markers ?? false, crc: this.crc });
  }

  /** Their segments. */
  segments(): NaiveSegment[] {
    return this.fpdus().map((fpdu) => {
      if (fpdu.segment === null) throw new Error('an FPDU without a DDP header was received');
      return fpdu.segment;
    });
  }

  /** Everything that a lawful sender would not have sent. */
  problems(): string[] {
    return [...this.startup().problems, ...this.fpdus().flatMap((fpdu) => fpdu.problems)];
  }

  /** The Terminates received, as `layer/etype/code` in hexadecimal. */
  terminates(): string[] {
    return this.segments().flatMap(({ terminate: t }) =>
      t === undefined
        ? []
        : [`${t.layer.toString(16)}/${t.etype.toString(16)}/${t.code.toString(16).padStart(2, '0')}`],
    );
  }

  onData(bytes: Uint8Array, start: number, end: number): void {
    this.deliveries.push({ at: this.#time.now(), octets: end - start });
    for (let i = start; i < end; i++) this.#received.push(bytes[i]!);
  }

  onEnd(): void {
    this.#end = 'fin';
    this.endedAt ??= this.#time.now();
  }

  onClose(error?: Error): void {
    this.#end = error === undefined ? 'closed' : 'reset';
    this.endedAt ??= this.#time.now();
  }
}

export interface RawOptions {
  readonly seed?: number;
  readonly policy?: Partial<ConnectionPolicy>;
  readonly param?: ConnParam;
  readonly side?: SideOptions;
  readonly network?: MemoryTransportOptions;
  readonly connect?: Partial<ConnectOptions>;
  readonly listen?: Partial<ListenOptions>;
  /** What our stack does with a Request; accepting onto a queue pair is the default. */
  readonly onRequest?: (connection: PassiveConnection, bench: RawBench) => void;
}

/** Our stack on one side, scripted peers on the other. */
export class RawBench {
  readonly time: VirtualTime = new VirtualTime();
  readonly network: MemoryTransport;
  readonly side: Side;
  readonly options: RawOptions;
  /** Every connection whose Request our listener has passed on, with its events. */
  readonly incoming: { readonly connection: PassiveConnection; readonly events: CmEvent[] }[] = [];
  /** Why connections failed before they became requests. */
  readonly failures: ListenFailure[] = [];
  listener: CmListener | null = null;
  #qpUsed = false;

  constructor(options: RawOptions) {
    this.options = options;
    this.network = new MemoryTransport(this.time, { latency: 1, ...options.network });
    this.side = new Side('stack', options.seed ?? 7, this.time, this.network, options.side ?? {});
  }

  /** Lets pending events happen: 20 ms, below every time-out of the default policy. */
  settle(ms = 20): this {
    this.time.advance(ms);
    return this;
  }

  /** Until nothing is left, time-outs included. */
  run(): this {
    this.time.run();
    return this;
  }

  /** Time for a connection to be made and for a start-up frame to cross. */
  #connecting(): void {
    this.settle(2 + 3 * (this.options.network?.latency ?? 1));
  }

  async listen(): Promise<void> {
    const { policy, listen, onRequest, param } = this.options;
    const onFailure = (failure: ListenFailure): void => void this.failures.push(failure);
    const listening = this.side.cm.listen(
      { ...ADDRESS, onFailure, ...(policy === undefined ? {} : { policy }), ...listen },
      (connection) => {
        const events: CmEvent[] = [];
        this.incoming.push({ connection, events });
        connection.setHandler((event) => {
          events.push(event);
          this.side.events.push(event);
        });
        this.side.connection = connection;
        if (onRequest !== undefined) {
          onRequest(connection, this);
          return;
        }
        connection.accept(this.#qpUsed ? this.side.createQp() : this.side.qp, param ?? {});
        this.#qpUsed = true;
      },
    );
    this.settle(0);
    this.listener = await listening;
  }

  /** A scripted peer connects to our listener, from this address. */
  dial(localAddress?: string): RawPeer {
    let peer: RawPeer | undefined;
    const from = localAddress === undefined ? {} : { localAddress };
    this.network.connect({ ...ADDRESS, ...from }, (port, error) => {
      if (port === undefined) throw error ?? new Error('the peer could not connect');
      peer = new RawPeer(this.time, port);
    });
    this.#connecting();
    if (peer === undefined) throw new Error('the peer could not connect');
    return peer;
  }

  /** Our stack connects to a scripted peer. */
  call(): { peer: RawPeer; connection: CmConnection } {
    const { policy, connect, param } = this.options;
    let peer: RawPeer | undefined;
    this.network.listen(
      { ...ADDRESS },
      (port) => (peer = new RawPeer(this.time, port)),
      () => undefined,
    );
    const { side } = this;
    const connection = side.cm.connect(side.qp, {
      ...ADDRESS,
      ...(policy === undefined ? {} : { policy }),
      ...param,
      ...connect,
    });
    side.watch(connection);
    this.#connecting();
    if (peer === undefined) throw new Error('our stack did not connect');
    return { peer, connection };
  }
}

/** A bench on which our stack listens and one peer has connected, silent so far. */
export async function rawInitiator(options: RawOptions = {}): Promise<{ bench: RawBench; peer: RawPeer }> {
  const bench = new RawBench(options);
  await bench.listen();
  return { bench, peer: bench.dial() };
}

/** A bench on which our stack has connected to the peer and sent its Request. */
export function rawResponder(options: RawOptions = {}): {
  bench: RawBench;
  peer: RawPeer;
  connection: CmConnection;
} {
  const bench = new RawBench(options);
  return { bench, ...bench.call() };
}

/** The enhanced octets of an ordinary peer: peer-to-peer, Write and Read offered, depths 4. */
export const PEER_ENHANCED = { a: true, b: false, c: true, d: true, ird: 4, ord: 4 } as const;

/**
 * As {@link rawInitiator}, with start-up done: revision 1, or 2 if `enhanced` is given, CRC on. No FPDU has
 * been sent.
 */
export async function rawInitiatorUp(
  options: RawOptions = {},
  request: Omit<NaiveStartupInput, 'kind'> = {},
): Promise<{ bench: RawBench; peer: RawPeer }> {
  const { bench, peer } = await rawInitiator(options);
  peer.request({ revision: request.enhanced === undefined ? 1 : 2, ...request });
  bench.settle();
  return { bench, peer };
}

/** As {@link rawResponder}, with start-up done by a plain revision 1 Reply by default. */
export function rawResponderUp(
  options: RawOptions = {},
  reply: Omit<NaiveStartupInput, 'kind'> = {},
): { bench: RawBench; peer: RawPeer; connection: CmConnection } {
  const up = rawResponder(options);
  up.peer.reply({ revision: reply.enhanced === undefined ? 1 : 2, ...reply });
  up.bench.settle();
  return up;
}
