/**
 * The scripted peer of `support/raw-peer.ts` for DDP and RDMAP: start-up done, short names for segments,
 * guarded memory on the tested side, and what a fault must lead to, judged by the naive decoder.
 */
import { expect } from 'vitest';
import type { VirtualTime } from '../../src/simnet/memory.ts';
import type { MemoryRegion, WorkCompletion } from '../../src/verbs/index.ts';
import type { NaiveFpdu, NaiveSegment } from '../support/naive/decoder.ts';
import {
  encodeReadRequest,
  taggedUlpdu,
  untaggedUlpdu,
  type NaiveFpduInput,
} from '../support/naive/encoder.ts';
import type { Side } from '../support/pair.ts';
import { RawBench, type RawOptions, type RawPeer } from '../support/raw-peer.ts';

/** Opcodes, by their numbers in RFC 5040 figure 4 and RFC 7306 figure 3. */
export const OP = {
  write: 0,
  readRequest: 1,
  readResponse: 2,
  send: 3,
  sendInv: 4,
  sendSe: 5,
  sendSeInv: 6,
  terminate: 7,
  imm: 8,
  immSe: 9,
  atomicRequest: 10,
  atomicResponse: 11,
} as const;

const GUARD = 0xe7;
const GUARD_OCTETS = 64;

/** A registered region with untouchable octets in front of it and after it. */
export interface Guarded {
  readonly mr: MemoryRegion;
  /** The whole memory, guards included. */
  readonly memory: Uint8Array;
  readonly before: Uint8Array;
}

export function pattern(octets: number, seed = 3): Uint8Array {
  return Uint8Array.from({ length: octets }, (_, i) => (i * 7 + (i >>> 8) * 13 + seed) & 0xff);
}

interface ScriptOptions extends RawOptions {
  /** Which part the script plays in start-up. Default initiator. */
  readonly role?: 'initiator' | 'responder';
  /** As initiator send a zero-length Write first, which opens the responder's direction. Default true. */
  readonly open?: boolean;
  readonly markers?: boolean;
  readonly crc?: boolean;
  readonly revision?: number;
}

export class Script {
  readonly bench: RawBench;
  readonly time: VirtualTime;
  readonly side: Side;
  peer!: RawPeer;
  readonly guarded: Guarded[] = [];
  readonly #options: ScriptOptions;

  constructor(options: ScriptOptions) {
    const { markers = false, crc = true, role = 'initiator' } = options;
    const policy = {
      markers,
      crc: crc ? 'preferred' : 'off',
      silentPeerNudge: 0,
      mpaRevision: role === 'responder' ? 1 : 2,
      ...options.policy,
    } as const;
    this.#options = options;
    this.bench = new RawBench({ ...options, policy });
    this.time = this.bench.time;
    this.side = this.bench.side;
  }

  async start(): Promise<this> {
    const { role = 'initiator', markers = false, crc = true, revision = 1, open = true } = this.#options;
    if (role === 'initiator') {
      await this.bench.listen();
      this.peer = this.bench.dial();
      this.peer.request({ markers, crc, revision });
      this.settle(20);
      if (open) this.send(write(0, 0n)).settle(20);
    } else {
      this.peer = this.bench.call().peer;
      this.peer.reply({ markers, crc, revision });
      this.settle(20);
    }
    return this;
  }

  /** ULPDUs, each in an FPDU, all in one write. */
  send(...fpdus: (Uint8Array | NaiveFpduInput)[]): this {
    this.peer.sendFpdus(fpdus);
    return this;
  }

  end(): this {
    this.peer.end();
    return this;
  }

  /** A while of virtual time, below every time-out. */
  settle(ms = 100): this {
    this.bench.settle(ms);
    return this;
  }

  /** Until nothing can happen, time-outs included. */
  finish(): this {
    this.time.run(100_000);
    return this;
  }

  /** The FPDUs the tested side has sent, none of which may have a fault. */
  fpdus(): NaiveFpdu[] {
    expect(this.peer.problems()).toEqual([]);
    return this.peer.fpdus();
  }

  /** Their segments. */
  segments(): NaiveSegment[] {
    return this.fpdus().map((fpdu) => fpdu.segment!);
  }

  /** Segments with this opcode. */
  sent(opcode: number): NaiveSegment[] {
    return this.segments().filter((segment) => segment.opcode === opcode);
  }

  /** Register guarded memory on the tested side. */
  region(octets: number, access?: number, iova: bigint | number = 0, content = 0): Guarded {
    const memory = new Uint8Array(octets + 2 * GUARD_OCTETS).fill(GUARD);
    const inner = memory.subarray(GUARD_OCTETS, GUARD_OCTETS + octets);
    inner.fill(content);
    const mr =
      access === undefined
        ? this.side.register(inner, undefined, iova)
        : this.side.register(inner, access, iova);
    const guarded = { mr, memory, before: memory.slice() };
    this.guarded.push(guarded);
    return guarded;
  }

