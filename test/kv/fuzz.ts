/**
 * A fuzzer of the store: `npx tsx test/kv/fuzz.ts [INPUTS] [SEED]`. Requests of both edges and of RDMA
 * clients, made from good ones by cutting, repeating and changing octets; and octets of a table that a client
 * reads. Nothing may throw but what the code calls a mistake of its caller, and no reply may be malformed.
 */
import { pathToFileURL } from 'node:url';
import { Counters } from '../../src/kv/counters.ts';
import { Keyspace } from '../../src/kv/keyspace.ts';
import { decodeRequest, executeBinary, requestLength } from '../../src/kv/memcached-binary.ts';
import { MemcachedStore } from '../../src/kv/memcached-store.ts';
import { TextSession } from '../../src/kv/memcached-text.ts';
import { readBucket, readRecord } from '../../src/kv/reader.ts';
import { RemoteBuffer } from '../../src/api/remote-buffer.ts';
import { executeMessage } from '../../src/kv/rdma-edge.ts';
import { KV_OP } from '../../src/kv/rdma-wire.ts';
import { RespSession } from '../../src/kv/resp-edge.ts';
import { RequestParser } from '../../src/kv/resp.ts';
import { Table } from '../../src/kv/table.ts';
import { answerUrdma } from '../../src/kv/urdma-edge.ts';
import { UrdmaValues } from '../../src/kv/urdma-values.ts';
import { decodeUrdma, encodeUrdma } from '../../src/kv/urdma-wire.ts';

const RESP_WORDS = [
  ...[
    'SET',
    'GET',
    'INCR',
    'APPEND',
    'MGET',
    'MSET',
    'HSET',
    'HGETALL',
    'HDEL',
    'EXPIRE',
    'SCAN',
    'MULTI',
    'EXEC',
  ],
  ...[
    'WATCH',
    'SETRANGE',
    'GETRANGE',
    'INCRBYFLOAT',
    'DEL',
    'KEYS',
    'COPY',
    'RENAME',
    'HINCRBY',
    'OBJECT',
    'HELLO',
  ],
  ...[
    'SETBIT',
    'GETEX',
    'HSCAN',
    'TTL',
    'k',
    'h',
    'n',
    '1',
    '-1',
    '9223372036854775807',
    '*',
    'EX',
    'NX',
    '',
    '3',
  ],
];
const TEXT_WORDS = [
  ...[
    'set',
    'get',
    'gets',
    'add',
    'cas',
    'append',
    'incr',
    'decr',
    'delete',
    'touch',
    'gat',
    'flush_all',
    'stats',
  ],
  ...['k', 'n', '0', '1', '5', '-1', '4294967296', 'noreply', '', 'x'],
];

