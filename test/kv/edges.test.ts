// The edges over loopback: pieces of any size, pipelines, protocol violations, clients that do not read.
import { connect as connectTcp, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createStore, type KvStore } from '../../src/kv/index.ts';
import { RequestParser } from '../../src/kv/resp.ts';
import { glob } from '../../src/kv/resp-support.ts';

let store: KvStore;
let resp = 0;
let memcached = 0;
beforeAll(async () => {
  store = createStore({ octets: 8 * 2 ** 20, engine: 'thread' });
  const ports = await store.listen({ resp: 0, memcached: 0 });
  [resp, memcached] = [ports.resp!, ports.memcached!];
});
afterAll(() => store.close());

/** Send pieces, and resolve with all that comes until the server ends or nothing comes for a while. */
async function talk(
  port: number,
  pieces: readonly (string | Uint8Array)[],
): Promise<{ text: string; ended: boolean }> {
  const socket = connectTcp(port, '127.0.0.1');
  let [text, ended] = ['', false];
  socket.on('data', (bytes: Buffer) => (text += bytes.toString('latin1')));
  socket.on('end', () => (ended = true));
  socket.on('error', () => (ended = true));
  for (const piece of pieces) {
    await new Promise<void>((resolve) => void socket.write(piece, () => resolve()));
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  // Quiet for half a second: a loaded machine may take its time.
  for (let quiet = 0, before = -1; quiet < 10 && !ended; quiet = text.length === before ? quiet + 1 : 0) {
    before = text.length;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  socket.destroy();
  return { text, ended };
}

describe('RESP', () => {
  it('takes requests in pieces of one octet, and pipelines of many', async () => {
    const request = '*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nab\r\nGET k\r\n';
    expect((await talk(resp, [...request])).text).toBe('+OK\r\n$2\r\nab\r\n');
    const many = await talk(resp, ['INCR n\r\n'.repeat(5000)]);
    expect(many.text.split('\r\n')).toHaveLength(5001);
    expect(many.text.endsWith(':5000\r\n')).toBe(true);
  });

  it.each([
    ['*2147483648\r\n', 'invalid multibulk length'],
    ['*1\r\n$-2\r\n', 'invalid bulk length'],
    ['*1\r\n$600000000\r\n', 'invalid bulk length'],
    ['*1\r\n$x\r\n', 'invalid bulk length'],
    ['*x\r\n', 'invalid multibulk length'],
    ['*1\r\n:5\r\n', "expected '$', got ':'"],
    ['x'.repeat(70_000), 'too big inline request'],
    [`*${'1'.repeat(70_000)}`, 'too big mbulk count string'],
    ['SET "a\r\n', 'unbalanced quotes in request'],
  ])('ends a client that sends %j', async (request, message) => {
    const { text, ended } = await talk(resp, [request]);
    expect(text).toBe(`-ERR Protocol error: ${message}\r\n`);
    expect(ended).toBe(true);
  });

  it('ignores empty lines and arrays without elements', async () => {
    expect((await talk(resp, ['\r\n*0\r\n*-1\r\n\r\nPING\r\n'])).text).toBe('+PONG\r\n');
  });

  it('a client may watch 10,000 keys, and keys that are too long to exist cost nothing', async () => {
    const most = Array.from({ length: 10_000 }, (_, i) => `w${i}`).join(' ');
    const [half, rest] = [most.slice(0, most.indexOf(' w5000')), most.slice(most.indexOf(' w5000') + 1)];
    const { text } = await talk(resp, [
      `WATCH ${half}\r\nWATCH ${rest}\r\nWATCH ${'x'.repeat(251)}\r\nWATCH more\r\nUNWATCH\r\nWATCH more\r\n`,
    ]);
    expect(text).toBe('+OK\r\n+OK\r\n+OK\r\n-ERR too many watched keys\r\n+OK\r\n+OK\r\n');
  });

  it('RESP3 has maps and a nil of its own', async () => {
    const { text } = await talk(resp, ['HELLO 3\r\nGET none\r\nHSET h f v\r\nHGETALL h\r\n']);
    expect(text).toMatch(/^%7\r\n/);
    expect(text.endsWith('_\r\n:1\r\n%1\r\n$1\r\nf\r\n$1\r\nv\r\n')).toBe(true);
  });

  it('a client that never reads is waited for, with bounded memory, and others are served', async () => {
    store.set('large', new Uint8Array(200_000));
    const lazy: Socket = connectTcp(resp, '127.0.0.1');
    await new Promise((resolve) => lazy.once('connect', resolve));
    lazy.pause();
    const before = process.memoryUsage();
    lazy.write('GET large\r\n'.repeat(10_000)); // two gigabytes of replies
    await new Promise((resolve) => setTimeout(resolve, 500));
    const after = process.memoryUsage();
    expect(after.arrayBuffers + after.heapUsed - before.arrayBuffers - before.heapUsed).toBeLessThan(
      64 * 2 ** 20,
    );
    expect((await talk(resp, ['PING\r\n'])).text).toBe('+PONG\r\n');
    lazy.destroy();
  });

  it('takes apart whatever is cut anywhere, with the same requests', () => {
    const text = Buffer.from('*2\r\n$4\r\nECHO\r\n$5\r\na\r\nbc\r\nSET "x y" \'z\'\r\n*1\r\n$4\r\nPING\r\n');
    for (let a = 0; a <= text.length; a++)
      for (let b = a; b <= text.length; b += 7) {
        const parser = new RequestParser(1000);
        const found: string[] = [];
        for (const piece of [text.subarray(0, a), text.subarray(a, b), text.subarray(b)]) {
          parser.push(Buffer.from(piece));
          for (let next = parser.next(); next.kind === 'request'; next = parser.next())
            found.push(next.args.join('|'));
        }
        expect(found).toEqual(['ECHO|a\r\nbc', 'SET|x y|z', 'PING']);
      }
  });

  it('patterns match as those of Redis, and in bounded time', () => {
    const matches = (pattern: string, key: string): boolean => glob(Buffer.from(pattern))(Buffer.from(key));
    const good = [
      ['*', ''],
      ['a*', 'abc'],
      ['*c', 'abc'],
      ['a*c', 'abbc'],
      ['a?c', 'abc'],
      ['[a-c]x', 'bx'],
      ['[^a]x', 'bx'],
      ['\\*', '*'],
      ['*a*b*', 'xaxbx'],
      ['h[ae]llo', 'hello'],
      ['a**b', 'ab'],
    ] as const;
    const bad = [
      ['a', 'ab'],
      ['?', ''],
      ['[a-c]x', 'dx'],
      ['[^a]x', 'ax'],
      ['a*b', 'ba'],
      ['*ab', 'aab b'],
      ['a.c', 'abc'],
    ] as const;
    for (const [pattern, key] of good) expect(matches(pattern, key), `${pattern} ${key}`).toBe(true);
    for (const [pattern, key] of bad) expect(matches(pattern, key), `${pattern} ${key}`).toBe(false);
    const begin = performance.now();
    matches(`${'a*'.repeat(60)}b`, 'a'.repeat(250));
    expect(performance.now() - begin).toBeLessThan(20_000); // tried in every way: years
  });
});

describe('memcached', () => {
  it('text in pieces of one octet; a block that does not end where it should', async () => {
    const request = 'set a 5 0 3\r\nabc\r\nget a\r\n';
    expect((await talk(memcached, [...request])).text).toBe('STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\n');
    const { text, ended } = await talk(memcached, ['set a 0 0 2\r\nabcd\r\nget a\r\n']);
    expect(text).toBe('CLIENT_ERROR bad data chunk\r\nERROR\r\nVALUE a 5 3\r\nabc\r\nEND\r\n');
    expect(ended).toBe(false);
  });

  it('a value that is too large is thrown away, and the key with it', async () => {
    const { text } = await talk(memcached, [
      'set a 0 0 2000000\r\n',
      new Uint8Array(2_000_000),
      '\r\nget a\r\n',
    ]);
    expect(text).toBe('SERVER_ERROR object too large for cache\r\nEND\r\n');
  });

  it('lines without end, long keys and wrong numbers end or are refused', async () => {
    expect(await talk(memcached, ['x'.repeat(70_000)])).toEqual({
      text: 'CLIENT_ERROR line too long\r\n',
      ended: true,
    });
    const { text } = await talk(memcached, [
      `get ${'k'.repeat(251)}\r\nset k 0 0 -1\r\nset k x 0 1\r\nincr none 1\r\n`,
    ]);
    expect(text).toBe(`${'CLIENT_ERROR bad command line format\r\n'.repeat(3)}NOT_FOUND\r\n`);
  });

  it.each([
    ['a wrong magic octet behind a request', '800a00000000000000000000000000010000000000000000810a', true],
    ['lengths that disagree', '80000005000000000000000100000000000000000000000061', true],
    [
      'extras that the opcode does not have',
      '8000000104000000000000050000000000000000000000000000000061',
      false,
    ],
    ['an opcode that is unknown', '80ff00000000000000000000000000000000000000000000', false],
  ])('binary: %s', async (_name, hex, ends) => {
    const { ended } = await talk(memcached, [Buffer.from(hex, 'hex')]);
    expect(ended).toBe(ends);
  });

  it('binary: a body of 4 GiB is refused from its header', async () => {
    const { text, ended } = await talk(memcached, [
      Buffer.from(
        '800100010800000000000000ffffffff0000000000000000'.replace('00000000ffffffff', 'ffffffff00000007'),
        'hex',
      ),
    ]);
    expect(text).toContain('Too large.');
    expect(ended).toBe(false);
  });
});
