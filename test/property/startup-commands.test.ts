/**
 * Start-up at random, in both roles: a peer whose frames are mostly good and sometimes not, what it sends
 * after them, and a program that answers, confirms, changes its mind or leaves at any moment. Nothing throws
 * but misuse, every connection ends, every request ends once and at most one reports an own error,
 * nothing is read or written that a right forbids, and the listener is as free as before (RFC 5044 7.1, RFC
 * 6581, verbs draft 6.2).
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TERM } from '../../src/base/terminate-codes.ts';
import type { ActiveConnection, CmConnection, PassiveConnection } from '../../src/cm/index.ts';
import {
  encodeAtomicRequest,
  encodeFpdus,
  encodeReadRequest,
  encodeStartup,
  encodeTerminate,
  taggedUlpdu,
  untaggedUlpdu,
} from '../support/naive/encoder.ts';
import { RawBench, type RawPeer } from '../support/raw-peer.ts';

const GUARD = 0xe7;

const rarely = <T>(usual: T, others: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ arbitrary: fc.constant(usual), weight: 8 }, { arbitrary: others, weight: 1 });

const depth = fc.constantFrom(0, 1, 4, 4, 4, 9, 0x3ffe, 0x3fff);
const frame = fc.record({
  enhanced: fc.option(
    fc.record({ a: fc.boolean(), b: fc.boolean(), c: fc.boolean(), d: fc.boolean(), ird: depth, ord: depth }),
    { freq: 4 },
  ),
  crc: fc.boolean(),
  reject: rarely(false, fc.constant(true)),
  revision: rarely(0, fc.integer({ min: 0, max: 4 })),
  privateData: fc.uint8Array({ maxLength: 40 }),
  /** An octet that is another one, by its place and its bits. */
  flip: rarely(
    null,
    fc.record({ at: fc.nat(60), bits: fc.integer({ min: 1, max: 255 }) }) as fc.Arbitrary<{
      at: number;
      bits: number;
    } | null>,
  ),
  /** The frame comes in two pieces, cut here. */
  cut: fc.nat(60),
});
type Frame = typeof frame extends fc.Arbitrary<infer T> ? T : never;

const WORK = [
  'send-request',
  'read-request',
  'invalidate',
  'gone',
  'write',
  'rtr',
  'read',
  'atomic',
  'send',
] as const;
const ENDS = [
  'refuse',
  'disconnect',
  'abort',
  'error',
  'terminate',
  'say-terminate',
  'terminated',
  'bad-crc',
  'octets',
  'fin',
  'rst',
] as const;
const step = fc.record({
  what: fc.oneof(
    { arbitrary: fc.constantFrom(...WORK), weight: 3 },
    { arbitrary: fc.constantFrom('frame', 'answer', ...ENDS), weight: 1 },
  ),
  wait: fc.constantFrom(0, 0, 1, 3),
});
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;
/** Mostly the peer speaks and is answered; what else there is comes before, between or after. */
const steps = fc
  .tuple(
    fc.array(step, { maxLength: 2 }),
    rarely(3, fc.constant(0)),
    fc.array(step, { maxLength: 3 }),
    rarely(3, fc.constant(0)),
    fc.array(step, { maxLength: 8 }),
  )
  .map(([before, heard, between, told, after]): readonly Step[] => [
    ...before,
    { what: 'frame', wait: heard },
    ...between,
    { what: 'answer', wait: told },
    ...after,
  ]);

const setup = fc.record({
  active: fc.boolean(),
  confirm: fc.boolean(),
  relaxed: fc.boolean(),
  reads: fc.boolean(),
  maxIrd: fc.constantFrom(8, 128),
  frame,
  steps,
});
type Setup = typeof setup extends fc.Arbitrary<infer T> ? T : never;

class World {
  readonly bench: RawBench;
  readonly #setup: Setup;
  peer!: RawPeer;
  #connection: CmConnection | null = null;
  readonly posted: number[] = [];
  readonly memory: Uint8Array = new Uint8Array(64 + 16).fill(GUARD);
  readonly region: ReturnType<RawBench['side']['register']>;
  /** Queue numbers 0 and 1 of the peer. */
  readonly #msn = [1, 1];
  #mangled = false;
  #said = false;

