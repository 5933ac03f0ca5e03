// `iwarp kv`, run as a user runs it, over loopback.
import { describe, expect, it } from 'vitest';
import { run } from '../../cli/kv.ts';
import { createStore } from '../../src/kv/index.ts';
import { depth } from '../support/depth.ts';

interface Said {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

async function tool(args: string[], heard?: (out: string) => void, signal?: AbortSignal): Promise<Said> {
  let [out, err] = ['', ''];
  const status = await run(args, {
    out: (words) => {
      out += words;
      heard?.(out);
    },
    err: (words) => (err += words),
    ...(signal && { signal }),
  });
  return { status, out, err };
}

describe('iwarp kv', () => {
  it('serve, set, get, incr, del, top', async () => {
    const stop = new AbortController();
    const edges = ['--rdma', '127.0.0.1:0', '--resp', '0', '--memcached', '[::1]:0'];
    let ended!: Promise<Said>;
    const port = await new Promise<string>((resolve) => {
      ended = tool(
        ['serve', '--memory', '4M', '--engine', 'thread', ...edges],
        (out) => {
          const found = /^rdma at 127\.0\.0\.1:(\d+)$[^]*^memcached at \[::1\]:\d+$/m.exec(out);
          if (found !== null) resolve(found[1]!);
        },
        stop.signal,
      );
    });
    const at = ['--rdma', `127.0.0.1:${port}`];
    expect(await tool(['set', 'a', 'one\u001b', ...at])).toEqual({ status: 0, out: 'OK\n', err: '' });
    expect((await tool(['set', 'b', 'two', '--ttl', '60000', ...at])).out).toBe('OK\n');
    expect(await tool(['get', 'a', 'b', ...at])).toEqual({ status: 0, out: 'one\\x1b\ntwo\n', err: '' });
    expect(await tool(['get', 'none', 'b', ...at])).toEqual({ status: 1, out: '(nil)\ntwo\n', err: '' });
    expect((await tool(['incr', 'n', ...at])).out).toBe('1\n');
    expect((await tool(['incr', 'n', ...at, '--', '-5'])).out).toBe('-4\n');
    const wrong = await tool(['incr', 'a', ...at]);
    expect([wrong.status, wrong.err]).toEqual([
      1,
      'kv: the key holds no number, or the sum is none of 64 bits\n',
    ]);
    expect((await tool(['del', 'a', 'b', 'none', ...at])).out).toBe('2\n');
    expect((await tool(['top', '--count', '1', ...at])).out).toMatch(/keys.*\n +1 +0 +0 +\d+ +\d+ +1 +0\n$/);
    stop.abort();
    expect((await ended).out).toMatch(/1 keys, 0 evicted, 0 expired\n$/);
  });

  it.each(['thread', 'worker'])('the profile urdma, with the engine %s on both sides', async (engine) => {
    const stop = new AbortController();
    let ended!: Promise<Said>;
    const port = await new Promise<string>((resolve) => {
      ended = tool(
        ['serve', '--profile', 'urdma', '--engine', engine, '--rdma', '0'],
        (out) => {
          const found = /^rdma at 127\.0\.0\.1:(\d+)$/m.exec(out);
          if (found !== null) resolve(found[1]!);
        },
        stop.signal,
      );
    });
    const at = ['--rdma', `127.0.0.1:${port}`, '--engine', engine, '--profile', 'urdma'];
    expect((await tool(['set', 'a', 'one', ...at])).out).toBe('OK\n');
    expect((await tool(['set', 'b', 'two', '--ttl', '60000', ...at])).out).toBe('OK\n');
    expect(await tool(['get', 'a', 'none', 'b', ...at])).toEqual({
      status: 1,
      out: 'one\n(nil)\ntwo\n',
      err: '',
    });
    expect((await tool(['del', 'a', 'none', ...at])).out).toBe('1\n');
    stop.abort();
    expect((await ended).out).toMatch(/1 keys, 0 evicted/);
  });

  it('every command takes --engine worker', async () => {
    const stop = new AbortController();
    let ended!: Promise<Said>;
    const port = await new Promise<string>((resolve) => {
      ended = tool(
        ['serve', '--engine', 'worker', '--rdma', '0'],
        (out) => {
          const found = /:(\d+)$/m.exec(out);
          if (found !== null) resolve(found[1]!);
        },
        stop.signal,
      );
    });
    const at = ['--rdma', port, '--engine', 'worker'];
    const said: string[] = [];
    for (const words of [
      ['set', 'a', '1'],
      ['get', 'a'],
      ['incr', 'a', '2'],
      ['top', '--count', '1'],
      ['del', 'a'],
    ])
      said.push((await tool([...words, ...at])).out);
    expect(said.map((out) => out.split('\n').at(-2)!.trim().split(/ +/)[0])).toEqual([
      'OK',
      '1',
      '3',
      '1',
      '1',
    ]);
    stop.abort();
    await ended;
  });

  it('bench prints a row for each server, number of clients and length, and ratios', async () => {
    const store = createStore({ octets: 2 ** 25, engine: 'thread' });
    const { rdma, resp, memcached } = await store.listen({ rdma: 0, resp: 0, memcached: 0 });
    const against = `redis://127.0.0.1:${resp},memcached://127.0.0.1:${memcached}`;
    const { status, out } = await tool([
      ...['bench', '--rdma', String(rdma), '--against', against],
      ...['--clients', depth('1', '1,2'), '--size', depth('64', '64,4096'), '--seconds', '1'],
    ]);
    await store.close();
    expect(status).toBe(0);
    const rows = out.match(/^(iwarp kv|node:net echo|redis|memcached) .*$/gm)!;
    expect(rows).toHaveLength(depth(4, 16));
    for (const row of rows)
      expect(row).toMatch(/ +[12] +(64|4096) +[1-9]\d* +\d+ +\d+( +[\d.]+){2}( +\S+){3}$/);
    expect(out.match(/^p50 to /gm)).toHaveLength(depth(3, 12));
  }, 60_000);

  it('bench has several GETs of each client under way, beside a computing owner', async () => {
    const { status, out } = await tool([
      ...['bench', '--clients', '1', '--under-way', '16', '--size', '64', '--seconds', '1', '--owner-busy'],
    ]);
    expect(status).toBe(0);
    const rows = out.match(/^iwarp kv .*$/gm)!;
    expect(rows).toHaveLength(2);
    // The time of the thread that serves, without that of the one that computes: less than the GETs took.
    for (const row of rows) expect(Number(row.trim().split(/ +/).at(-3))).toBeLessThan(500);
    const idle = Number(/^iwarp kv +idle .*$/m.exec(out)![0].trim().split(/ +/).at(-1));
    expect(idle).toBeLessThan(5);
  }, 60_000);

  it.each([
    [[], /give serve, get/],
    [['serve'], /needs --rdma, --resp or --memcached/],
    [['serve', '--rdma', 'x'], /--rdma must be HOST:PORT/],
    [['serve', '--rdma', '0', '--memory', 'much'], /--memory must be a size/],
    [['serve', '--rdma', '0', '--memory', '1K'], /octets/],
    [['serve', '--rdma', '0', '--ttl', '5'], /--ttl is not an option of serve/],
    [['get', 'k'], /--rdma HOST:PORT/],
    [['bench', '--clients', '0'], /--clients/],
    [['bench', '--size', '64,x'], /--size/],
    [['get', 'k', '--rdma', '1', '--profile', 'other'], /--profile must be one of/],
    [['incr', 'k', '--rdma', '1', '--profile', 'urdma'], /--profile is not an option of incr/],
    [['bench', '--against', 'http://x'], /--against/],
  ])('%j is a usage error', async (args, message) => {
    const { status, err } = await tool(args);
    expect(status).toBe(2);
    expect(err).toMatch(message);
    expect(err).toMatch(/usage: iwarp kv/);
  });

  it('--help ends with 0; a store that is not there ends with 1', async () => {
    expect(await tool(['--help'])).toMatchObject({ status: 0, err: '' });
    expect((await tool(['get', 'k', '--rdma', '127.0.0.1:1'])).status).toBe(1);
  });
});
