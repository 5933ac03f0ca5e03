/**
 * Mutated records in the ring of a connection, from a thread that writes what it likes:
 * `npx tsx test/shm/fuzz.ts [COUNT] [SEED]`. Each case is one connection: some honest records, then one
 * mutation, and the reader looks until it finds nothing. It has to deliver octets of records alone, or to end
 * the connection with its error, once; it may not throw, and may change nothing but its own counters.
 */
import { setImmediate } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import type { MessagePort } from 'node:worker_threads';
import { seededRandom, type RandomU32 } from '../../src/base/random.ts';
import { RingWriter } from '../../src/engine/channel/ring.ts';
import { ringPair, sharingOf, ShmPort } from '../../src/shm/port.ts';
import { BusyPoll } from '../../src/transport/busy-poll.ts';
import type { PortAddress, PortHandler } from '../../src/transport/port.ts';

const NOWHERE: PortAddress = { address: 'fuzz', port: 0, family: 'Unix' };
/** As in `ring.ts`: the counters, and where records begin. */
const HEAD = 0;
const TAIL = 16;
const COUNTERS = [HEAD, TAIL, 32, 48];
const FIRST_WORD = 64;
const DATA = 1;
const FIN = 2;
/** Cases between turns of the event loop, in which the ends of connections are reported. */
const BATCH = 500;
/** Words that are compared after a case. */
const LOOKED_AT = 2048;

/** The end of a MessagePort that notes all posts, and hears nothing unless the case says so. */
class NotedChannel {
  readonly posted: unknown[] = [];
  closed = 0;
  hear: (message: unknown) => void = () => undefined;

  on(event: string, listener: (message: unknown) => void): void {
    if (event === 'message') this.hear = listener;
  }

  postMessage(message: unknown): void {
    this.posted.push(message);
  }

  close(): void {
    this.closed++;
  }
}

/** The program above a port. */
class Noted implements PortHandler {
  octets = 0;
  ends = 0;
  readonly closes: (Error | undefined)[] = [];

  onData(bytes: Uint8Array, start: number, end: number): void {
    if (start < 0 || end <= start || end > bytes.length) throw new Error('octets outside of their memory');
    this.octets += end - start;
  }

  onEnd(): void {
    this.ends++;
  }

  onClose(error?: Error): void {
    this.closes.push(error);
  }
}

interface Case {
  readonly mutation: string;
  readonly handler: Noted;
  readonly channel: NotedChannel;
  readonly port: ShmPort;
}

/** What a hostile thread may put in the place of a number. */
function anything(random: RandomU32): number {
  const kind = random() % 8;
  if (kind === 0) return 0;
  if (kind === 1) return random() % 64;
  if (kind === 2) return -(random() % 1000);
  if (kind === 3) return 0x7fff_ffff;
  if (kind === 4) return 131_072 + (random() % 9) - 4;
  if (kind === 5) return (random() % 4) | ((random() % 40_000) << 8);
  return random() | 0;
}

type Mutation = (ring: Int32Array, starts: readonly number[], random: RandomU32, heard: NotedChannel) => void;

const one = (starts: readonly number[], random: RandomU32): number => starts[random() % starts.length]!;

const MUTATIONS: Readonly<Record<string, Mutation>> = {
  none: () => undefined,
  'type and length': (ring, starts, random) => (ring[one(starts, random)] = anything(random)),
  type: (ring, starts, random) => {
    const at = one(starts, random);
    ring[at] = (ring[at]! & ~0xff) | (random() & 0xff);
  },
  length: (ring, starts, random) => {
    const at = one(starts, random);
    ring[at] = (ring[at]! & 0xff) | (anything(random) << 8);
  },
  octets: (ring, starts, random) => (ring[one(starts, random) + 1] = anything(random)),
  'half a record': (ring, _starts, random) => (ring[HEAD] = ring[HEAD]! - 1 - (random() % 8)),
  head: (ring, _starts, random) => (ring[HEAD] = anything(random)),
  counters: (ring, _starts, random) => (ring[COUNTERS[random() % COUNTERS.length]!] = anything(random)),
  padding: (ring, starts, random) => {
    for (const at of starts) ring[at] = (1 + (random() % 4)) << 8;
  },
  garbage: (ring, _starts, random) => {
    for (let i = 0; i < 64; i++) ring[FIRST_WORD + i] = random() | 0;
  },
  message: (_ring, _starts, random, channel) => {
    const messages: unknown[] = [
      null,
      random(),
      'x',
      { want: random() },
      { have: random(), memory: new Uint8Array(4), hi: 0, lo: 0, lease: new Int32Array(2) },
      { have: 1, memory: { buffer: null, from: -1, octets: 2 ** 40 }, hi: 0, lo: 0, lease: null },
      { gone: random() },
      [],
    ];
    channel.hear(messages[random() % messages.length]);
  },
};
/** Those after which only octets of the honest records, and what fills up their last words, may come. */
const WITHIN = ['type and length', 'type', 'length', 'octets', 'half a record'];
const NAMES = Object.keys(MUTATIONS);