  constructor(setup: Setup) {
    this.#setup = setup;
    const { relaxed, maxIrd, reads, confirm } = setup;
    this.bench = new RawBench({
      policy: {
        responder: relaxed ? 'relaxed' : 'strict',
        ird: 4,
        ord: 4,
        maxIrd,
        silentPeerNudge: 0,
        closeTimeout: 200,
        requestTimeout: 50,
        replyTimeout: 50,
      },
      side: { qp: { inboundRead: reads } },
      connect: { confirm },
      onRequest: () => undefined,
    });
    this.region = this.bench.side.register(this.memory.subarray(32, 48));
  }

  get connection(): CmConnection | null {
    return this.#connection ?? this.bench.incoming[0]?.connection ?? null;
  }

  async start(): Promise<void> {
    if (this.#setup.active) {
      const { peer, connection } = this.bench.call();
      this.peer = peer;
      this.#connection = connection;
    } else {
      await this.bench.listen();
      this.peer = this.bench.dial();
    }
    for (let wrId = 1000; wrId < 1003; wrId++) this.post(wrId, () => this.bench.side.qp.postRecv({ wrId }));
  }

  post(wrId: number, call: () => void): void {
    call();
    this.posted.push(wrId);
  }

  run(steps: readonly Step[]): void {
    for (const { what, wait } of steps) {
      try {
        this.#do(what);
      } catch (error) {
        // the program's own mistake
        expect((error as { code?: string }).code, (error as Error).stack).toBe('ERR_INVALID_STATE');
      }
      if (wait > 0) this.bench.settle(wait);
    }
  }