  /** Post `count` receives over one guarded region, `octets` each. */
  receives(count: number, octets: number): Guarded {
    const region = this.region(count * octets);
    for (let i = 0; i < count; i++) {
      this.side.qp.postRecv({
        wrId: 1000 + i,
        sges: [{ mr: region.mr, offset: i * octets, length: octets }],
      });
    }
    return region;
  }

  /** Receive completions so far, in order. */
  received(): WorkCompletion[] {
    return this.side.received();
  }

  /** No guard octet of any region has changed. */
  guardsIntact(): void {
    for (const { memory } of this.guarded) {
      expect(memory.subarray(0, GUARD_OCTETS).every((octet) => octet === GUARD)).toBe(true);
      expect(memory.subarray(memory.length - GUARD_OCTETS).every((octet) => octet === GUARD)).toBe(true);
    }
  }

  /** Nothing of any region has changed since it was registered. */
  memoryUntouched(): void {
    for (const { memory, before } of this.guarded) expect(memory).toEqual(before);
  }
}

export function scripted(options: ScriptOptions = {}): Promise<Script> {
  return new Script(options).start();
}

type Extra = Partial<{
  last: boolean;
  dv: number;
  ddpReserved: number;
  rv: number;
  rdmapReserved: number;
  invalidateStag: number;
  mo: number;
  opcode: number;
  qn: number;
}>;

const NOTHING = new Uint8Array(0);

export function write(
  stag: number,
  to: bigint,
  payload: Uint8Array = NOTHING,
  extra: Extra = {},
): Uint8Array {
  return taggedUlpdu({ opcode: OP.write, stag, to, ...extra }, payload);
}

export function readResponse(
  stag: number,
  to: bigint,
  payload: Uint8Array = NOTHING,
  extra: Extra = {},
): Uint8Array {
  return taggedUlpdu({ opcode: OP.readResponse, stag, to, ...extra }, payload);
}

export function send(msn: number, payload: Uint8Array = NOTHING, extra: Extra = {}): Uint8Array {
  return untaggedUlpdu({ opcode: OP.send, qn: 0, msn, ...extra }, payload);
}

interface ReadFields {
  readonly sinkStag?: number;
  readonly sinkTo?: bigint;
  readonly size: number;
  readonly sourceStag: number;
  readonly sourceTo?: bigint;
}

export function readRequest(msn: number, fields: ReadFields, extra: Extra = {}): Uint8Array {
  const body = encodeReadRequest({ sinkStag: 0xaabb_cc00, sinkTo: 0x10000n, sourceTo: 0n, ...fields });
  return untaggedUlpdu({ opcode: OP.readRequest, qn: 1, msn, ...extra }, body);
}

/** What a fault must lead to. */
interface Expected {
  readonly layer: number;
  readonly etype: number;
  readonly code: number;
  /** The ULPDU in error: M and D are expected with its length and header. Absent: no header, no length. */
  readonly blamed?: Uint8Array;
  /** The RDMAP header is expected too; its 28 octets, or those of `blamed`. */
  readonly readHeader?: Uint8Array | true;
}

/**
 * Exactly one Terminate, the last thing sent, as `expected`; then FIN from the tested side; its events and
 * state fit.
 */
export function expectTerminate(script: Script, expected: Expected): void {
  const fpdus = script.fpdus();
  const { ulpdu, segment } = fpdus.at(-1)!;
  expect(fpdus.filter((fpdu) => fpdu.segment!.opcode === OP.terminate).length).toBe(1);
  const { terminate } = segment!;
  expect(terminate).toBeDefined();
  const name = (t: { layer: number; etype: number; code: number }): string =>
    `${t.layer}/${t.etype}/${t.code.toString(16).padStart(2, '0')}`;
  expect(name(terminate!)).toBe(name(expected));
  const { blamed, readHeader } = expected;
  const header = blamed === undefined ? NOTHING : blamed.slice(0, blamed[0]! >= 0x80 ? 14 : 18);
  const body = readHeader === undefined ? NOTHING : readHeader === true ? blamed!.slice(18, 46) : readHeader;
  expect({ m: terminate!.m, d: terminate!.d, r: terminate!.r }).toEqual({
    m: blamed !== undefined,
    d: blamed !== undefined,
    r: readHeader !== undefined,
  });
  expect(terminate!.segmentLength).toBe(blamed?.length);
  expect(ulpdu.slice(blamed === undefined ? 22 : 24)).toEqual(Uint8Array.from([...header, ...body]));
  expect(['fin', 'closed']).toContain(script.peer.ending);
  const { side } = script;
  expect(side.event('terminate')?.terminate).toMatchObject({
    origin: 'local',
    layer: expected.layer,
    type: expected.etype,
    code: expected.code,
  });
  expect(side.asyncEvents.filter((event) => event.type === 'terminate-sent').length).toBe(1);
  expect(['terminate', 'error']).toContain(side.qp.state);
}
