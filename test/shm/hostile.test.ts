/** Threads that write what they like: into the rings, over the MessagePort, into words that both see. */
import { once } from 'node:events';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { afterAll, expect, it, onTestFinished } from 'vitest';
import { seededRandom, type RandomU32 } from '../../src/base/random.ts';
import { RingWriter } from '../../src/engine/channel/ring.ts';
import { createServer, openRnic, type Connection, type MemoryRegion, type Server } from '../../src/index.ts';
import { helloFor, send } from '../../src/shm/names.ts';
import { ringPair } from '../../src/shm/port.ts';
import { encodeFpdus, encodeStartup, taggedUlpdu } from '../support/naive/encoder.ts';
import { fuzz } from './fuzz.ts';
import { freshName } from './support.ts';

const rnic = openRnic({ wire: 'shm' });
const PLAIN = { crc: false, markers: false };
const CANARY = 0xc5;
const AROUND = 4096;
const OCTETS = 8192;

/** One hostile end, past the start-up. */
interface Hostile {
  readonly writer: RingWriter;
  readonly channel: MessagePort;
  readonly messages: unknown[];
  /** The victim's end, and a region of it between canaries. */
  readonly connection: Connection;
  readonly region: MemoryRegion;
  readonly memory: Uint8Array;
}

const victims: Server[] = [];
afterAll(async () => {
  for (const victim of victims) await victim.close();
});

function put(writer: RingWriter, bytes: Uint8Array): void {
  const at = writer.begin(1, 2 + Math.ceil(bytes.length / 4));
  writer.words[at + 1] = bytes.length;
  writer.bytes.set(bytes, (at + 2) * 4);
}

async function hostiles(): Promise<() => Promise<Hostile>> {
  const name = freshName();
  const server = await createServer({ rnic }).listen({ path: name });
  victims.push(server);
  const accepted = server[Symbol.asyncIterator]();
  return async () => {
    const { port1: channel, port2 } = new MessageChannel();
    const [incoming, outgoing] = ringPair();
    const messages: unknown[] = [];
    const writer = new RingWriter(new Int32Array(outgoing));
    const bell = (): void => channel.postMessage(0);
    put(writer, encodeStartup({ kind: 'request', crc: false }));
    writer.publish();
    send(
      helloFor({
        name,
        host: '',
        address: '',
        port: 0,
        incoming: outgoing,
        outgoing: incoming,
        channel: port2,
      }),
      () => undefined,
    );
    await once(channel, 'message');
    channel.on('message', (message) => messages.push(message));
    bell();
    const connection = (await accepted.next()).value as Connection;
    const memory = new Uint8Array(new SharedArrayBuffer(OCTETS + 2 * AROUND)).fill(CANARY);
    const region = connection.register(memory.subarray(AROUND, AROUND + OCTETS), 'write');
    return { writer, channel, messages, connection, region, memory };
  };
}

function ring({ writer, channel }: Hostile): void {
  writer.publish();
  channel.postMessage(0);
}

function expectCanaries({ memory }: Hostile): void {
  expect(memory.subarray(0, AROUND).every((octet) => octet === CANARY)).toBe(true);
  expect(memory.subarray(AROUND + OCTETS).every((octet) => octet === CANARY)).toBe(true);
}

/** A Write, with wrong numbers in it if this says so. */
function anyWrite(random: RandomU32, { rkey }: MemoryRegion, remoteAddress: bigint): Uint8Array {
  const length = random() % 300;
  const stag = random() % 3 === 0 ? random() : rkey;
  const to = random() % 2 === 0 ? remoteAddress + BigInt(random() % (2 * OCTETS)) - 100n : BigInt(random());
  const ulpdu = taggedUlpdu(
    { opcode: random() % 5 === 0 ? random() % 16 : 0, stag, to: BigInt.asUintN(64, to) },
    new Uint8Array(length).fill(1),
  );
  if (random() % 4 === 0) ulpdu[random() % ulpdu.length] = random();
  const fpdus = encodeFpdus([{ ulpdu, ...(random() % 6 === 0 && { length: random() & 0xffff }) }], PLAIN);
  return random() % 8 === 0 ? fpdus.subarray(0, 1 + (random() % fpdus.length)) : fpdus;
}

it('100,000 connections with mutated records: delivered octets, or its error, and nothing else', async () => {
  const ended = await fuzz(100_000, 0x5eed);
  expect(ended).toBeGreaterThan(50_000);
  expect(ended).toBeLessThan(100_000);
});

it('whatever a thread writes, bytes outside of regions stay, and the connection ends', async () => {
  const random = seededRandom(0x0dd);
  const next = await hostiles();
  let landed = 0;
  for (let round = 0; round < 150; round++) {
    const hostile = await next();
    const { connection, region, writer } = hostile;
    const base = BigInt(connection.share(region).address);
    for (let i = 0; i < 20; i++) put(writer, anyWrite(random, region, base));
    ring(hostile);
    for (let i = 0; i < 4; i++) await setImmediate();
    expectCanaries(hostile);
    hostile.channel.close();
    await connection.closed;
    expectCanaries(hostile);
    if (hostile.memory.includes(1)) landed++;
  }
  expect(landed).toBeGreaterThan(10);
});

it('a thread that stops in the middle of a record, and one that floods, lose their connections', async () => {
  const next = await hostiles();
  const [quiet, loud] = [await next(), await next()];
  const words = quiet.writer.words;
  const at = quiet.writer.begin(1, 100);
  words[at + 1] = 392;
  Atomics.store(words, 0, quiet.writer.written - 50);
  quiet.channel.postMessage(0);
  for (let i = 0; i < 50_000; i++) loud.channel.postMessage(i % 2 === 0 ? 0 : { want: i });
  loud.channel.postMessage({ hello: 'there' });
  for (const { connection } of [quiet, loud]) {
    const closed = await connection.closed;
    expect(closed.cause).toMatch(/reset|lost/);
  }
});

it('memory is only given to who may write to it, and messages that are none end the connection', async () => {
  const next = await hostiles();
  const hostile = await next();
  const { connection, messages } = hostile;
  const readable = connection.allocate(4096, 'read');
  const plain = connection.register(new Uint8Array(4096), 'write');
  const asked = [readable.rkey, plain.rkey, 12_345, hostile.region.rkey];
  for (const want of asked) hostile.channel.postMessage({ want });
  await sleep(50);
  expect(messages.slice(-4)).toMatchObject([
    { refused: readable.rkey },
    { refused: plain.rkey },
    { refused: 12_345 },
    { have: hostile.region.rkey },
  ]);
  hostile.channel.postMessage({ have: 1, memory: 7, hi: 0, lo: 0, lease: null });
  expect((await connection.closed).cause).toBe('reset');
});

it('a thread that never lets go of memory loses its connection', async () => {
  const next = await hostiles();
  const hostile = await next();
  const { connection, messages, region } = hostile;
  hostile.channel.postMessage({ want: region.rkey });
  await sleep(50);
  const { lease } = messages.at(-1) as { lease: Int32Array };
  Atomics.add(lease, 1, 1);
  const began = performance.now();
  let settled = false;
  const returned = Promise.resolve(region.deregister()).then(() => (settled = true));
  const blocked = performance.now() - began;
  expect(blocked).toBeGreaterThan(90);
  expect(blocked).toBeLessThan(2000);
  expect((await connection.closed).cause).toBe('reset');
  await sleep(50);
  expect(settled).toBe(false);
  Atomics.sub(lease, 1, 1);
  await returned;
  onTestFinished(() => hostile.channel.close());
});