  #do(what: Step['what']): void {
    const { connection } = this;
    const { qp } = this.bench.side;
    const wrId = this.posted.length;
    switch (what) {
      case 'answer':
        if (this.#setup.active) (connection as ActiveConnection).establish();
        else (connection as PassiveConnection | null)?.accept(qp);
        break;
      case 'refuse':
        if (!this.#setup.active) (connection as PassiveConnection | null)?.reject();
        break;
      case 'disconnect':
      case 'abort':
        connection?.[what]();
        break;
      case 'say-terminate':
        connection?.terminate(TERM.MPA_LOCAL_CATASTROPHIC);
        break;
      case 'error':
      case 'terminate':
        qp.modify({ state: what });
        break;
      case 'send-request':
        this.post(wrId, () => qp.postSend({ wrId, opcode: 'send', inline: Uint8Array.of(1, 2, 3) }));
        break;
      case 'read-request':
        this.post(wrId, () => qp.postSend({ wrId, opcode: 'rdma-read', rkey: 1, remoteAddr: 0 }));
        break;
      case 'gone':
      case 'invalidate': {
        const target = this.bench.side.register(8);
        this.post(wrId, () => qp.postSend({ wrId, opcode: 'local-invalidate', target }));
        if (what === 'gone') target.deregister(); // it will fail
        break;
      }
      default:
        if (this.peer.ending !== 'reset') this.#doAsPeer(what);
    }
  }

  #doAsPeer(what: Step['what']): void {
    const { peer } = this;
    const stag = this.region.rkey;
    switch (what) {
      case 'frame':
        this.#speak(this.#setup.frame);
        break;
      case 'write':
        this.#fpdu(taggedUlpdu({ opcode: 0, stag: 1, to: 0n }));
        break;
      case 'rtr':
        this.#fpdu(
          untaggedUlpdu(
            { opcode: 1, qn: 1, msn: this.#msn[1]!++ },
            encodeReadRequest({ sinkStag: 0, sinkTo: 0n, size: 0, sourceStag: 0, sourceTo: 0n }),
          ),
        );
        break;
      case 'read':
        this.#fpdu(
          untaggedUlpdu(
            { opcode: 1, qn: 1, msn: this.#msn[1]!++ },
            encodeReadRequest({ sinkStag: 5, sinkTo: 0n, size: 8, sourceStag: stag, sourceTo: 0n }),
          ),
        );
        break;
      case 'atomic':
        this.#fpdu(
          untaggedUlpdu(
            { opcode: 10, qn: 1, msn: this.#msn[1]!++ },
            encodeAtomicRequest({
              reserved: 0,
              aopcode: 0,
              requestId: 1,
              remoteStag: stag,
              remoteTo: 8n,
              addOrSwap: 1n,
              addOrSwapMask: 0n,
              compare: 0n,
              compareMask: 0n,
            }),
          ),
        );
        break;
      case 'send':
        this.#fpdu(untaggedUlpdu({ opcode: 3, qn: 0, msn: this.#msn[0]!++ }, new Uint8Array(0)));
        break;
      case 'terminated':
        this.#fpdu(
          untaggedUlpdu(
            { opcode: 7, qn: 2, msn: 1 },
            encodeTerminate({ layer: 1, etype: 1, code: 0, m: false, d: false, r: false, reserved: 0 }),
          ),
        );
        break;
      case 'bad-crc':
        peer.sendRaw(
          encodeFpdus([{ ulpdu: taggedUlpdu({ opcode: 0, stag: 1, to: 0n }), crcFlip: 1 }], {
            markers: false,
            crc: true,
          }),
        );
        break;
      case 'octets':
        peer.sendRaw([0, 20, 1, 2, 3, 4, 5]);
        break;
      case 'fin':
        peer.end();
        break;
      case 'rst':
        peer.reset();
        break;
      default: // the program's
    }
  }

  /** CRC is in use whatever the peer's C says, for ours is set; markers nobody asks for. */
  #fpdu(ulpdu: Uint8Array): void {
    this.peer.sendRaw(encodeFpdus([ulpdu], { markers: false, crc: true }));
  }

  #speak({ enhanced, revision, flip, cut, ...rest }: Frame): void {
    const octets = encodeStartup({
      kind: this.#setup.active ? 'reply' : 'request',
      ...rest,
      revision: revision === 0 ? (enhanced === null ? 1 : 2) : revision,
      ...(enhanced === null ? {} : { enhanced }),
    });
    this.#mangled ||= this.#said || flip !== null;
    if (!this.#said) this.peer.claim(octets);
    this.#said = true;
    if (flip !== null) octets[flip.at % octets.length]! ^= flip.bits;
    this.peer.sendRaw(octets.slice(0, cut % octets.length));
    this.peer.sendRaw(octets.slice(cut % octets.length));
  }

  judge(): void {
    const { bench, peer } = this;
    const { side } = bench;
    if (!['closed', 'reset'].includes(peer.ending)) peer.end();
    this.connection?.disconnect();
    bench.run();
    if (side.qp.state === 'idle') side.qp.modify({ state: 'error' });
    bench.run();
    expect(bench.time.pending).toBe(0);
    expect(side.qp.state).toBe('error');
    const ended = [...side.sent(), ...side.received()];
    expect(ended.map((wc) => wc.wrId).toSorted((a, b) => Number(a) - Number(b))).toEqual(
      this.posted.toSorted((a, b) => a - b),
    );
    expect(
      ended.filter(({ status }) => status !== 'success' && status !== 'flushed').length,
    ).toBeLessThanOrEqual(1); // VERBS-057
    const last = side.events.filter(({ type }) => type === 'disconnected');
    expect([last.length, side.events.at(-1)]).toEqual(
      this.connection === null ? [0, undefined] : [1, last[0]],
    );
    if (bench.listener !== null)
      expect([bench.listener.pending, bench.listener.limits.connections]).toEqual([0, 0]);
    expect(side.cm.connections.size).toBe(0);
    if (!this.#setup.reads) expect(this.memory.every((octet) => octet === GUARD)).toBe(true); // VERBS-142
    expect(
      [...this.memory.subarray(0, 32), ...this.memory.subarray(48)].every((octet) => octet === GUARD),
    ).toBe(true);
    if (this.#mangled || !this.#said || peer.received.length < 20) return;
    expect(peer.problems()).toEqual([]);
    if (!this.#setup.reads)
      expect(
        peer.segments().some(({ opcode, payload }) => opcode === 11 || (opcode === 2 && payload.length > 0)),
      ).toBe(false); // VERBS-075
  }
}

describe('start-up and what may happen during it', () => {
  it('always ends in order (MPA-035, ENH-022/040/046, SEC-033, VERBS-057/075)', async () => {
    let established = 0;
    let confirmed = 0;
    await fc.assert(
      fc.asyncProperty(setup, async (drawn) => {
        const world = new World(drawn);
        await world.start();
        world.run(drawn.steps);
        world.judge();
        const types = world.bench.side.events.map(({ type }) => type);
        if (types.includes('established')) established++;
        if (types.includes('connect-response')) confirmed++;
      }),
      { numRuns: 1000 },
    );
    expect(established).toBeGreaterThan(100);
    expect(confirmed).toBeGreaterThan(30);
  });
});
