/** What a program posts on the queue pair of a connection itself, beside the operations of the connection. */
import { describe, expect, it } from 'vitest';
import { ACCESS, type Connection, type MemoryRegion, type MemoryWindow } from '../../src/index.ts';
import type { BindRequest } from '../../src/verbs/index.ts';
import { pair, pattern, WORLDS } from './support.ts';

function windowOn(connection: Connection): {
  readonly region: MemoryRegion;
  readonly window: MemoryWindow;
  readonly bind: BindRequest;
} {
  const region = connection.allocate(64, ACCESS.LOCAL_WRITE | ACCESS.MW_BIND, { iova: 0x1000n });
  const window = connection.pd.allocateMw();
  return { region, window, bind: { opcode: 'bind-mw', mw: window, mr: region, access: ACCESS.REMOTE_READ } };
}

describe.each(WORLDS)('requests of the program over %s', (world) => {
  it('are not taken for messages or operations, whatever their numbers', async () => {
    const { client, server } = await pair(world, { receives: 2 }, { receives: 2 });
    const numbers = [undefined, 0, 1, 2, 3, 4, 2 ** 32, 2 ** 32 + 1, 2n ** 40n, 2n ** 64n - 1n];
    for (const wrId of numbers) client.queuePair.postSend({ ...windowOn(client).bind, wrId });
    const sent = Array.from({ length: 12 }, (_, i) => client.send(pattern(100 + i)));
    for (let i = 0; i < sent.length; i++) {
      const message = (await server.receive())!;
      expect(message.data).toEqual(Buffer.from(pattern(100 + i)));
      message.release();
    }
    await Promise.all(sent);
    await client.queuePair.drainSend();
    expect(client.queuePair.boundWindows).toBe(numbers.length);
    await server.send('the only one');
    const message = (await client.receive())!;
    expect(Buffer.from(message.data).toString()).toBe('the only one');
    message.release();
    await client.close();
    expect(await client.receive()).toBeNull();
  });

  it.each([true, false])(
    'that have the last entries of the queue make the others wait, and no more (signaled: %s)',
    async (signaled) => {
      const { client, server } = await pair(world, { receives: 2, sends: 1 });
      const own = [windowOn(client), windowOn(client)];
      // Stays at the head of the queue until it has been answered, and the first bind is behind it, in the
      // entry for grants.
      const reading = client.read(server.share(server.allocate(1 << 22)));
      client.queuePair.postSend({ ...own[0]!.bind, signaled });
      const sending = Array.from({ length: 10 }, (_, i) => server.send(pattern(1 + i)));
      for (let i = 0; i < sending.length; i++) {
        const message = (await client.receive())!;
        expect(message.data).toEqual(Buffer.from(pattern(1 + i)));
        message.release();
      }
      await Promise.all([reading, ...sending]);
      // A last grant has its entry until its completion has been polled.
      await expect.poll(() => client.queuePair.sq.room).toBe(2);
      // Both entries are the program's: an operation waits for them, and so does the farewell.
      client.queuePair.postSend([
        { ...own[1]!.bind, signaled },
        { opcode: 'local-invalidate', target: own[0]!.window, signaled },
      ]);
      await client.send('behind them');
      expect(Buffer.from((await server.receive())!.data).toString()).toBe('behind them');
      client.queuePair.postSend([
        { opcode: 'local-invalidate', target: own[1]!.window, signaled },
        { ...own[0]!.bind, signaled },
      ]);
      expect(await client.close()).toMatchObject({ cause: 'graceful' });
      expect((await server.closed).cause).toBe('graceful');
    },
  );
});
