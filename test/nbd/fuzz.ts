/**
 * A fuzzer of the block device: both handshakes, both transmission phases, and both ends of queue pairs. As a
 * command: `npx tsx test/nbd/fuzz.ts [INPUTS] [SEED] [PHASE]...`, by default 1000000 inputs for each of
 * PHASES. An input is valid frames with bytes changed, dropped, repeated or set to boundary values. What must
 * hold: nothing throws but errors of ours, every promise settles, devices get only ranges that they have, and
 * no byte lands outside of a caller's memory.
 */
import { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { IwarpError } from '../../src/index.ts';
import { connectStream, createServer, type BlockDevice } from '../../src/nbd/index.ts';
import { fuzzQpClient, fuzzQpServer } from './fuzz-qp.ts';
import {
  decodeDirectRequest,
  decodeGrant,
  decodeRefusal,
  decodeSetup,
  decodeSimpleReply,
} from '../../src/nbd/qp-wire.ts';
import {
  encodeChunkError,
  encodeChunkHeader,
  encodeClientFlags,
  encodeExtents,
  encodeGo,
  encodeGreeting,
  encodeInfoBlockSize,
  encodeInfoExport,
  encodeMetaContext,
  encodeMetaQueries,
  encodeOption,
  encodeOptionReply,
  encodeRequest,
  encodeServerName,
  encodeSimpleReply,
  viewOf,
} from '../../src/nbd/wire.ts';

const SIZE = 4096n;

/** A small generator whose seed names every input. */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0 || 1;
  }

  below(n: number): number {
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    return (this.#state >>> 0) % n;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }
}

const BOUNDARIES = [0, 1, 7, 8, 27, 28, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];

/** Zero to three changes of the bytes. */
export function mutate(chance: Chance, frame: Uint8Array): Uint8Array {
  let bytes = Uint8Array.from(frame);
  for (let changes = chance.below(4); changes > 0 && bytes.length > 0; changes--) {
    const at = chance.below(bytes.length);
    const kind = chance.below(6);
    if (kind === 0) bytes[at]! ^= 1 << chance.below(8);
    else if (kind === 1) bytes[at] = chance.below(256);
    else if (kind === 2) bytes = bytes.slice(0, at);
    else if (kind === 3) bytes = Uint8Array.from([...bytes.subarray(0, at), ...bytes.subarray(at >> 1)]);
    else if (bytes.length >= 4)
      viewOf(bytes).setUint32(Math.min(at & ~1, bytes.length - 4), chance.pick(BOUNDARIES));
  }
  return bytes;
}

export function inputOf(chance: Chance, frames: readonly Uint8Array[], most: number): Uint8Array {
  const parts = Array.from({ length: 1 + chance.below(most) }, () => chance.pick(frames));
  return Buffer.concat(parts.map((part) => mutate(chance, part)));
}

/** A stream whose far end is a script; its output goes nowhere. */
class Scripted extends Duplex {
  constructor() {
    super({ read: () => undefined, write: (_chunk, _encoding, done) => done(), final: (done) => done() });
  }

  play(chance: Chance, bytes: Uint8Array): void {
    const cut = chance.below(3) === 0 ? 1 + chance.below(40) : bytes.length;
    for (let at = 0; at < bytes.length; at += cut) this.push(bytes.subarray(at, at + cut));
    this.push(null);
  }
}

const request = (command: number, offset: bigint, length: number, flags = 0, cookie = 1): Buffer => {
  const bytes = Buffer.alloc(28 + (command === 1 ? length : 0), 7);
  const header = { command, flags, cookieHi: 0, cookieLo: cookie, offset, length };
  encodeRequest(viewOf(bytes), 0, header);
  return bytes;
};

export const OPTIONS: readonly Buffer[] = [
  encodeOption(1, Buffer.from('disk')),
  encodeOption(2),
  encodeOption(3),
  encodeOption(5),
  encodeOption(6, encodeGo('disk', [0, 1, 3])),
  encodeOption(7, encodeGo('disk', [3])),
  encodeOption(8),
  encodeOption(9, encodeMetaQueries('disk', [])),
  encodeOption(10, encodeMetaQueries('disk', ['base:allocation'])),
  encodeOption(77, Buffer.alloc(100)),
];
export const REQUESTS: readonly Buffer[] = [
  request(0, 0n, 512),
  request(1, 512n, 64),
  request(2, 0n, 0),
  request(3, 0n, 0),
  request(4, 0n, 512),
  request(6, 0n, 512, 3),
  request(7, 0n, 4096, 8),
  request(0, SIZE - 1n, 2),
  request(0, (1n << 63n) - 1n, 512),
  request(1, (1n << 64n) - 1n, 8),
];
export const SETTLED: Buffer = Buffer.concat([
  encodeClientFlags(3),
  OPTIONS[6]!,
  encodeOption(10, encodeMetaQueries('disk', ['base:allocation'])),
  OPTIONS[5]!,
]);

/** A device that objects to any range that it does not have. */
export function strict(): BlockDevice {
  const inside = async (offset: bigint, length: number): Promise<void> => {
    if (offset >= 0n && length >= 1 && offset + BigInt(length) <= SIZE) return;
    outside = new Error(`the device was asked for a range that it does not have: ${offset} ${length}`);
  };
  return {
    size: SIZE,
    blocks: { minimum: 1, preferred: 512, maximum: 1024 },
    read: (into, offset) => inside(offset, into.length),
    write: (from, offset) => inside(offset, from.length),
    flush: async () => undefined,
    trim: inside,
    zero: inside,
    extents: async function* (offset, length) {
      await inside(offset, length);
      yield { length, hole: true, zero: true };
    },
  };
}

/** A range that a device was asked for and does not have. */
export let outside: Error | undefined;
async function fuzzServer(chance: Chance, handshake: boolean): Promise<void> {
  const server = createServer({ exports: { disk: strict() } });
  const stream = new Scripted();
  const served = server.serve(stream);
  stream.play(
    chance,
    handshake
      ? Buffer.concat([mutate(chance, encodeClientFlags(3)), inputOf(chance, [...OPTIONS, ...REQUESTS], 6)])
      : Buffer.concat([SETTLED, inputOf(chance, REQUESTS, 8)]),
  );
  await served;
}

const INFO_EXPORT = encodeInfoExport(SIZE, 0b1_0110_1101 | 0x80);
const REPLIES = [3, 6, 7, 8, 10].flatMap((option) => [
  encodeOptionReply(option, 1),
  encodeOptionReply(option, 2, encodeServerName('disk')),
  encodeOptionReply(option, 3, INFO_EXPORT),
  encodeOptionReply(option, 3, encodeInfoBlockSize({ minimum: 1, preferred: 512, maximum: 1024 })),
  encodeOptionReply(option, 4, encodeMetaContext(1, 'base:allocation')),
  encodeOptionReply(option, 0x8000_0001),
  encodeOptionReply(option, 0x8000_0006, Buffer.from('no')),
]);
const GREETED = Buffer.concat([
  encodeGreeting(3),
  encodeOptionReply(8, 1),
  encodeOptionReply(10, 4, encodeMetaContext(1, 'base:allocation')),
  encodeOptionReply(10, 1),
  encodeOptionReply(7, 3, INFO_EXPORT),
  encodeOptionReply(7, 1),
]);

const chunk = (type: number, cookie: number, payload: Uint8Array, flags = 1): Buffer => {
  const bytes = Buffer.alloc(20 + payload.length);
  encodeChunkHeader(viewOf(bytes), 0, { flags, type, cookieHi: 1, cookieLo: cookie, length: payload.length });
  bytes.set(payload, 20);
  return bytes;
};
export const simple = (cookie: number, error = 0): Buffer => {
  const bytes = Buffer.alloc(16);
  encodeSimpleReply(viewOf(bytes), 0, error, 1, cookie);
  return bytes;
};
const ANSWERS = [
  chunk(1, 0, Buffer.alloc(8 + 512, 1)),
  chunk(1, 0, Buffer.alloc(8 + 256, 1), 0),
  chunk(2, 0, Buffer.from('000000000000000000000200', 'hex')),
  chunk(0, 0, Buffer.alloc(0)),
  chunk(0x8001, 0, encodeChunkError(5, 'no')),
  chunk(5, 2, encodeExtents(1, [{ length: 4096, flags: 3 }])),
  simple(1),
  simple(1, 28),
  simple(3),
  simple(0),
  simple(9),
];

/** Errors of ours are what a client may end with. */
export function ours(error: unknown): void {
  if (!(error instanceof IwarpError) || error.code === 'ERR_INTERNAL') throw error;
}

async function fuzzClientHandshake(chance: Chance): Promise<void> {
  const stream = new Scripted();
  const opened = connectStream(stream, { name: 'disk', handshakeTimeout: 1000 });
  stream.play(
    chance,
    Buffer.concat([mutate(chance, encodeGreeting(chance.below(4))), inputOf(chance, REPLIES, 8)]),
  );
  await opened.then((remote) => remote.close(), ours);
}

async function fuzzClient(chance: Chance): Promise<void> {
  const stream = new Scripted();
  const opened = connectStream(stream, { name: 'disk' });
  // The handshake is whole before the script goes on.
  stream.push(GREETED);
  const remote = await opened;
  const memory = new Uint8Array(1024);
  const status = async (): Promise<void> => {
    for await (const extent of remote.extents!(0n, 4096)) if (extent.length < 1) throw new Error('no extent');
  };
  const work = [remote.read(memory.subarray(256, 768), 0n), remote.write(new Uint8Array(64), 0n), status()];
  const settled = Promise.all([...work, remote.flush!()].map((each) => each.catch(ours)));
  await new Promise((resolve) => process.nextTick(resolve));
  stream.play(chance, inputOf(chance, ANSWERS, 8));
  await settled;
  await remote.close();
  if (memory.subarray(0, 256).some(Boolean) || memory.subarray(768).some(Boolean))
    throw new Error('a reply has written beside the memory of its caller');
}

const MESSAGES = [...REQUESTS, Buffer.concat([request(0, 0n, 512), Buffer.alloc(16)]), simple(0)];
function fuzzMessages(chance: Chance): void {
  const bytes = mutate(chance, chance.pick([...MESSAGES, Buffer.from('NBDR\x01\x01\0\x10disk', 'latin1')]));
  for (const decode of [decodeDirectRequest, decodeSetup, decodeGrant, decodeRefusal, decodeSimpleReply])
    decode(bytes);
}

/** The parts that are fuzzed; each draws its inputs from a generator. */
export const PHASES: Readonly<Record<string, (chance: Chance) => Promise<void> | void>> = {
  'server-handshake': (chance) => fuzzServer(chance, true),
  'server-transmission': (chance) => fuzzServer(chance, false),
  'client-handshake': fuzzClientHandshake,
  'client-transmission': fuzzClient,
  messages: fuzzMessages,
  'queue-pair-server': fuzzQpServer,
  'queue-pair-client': fuzzQpClient,
};

/** Milliseconds after which an input counts as stuck. */
const LATE_MS = 8_000;

/** `inputs` inputs for each phase; an error names the one that failed. Lateness counts as an error too. */
export async function fuzz(
  inputs: number,
  seed: number,
  phases: readonly string[] = Object.keys(PHASES),
  progress?: (phase: string, done: number) => void,
): Promise<void> {
  for (const phase of phases) {
    const act = PHASES[phase];
    if (act === undefined) throw new Error(`${phase} is none of ${Object.keys(PHASES).join(', ')}`);
    for (let i = 0; i < inputs; i++) {
      const own = (Math.imul(seed + i, 0x9e3779b1) ^ (seed + i)) >>> 0;
      try {
        await inTime(act(new Chance(own)));
        if (outside !== undefined) throw outside;
      } catch (error) {
        throw new Error(`input ${i} of seed ${seed}, phase ${phase}`, { cause: error });
      }
      if (i % 256 === 255) await new Promise((resolve) => setImmediate(resolve));
      if (i % 100_000 === 99_999) progress?.(phase, i + 1);
    }
  }
}

async function inTime(work: Promise<void> | void): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => reject(new Error(`the input has not been dealt with in ${LATE_MS} ms`)),
      LATE_MS,
    );
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [inputs = '1000000', seed = String(Date.now() % 1_000_000), ...phases] = process.argv.slice(2);
  const began = performance.now();
  const seconds = (): number => Math.round((performance.now() - began) / 1000);
  const names = phases.length === 0 ? Object.keys(PHASES) : phases;
  process.on('unhandledRejection', (reason) => {
    console.error('a rejection that nothing handles:', reason);
    process.exit(1);
  });
  await fuzz(Number(inputs), Number(seed), names, (phase, done) =>
    console.log(`${phase}: ${done} inputs, ${seconds()} s, rss ${process.memoryUsage().rss >> 20} MiB`),
  );
  console.log(
    `${inputs} inputs of seed ${seed} for each of ${names.join(', ')}: all dealt with, ${seconds()} s`,
  );
  process.exit(0);
}