/** Run; resolves with how many inputs of each kind there were. */
export function fuzzStore(inputs: number, seed: number): Record<string, number> {
  let state = seed >>> 0 || 1;
  const next = (below: number): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
  const pick = <T>(list: readonly T[]): T => list[next(list.length)]!;
  let now = 1_000_000;
  const table = new Table(2 ** 20, { seed, evicts: true, now: () => now });
  const counters = new Counters(64);
  const keys = new Keyspace(table, counters, () => now);
  const store = new MemcachedStore(keys);
  const facts = { started: 0, port: () => 0, clients: () => 1, commands: 0 };
  const spoil = (bytes: Buffer): Buffer => {
    const out = Buffer.from(bytes);
    for (let i = next(4); i > 0 && out.length > 0; i--) out[next(out.length)] = next(256);
    const cut = next(8) === 0 ? out.subarray(0, next(out.length + 1)) : out;
    return next(16) === 0 ? Buffer.concat([cut, cut]) : cut;
  };
  const counts: Record<string, number> = Object.fromEntries(
    ['resp', 'text', 'binary', 'message', 'urdma', 'bucket', 'record'].map((kind) => [kind, 0]),
  );

  const resp = (): void => {
    const session = new RespSession(keys, facts, { id: 1, name: '', closing: false });
    const parser = new RequestParser(4096);
    for (let i = 1 + next(5); i > 0; i--) {
      const words = Array.from({ length: 1 + next(5) }, () => pick(RESP_WORDS));
      const text = `*${words.length}\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join('')}`;
      parser.push(spoil(Buffer.from(next(4) === 0 ? `${words.join(' ')}\r\n` : text)));
      for (let found = parser.next(); found.kind !== 'more'; found = parser.next()) {
        if (found.kind === 'violation') return;
        session.execute(found.args);
        const reply = session.reply.take();
        if (!'+-:$*%_'.includes(String.fromCharCode(reply[0]!)) || !reply.toString('latin1').endsWith('\r\n'))
          throw new Error(`a malformed reply: ${reply.toString('latin1')}`);
      }
    }
  };
  const text = (): void => {
    const session = new TextSession(store);
    for (let i = 1 + next(4); i > 0; i--) {
      const words = Array.from({ length: 1 + next(6) }, () => pick(TEXT_WORDS));
      session.push(spoil(Buffer.from(`${words.join(' ')}\r\n${next(2) === 0 ? 'abcde\r\n' : ''}`)));
      for (let steps = 0; steps < 1000 && !session.ends && session.next() !== null; steps++);
    }
  };
  const binary = (): void => {
    const [extras, key, value] = [pick([0, 4, 8, 20, 1]), pick([0, 1, 3, 250, 251]), next(20)];
    const frame = Buffer.alloc(24 + extras + key + value, next(256));
    frame.writeUInt8(0x80, 0);
    frame.writeUInt8(next(0x22), 1);
    frame.writeUInt16BE(key, 2);
    frame.writeUInt16BE(extras << 8, 4);
    frame.writeUInt32BE(extras + key + value, 8);
    const bytes = next(2) === 0 ? frame : spoil(frame);
    if (requestLength(bytes, 0) !== bytes.length) return;
    const request = decodeRequest(bytes);
    if (request === null) return;
    for (const response of executeBinary(store, request).responses)
      if (response[0] !== 0x81 || response.length !== 24 + response.readUInt32BE(8))
        throw new Error('a malformed response');
  };
  const MESSAGES = [KV_OP.STORE, KV_OP.ADD, KV_OP.EXPIRE, KV_OP.COUNTER, 0, 1, 4, 5, 0xe7];
  const message = (): void => {
    const opcode = pick(MESSAGES);
    const [extras, value] = [pick([0, 8, 16, 16, 20, 32]), next(100)];
    const name = pick(['', 'k', 'n', 'h', 'x'.repeat(250), 'x'.repeat(251)]);
    const frame = Buffer.alloc(24 + extras + name.length + value, pick([0, 48, 255]));
    frame.fill(0, 0, 24);
    frame.writeUInt8(0x80, 0);
    frame.writeUInt8(opcode, 1);
    frame.writeUInt16BE(name.length, 2);
    frame.writeUInt8(extras, 4);
    frame.writeUInt32BE(extras + name.length + value, 8);
    if (extras >= 8) frame.writeDoubleBE(pick([0, 1, 500, -1, 1e300, Number.NaN, Infinity]), 24);
    if (extras >= 16) frame.writeUInt32BE(next(5), 36);
    frame.write(name, 24 + extras, 'latin1');
    const bytes = next(3) === 0 ? spoil(frame) : frame;
    if (requestLength(bytes, 0) !== bytes.length) return;
    const request = decodeRequest(bytes);
    if (request === null) return;
    const responses = executeMessage(store, counters, request);
    for (const response of responses)
      if (response[0] !== 0x81 || response.length > 8192 || response.length !== 24 + response.readUInt32BE(8))
        throw new Error('a malformed answer');
  };
  const values = new UrdmaValues(4 * 32_768, keys);
  const whole = new RemoteBuffer(0x5e_ed01, 0x7f00_0000_0000n, values.memory.length);
  const urdma = (): void => {
    const place =
      next(2) === 0
        ? undefined
        : new RemoteBuffer(0x5e_ed01, 0x7f00_0000_0000n + BigInt(next(40) * 64), next(300));
    const frame = encodeUrdma('request', {
      opcode: next(6),
      opaque: 1,
      version: BigInt(next(3)),
      extras: Buffer.alloc(pick([0, 8, 8, 8, 4]), pick([0, 0, 255])),
      key: Buffer.alloc(pick([1, 1, 2, 40, 41, 0]), pick(['k', 'n', 'h', 'u'])),
      value: Buffer.alloc(pick([0, 0, next(300), 2000, 20_480, 20_481]), next(256)),
      ...(place !== undefined && { place }),
    });
    // Clients write wherever they like in this memory.
    values.memory[next(values.memory.length)] = next(256);
    const bytes = next(3) === 0 ? spoil(frame) : frame;
    const request = decodeUrdma('request', bytes);
    if (request === null) return;
    const found = answerUrdma(store, values, whole, request);
    if (found.written !== undefined && found.written.length > request.place.length)
      throw new Error('more octets than the client has room for');
    if (found.place !== undefined) whole.slice(found.place.offset, found.place.length);
  };
  const bucket = (): void => {
    const bytes = Buffer.alloc(256, pick([0, 1, 2, 255]));
    for (let i = next(40); i > 0; i--) bytes[next(256)] = next(256);
    readBucket(new DataView(bytes.buffer, bytes.byteOffset, 256), next(4));
  };
  const key = Buffer.from('key');
  table.set(key, { value: Buffer.from('a value that is true'), kind: 0, flags: 0, expiry: 0 });
  const record = (): void => {
    const bytes = Buffer.alloc(next(120), next(256));
    for (let i = next(40); i > 0 && bytes.length > 0; i--) bytes[next(bytes.length)] = next(256);
    const found = readRecord(bytes, bytes.length, key, seed);
    if (typeof found === 'object') throw new Error('octets by chance were taken for a record');
  };
  const kinds = { resp, text, binary, message, urdma, bucket, record };
  for (let i = 0; i < inputs; i++) {
    const kind = pick(Object.keys(kinds)) as keyof typeof kinds;
    kinds[kind]();
    counts[kind]!++;
    if (i % 1000 === 0) now += 1000;
  }
  store.close();
  return counts;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [inputs = '1000000', seed = '1'] = process.argv.slice(2);
  console.log(fuzzStore(Number(inputs), Number(seed)));
}
