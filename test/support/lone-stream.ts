/**
 * One RDMA stream over MPA by itself, without an engine: a test gives it each input and takes each output, so
 * that it can look between two of them. Its peer is made of octets of the naive encoder, and its queue pair
 * has no connection, so that work may be posted in any state.
 */
import { NO_BYTES } from '../../src/base/copy.ts';
import { seededRandom } from '../../src/base/random.ts';
import type { Role } from '../../src/llp/startup.ts';
import { MpaLowerLayer } from '../../src/mpa/lower-layer.ts';
import { DEFAULT_POLICY, resolvePolicy, type ConnectionPolicy } from '../../src/mpa/policy.ts';
import { RdmaStream } from '../../src/stream/stream.ts';
import type { StreamEvent } from '../../src/stream/types.ts';
import { ACCESS, Device, type MemoryRegion, type QueuePair } from '../../src/verbs/index.ts';
import { decodeFpdus } from './naive/decoder.ts';
import { encodeFpdus, encodeStartup, type NaiveStartupInput } from './naive/encoder.ts';
import type { NaiveSegment } from './naive/types.ts';

const EMSS = 1460;
const ALL = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ;
const PLAIN = { markers: false, crc: true } as const;

interface LoneOptions {
  readonly role: Role;
  /** Revision 1 by default, so that the peer's frame needs no enhanced part. */
  readonly policy?: Partial<ConnectionPolicy>;
  readonly confirm?: boolean;
  /** Reads that the queue pair may have outstanding. */
  readonly ord?: number;
}

export class LoneStream {
  readonly qp: QueuePair;
  readonly stream: RdmaStream;
  readonly #role: Role;
  readonly #device = new Device({ random: seededRandom(11), defer: () => undefined });
  /** Octets of FPDUs that the peer has sent. */
  #position = 0;

  constructor({ role, policy = {}, confirm = false, ord = 1024 }: LoneOptions) {
    const pd = this.#device.allocatePd();
    const cq = this.#device.createCq(64);
    this.qp = pd.createQp({ sendCq: cq, recvCq: cq, ord });
    this.#role = role;
    const config = {
      role,
      policy: resolvePolicy({ mpaRevision: 1, silentPeerNudge: 0, ...policy }, DEFAULT_POLICY),
      emss: EMSS,
      resources: this.#device.resources,
      confirm,
    };
    this.stream = new RdmaStream(config, new MpaLowerLayer(config));
  }

  /** Waits for the peer's start-up frame; our Request is out. */
  started(): this {
    this.stream.start(0, this.#role === 'initiator' ? this.qp : null, NO_BYTES, {});
    this.send(0);
    return this;
  }

  /** The peer's start-up frame, which is in order but for these fields. */
  frame(fields: Omit<NaiveStartupInput, 'kind'> = {}): Uint8Array {
    return encodeStartup({ ...fields, kind: this.#role === 'initiator' ? 'reply' : 'request' });
  }

  /** The peer's frame has come too. */
  answered(fields: Omit<NaiveStartupInput, 'kind'> = {}): this {
    this.started();
    this.give(this.frame(fields), 0);
    return this;
  }

  /** In full operation, with no event left and nothing under way. */
  operational(): this {
    this.answered();
    if (this.#role === 'responder') this.stream.accept(0, this.qp, NO_BYTES, {});
    this.send(0);
    this.events();
    return this;
  }

  region(octets: number): MemoryRegion {
    return this.qp.pd.registerMemory(new Uint8Array(octets), ALL);
  }

  // ------------------------------------------------------------------------------------------------- inputs

  /** Octets of the peer. */
  give(bytes: Uint8Array, now: number): void {
    this.stream.handleBytes(bytes, 0, bytes.length, now);
  }

  /** The octets of these ULPDUs, in FPDUs. */
  fpdus(...ulpdus: readonly Uint8Array[]): Uint8Array {
    const bytes = encodeFpdus(ulpdus, { ...PLAIN, streamOffset: this.#position });
    this.#position += bytes.length;
    return bytes;
  }

  // ------------------------------------------------------------------------------------------------ outputs

  /** The next write, which is then under way; null if there is none. */
  write(): Uint8Array | null {
    const out = this.stream.pollTransmit();
    return out === null ? null : Uint8Array.from(Buffer.concat(out.chunks.slice(0, out.count)));
  }

  /** All writes, each confirmed at this time. Returns their octets. */
  send(now: number): Uint8Array {
    const all: Uint8Array[] = [];
    for (let write = this.write(); write !== null && all.length < 1000; write = this.write()) {
      all.push(write);
      this.stream.handleTransmitted(true, now);
    }
    return Uint8Array.from(Buffer.concat(all));
  }

  /** The segments of one write. */
  static segments(write: Uint8Array | null): NaiveSegment[] {
    return decodeFpdus(write ?? NO_BYTES, PLAIN).map(({ segment }) => segment!);
  }

  events(): StreamEvent[] {
    const all: StreamEvent[] = [];
    for (let event = this.stream.pollEvent(); event !== null; event = this.stream.pollEvent())
      all.push(event);
    return all;
  }
}
