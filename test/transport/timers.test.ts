// The stack beside timers that are not Node's: a test has replaced them (nobody turns their clock), or the
// environment has a browser's.
import net, { type AddressInfo } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { connect, createServer, openRnic, RemoteBuffer } from '../../src/index.ts';

/** What becomes of the global timers. */
const REPLACED: readonly (readonly [string, () => void])[] = [
  ['that a test stands still', () => void vi.useFakeTimers()],
  [
    'of a browser, with numbers for timers and without setImmediate',
    () => {
      vi.stubGlobal('setTimeout', () => 1);
      vi.stubGlobal('clearTimeout', () => undefined);
      vi.stubGlobal('setImmediate', undefined);
    },
  ],
];

describe.each(REPLACED)('with global timers %s', (_how, replace) => {
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  it('connections are made, move octets in both directions and end', async () => {
    replace();
    const octets = 8 * 2 ** 20; // more writes than go out in one turn of the event loop
    const rnic = openRnic({ engine: 'thread' });
    const server = createServer({ rnic }, async (c) => {
      await c.send(c.share(c.register(new Uint8Array(octets))).toBytes());
    });
    await server.listen({ host: '127.0.0.1', port: 0 });
    const connection = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
    const remote = RemoteBuffer.fromBytes((await connection.receive())!.data);
    await connection.write(new Uint8Array(octets).fill(5), remote);
    const back = new Uint8Array(octets);
    await connection.read(remote, back);
    expect(back.every((octet) => octet === 5)).toBe(true);
    await connection.close();
    await server.close();
  });

  it('a time limit is one all the same', async () => {
    const silent = net.createServer();
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    replace();
    const { port } = silent.address() as AddressInfo;
    const rnic = openRnic({ engine: 'thread' });
    await expect(
      connect({ rnic, host: '127.0.0.1', port, policy: { replyTimeout: 20 } }),
    ).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    silent.close();
  });
});