/** Some honest records; gives where they begin. */
function writeHonest(ring: Int32Array, random: RandomU32): { starts: number[]; octets: number } {
  const writer = new RingWriter(ring);
  const starts: number[] = [];
  let octets = 0;
  for (let left = 1 + (random() % 5); left > 0; left--) {
    const length = 1 + (random() % 300);
    const words = 2 + Math.ceil(length / 4);
    const at = writer.begin(DATA, words);
    writer.words[at + 1] = length;
    octets += length;
    starts.push(at);
  }
  if (random() % 4 === 0) starts.push(writer.begin(FIN, 1));
  writer.publish();
  return { starts, octets };
}

/** Runs this many cases. Throws at the first that breaks a rule; gives how many ended their connection. */
export async function fuzz(count: number, seed: number): Promise<number> {
  const random = seededRandom(seed);
  const sharing = sharingOf(new BusyPoll(0));
  const [incoming, outgoing] = ringPair();
  const ring = new Int32Array(incoming);
  const out = new Int32Array(outgoing);
  const before = new Int32Array(LOOKED_AT);
  let ended = 0;
  let batch: Case[] = [];
  for (let n = 0; n < count; n++) {
    for (const at of COUNTERS) ring[at] = out[at] = 0;
    const channel = new NotedChannel();
    const ends = {
      incoming,
      outgoing,
      channel: channel as unknown as MessagePort,
      local: NOWHERE,
      remote: NOWHERE,
    };
    const port = new ShmPort(ends, sharing);
    const handler = new Noted();
    port.attach(handler);
    const mutation = NAMES[random() % NAMES.length]!;
    const { starts, octets } = writeHonest(ring, random);
    const where = `case ${n} of seed ${seed}, ${mutation}`;
    MUTATIONS[mutation]!(ring, starts, random, channel);
    before.set(ring.subarray(0, LOOKED_AT));
    for (let looks = 0; port.look(); looks++) if (looks > 10_000) throw new Error(`${where}: reads for ever`);
    for (let i = 0; i < LOOKED_AT; i++)
      if (ring[i] !== before[i] && !COUNTERS.includes(i)) throw new Error(`${where}: word ${i} has changed`);
    for (let i = FIRST_WORD; i < FIRST_WORD + 16; i++)
      if (out[i] !== 0) throw new Error(`${where}: something was written`);
    if (mutation === 'none' && handler.octets !== octets) throw new Error(`${where}: octets are missing`);
    if (WITHIN.includes(mutation) && handler.octets > octets + 3 * starts.length)
      throw new Error(`${where}: octets of no record`);
    if (handler.octets > ring.length * 4) throw new Error(`${where}: more octets than the ring has`);
    batch.push({ mutation: where, handler, channel, port });
    if (batch.length === BATCH || n + 1 === count) {
      for (const { port: open } of batch) open.pause();
      await setImmediate();
      for (const one of batch) ended += check(one);
      batch = [];
    }
  }
  return ended;
}

/** A connection that has ended says so once, with its error, and to the other side; the others are open. */
function check({ mutation, handler, channel, port }: Case): number {
  const over = channel.closed > 0;
  if (handler.closes.length !== (over ? 1 : 0))
    throw new Error(`${mutation}: closed ${handler.closes.length} times`);
  if (!over) {
    port.reset();
    return 0;
  }
  const [error] = handler.closes as [(Error & { code?: string }) | undefined];
  if (error?.code !== 'ERR_CONNECTION_RESET') throw new Error(`${mutation}: ended by ${String(error)}`);
  if (!channel.posted.includes(1)) throw new Error(`${mutation}: the other side has not heard`);
  return 1;
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [count = 10_000_000, seed = 1] = process.argv.slice(2).map(Number);
  const began = performance.now();
  const ended = await fuzz(count, seed);
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  console.log(`${count} connections, seed ${seed}: ${ended} ended with their error; ${seconds} s`);
}
