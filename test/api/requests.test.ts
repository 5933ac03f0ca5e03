/** Requests, large messages, streams and names between two endpoints, in every world. */
import { createHash, randomBytes } from 'node:crypto';
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { ByteStream, Connection, Request } from '../../src/index.ts';
import { pair, WORLDS } from './support.ts';

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();

async function taken<T>(from: AsyncIterable<T>): Promise<T> {
  for await (const one of from) return one;
  throw new Error('it has ended');
}

describe.each(WORLDS)('requests, %s', (world) => {
  it('get the reply to each, in whatever order it comes, in both directions at once', async () => {
    const { client, server } = await pair(world);
    const answer = async (request: Request): Promise<string> => {
      if (Number(request.text()) % 7 === 0) await pause(5);
      return `re ${request.text()}`;
    };
    void server.serve(answer);
    void client.serve(answer);
    const ask = async (connection: Connection, i: number): Promise<void> => {
      const reply = await connection.request(String(i));
      expect(Buffer.isBuffer(reply)).toBe(true);
      expect(text(reply)).toBe(`re ${i}`);
    };
    await Promise.all(Array.from({ length: 1000 }, (_, i) => ask(i % 2 === 0 ? client : server, i)));
    await expect.poll(() => client.pending).toBe(0); // a reply may come before an acknowledgement
  });

  it('travel in parts where they are larger than a message, and as whole bytes of their own', async () => {
    const { client, server } = await pair(world, { maxMessageSize: 2048 }, { maxMessageSize: 4096 });
    void server.serve((request) => request.data);
    const sizes = [2000, 2024, 2025, 4000, 4072, 4073, 9000, 10_000, 10_240, 20_000, 20_360, 20_361, 70_000];
    const ask = async (size: number): Promise<void> => {
      const data = randomBytes(size);
      const reply = await client.request(data);
      expect([size, Buffer.compare(reply, data)]).toEqual([size, 0]);
    };
    await Promise.all([...sizes, ...sizes].map(ask));
    await expect.poll(() => client.pending).toBe(0);
  });

  it('in parts are refused above the limit, and end once when they are aborted', async () => {
    const { client, server } = await pair(world, { maxLargeMessage: 30_000 }, { maxLargeMessage: 40_000 });
    void server.serve((request) => (request.data.length > 20_000 ? 'taken' : Buffer.alloc(40_000)));
    await expect(client.request(Buffer.alloc(50_000))).rejects.toMatchObject({ code: 'ERR_TOO_LARGE' });
    await expect(client.request('x')).rejects.toMatchObject({ code: 'ERR_TOO_LARGE' });
    const controller = new AbortController();
    const aborted = client.request(Buffer.alloc(35_000), { signal: controller.signal });
    controller.abort();
    await expect(aborted).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    expect(text(await client.request(Buffer.alloc(35_000)))).toBe('taken');
    expect(client.state).toBe('open');
  });

  it('leave solicited messages alone, also one that begins as a batch does', async () => {
    const { client, server } = await pair(world);
    void server.serve((request) => request.data);
    const like = 'IWRPfrms and more';
    const region = client.allocate(like.length, 'none');
    region.bytes.set(Buffer.from(like));
    await Promise.all([
      client.request('a'),
      client.send('plain', { solicited: true }),
      client.send(like, { solicited: true }),
      client.send(region, { solicited: true }),
      client.send(like),
      client.request('b'),
    ]);
    const got: string[] = [];
    for (let i = 0; i < 4; i++) {
      using message = await server.receive();
      got.push(message!.text());
    }
    expect(got.toSorted()).toEqual([like, like, like, 'plain'].toSorted());
    expect(client.state).toBe('open');
  });

  it('fail with the text of the peer, and can be taken one by one', async () => {
    const { client, server } = await pair(world);
    const requests = server.requests();
    const [first, second] = [client.request('a'), client.request('b', { timeout: 60_000 })];
    const one = await taken(requests);
    expect([one.text(), one.timeout]).toEqual(['a', undefined]);
    const two = await taken(server.requests());
    expect([two.text(), two.timeout]).toEqual(['b', 60_000]);
    expect(two.left).toBeLessThanOrEqual(60_000);
    await two.fail(new Error('not today'));
    await one.reply(Uint8Array.of(1, 2));
    await expect(second).rejects.toMatchObject({ code: 'ERR_REMOTE', message: 'not today' });
    expect([...(await first)]).toEqual([1, 2]);
    await expect(one.reply('again')).rejects.toMatchObject({ code: 'ERR_INVALID_STATE' });
  });

  it('reach the program with their deadline, and end there when the requester gives up', async () => {
    const { client, server } = await pair(world, {}, { maxRequests: 2 });
    const aborted: string[] = [];
    void server.serve(async (request) => {
      await new Promise<void>((resolve) => request.signal.addEventListener('abort', () => resolve()));
      aborted.push(request.text());
    });
    const controller = new AbortController();
    const [a, b, c] = [
      client.request('a', { signal: controller.signal }),
      client.request('b', { timeout: 50 }),
      client.request('c', { timeout: 1500 }), // in line: the peer takes two
    ];
    await expect(b).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    controller.abort();
    await expect(a).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    await expect(c).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    await expect.poll(() => aborted).toEqual(['b', 'a', 'c']);
  });

  it('of any size arrive whole, with replies of any size', async () => {
    const { client, server } = await pair(world);
    void server.serve((request) => request.data);
    for (const size of [0, 1, 16_367, 16_368, 16_369, 65_536, 1_500_000]) {
      const data = randomBytes(size);
      expect(data.equals(await client.request(data))).toBe(true);
    }
    const many = Array.from({ length: 100 }, () => randomBytes(40_000));
    const replies = await Promise.all(many.map((data) => client.request(data)));
    expect(replies.every((reply, i) => many[i]!.equals(reply))).toBe(true);
  });

  it('whose reply is too large fail at both ends, and leave the connection as it is', async () => {
    const { client, server } = await pair(world, { maxLargeMessage: 100_000 });
    const requests = server.requests();
    const asked = client.request('a').catch((error: Error) => error);
    await expect((await taken(requests)).reply(new Uint8Array(100_001))).rejects.toMatchObject({
      code: 'ERR_TOO_LARGE',
    });
    expect(await asked).toMatchObject({ code: 'ERR_TOO_LARGE' });
    const again = client.request('b');
    await (await taken(server.requests())).reply(new Uint8Array(100_000));
    expect((await again).length).toBe(100_000);
  });

  it('under way end before an orderly close, and those that come later are not begun', async () => {
    const { client, server } = await pair(world);
    let begun = 0;
    void server.serve(async () => {
      begun++;
      await pause(200);
      return 'done';
    });
    const first = client.request('first');
    await expect.poll(() => begun).toBe(1);
    const closed = server.close();
    const late = client.request('late').catch((error: Error) => error);
    expect(text(await first)).toBe('done');
    expect(await late).toMatchObject({ code: 'ERR_CONNECTION_CLOSED' });
    expect((await closed).cause).toBe('graceful');
    expect(begun).toBe(1);
  });
});

describe.each(WORLDS)('large messages, %s', (world) => {
  it('arrive whole and in the order of all messages', async () => {
    const { client, server } = await pair(world);
    // In more pieces than are read at a time.
    const big = randomBytes(21 << 20);
    const sends = [
      client.send('before'),
      client.send(big),
      client.send('after'),
      client.send(big.subarray(1)),
    ];
    const got: string[] = [];
    for (let i = 0; i < 4; i++) {
      const message = (await server.receive())!;
      got.push(
        message.data.length < 100 ? message.text() : createHash('sha256').update(message.data).digest('hex'),
      );
      message.release();
    }
    const digest = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex');
    expect(got).toEqual(['before', digest(big), 'after', digest(big.subarray(1))]);
    await Promise.all(sends);
    const region = client.allocate(1 << 20, 'none');
    await client.send(region);
    expect((await server.receive())!.data.length).toBe(1 << 20);
  });

  it('wait until the program has released those before, and are refused above the limit', async () => {
    const { client, server } = await pair(world, {}, { maxLargeMessage: 1 << 20 });
    await expect(client.send(new Uint8Array((1 << 20) + 1))).rejects.toMatchObject({
      code: 'ERR_TOO_LARGE',
      message: expect.stringContaining('up to 1048576') as string,
    });
    const count = world === 'trp' ? 20 : 100; // over UDP each is many datagrams
    const sends = Array.from({ length: count }, () => client.send(new Uint8Array(1 << 20)));
    await pause(50);
    expect(server.counters().payloadIn).toBeLessThan(2 << 20);
    for (let i = 0; i < count; i++) (await server.receive())!.release();
    await Promise.all(sends);
  });

  it('are withdrawn by an abort', async () => {
    const { client, server } = await pair(world, {}, { maxLargeMessage: 1 << 20 });
    const first = client.send(new Uint8Array(1 << 20));
    const second = client.send(new Uint8Array(1 << 20), { timeout: 30 });
    await expect(second).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    await client.send('last');
    const held = (await server.receive())!;
    expect((await server.receive())!.text()).toBe('last');
    held.release();
    await first;
  });

  it('need an endpoint of this package, and say so', async () => {
    const { client } = await pair(world, { credits: false });
    expect(() => client.stream()).toThrow(/need an endpoint of this package/);
    await expect(client.request('x')).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
  });
});

describe.each(WORLDS)('a message above the receive size that cannot be announced, %s', (world) => {
  const large = new Uint8Array(20_000);

  it.each([
    [{ extensions: false }, {}],
    [{}, { extensions: false }],
    [{}, { maxMessageSize: 1000 }],
    [{ maxMessageSize: 1000 }, {}],
  ])('is refused, and the error says what it needs: %j %j', async (ours, theirs) => {
    const { client, server } = await pair(world, ours, theirs);
    await expect(client.send(large)).rejects.toMatchObject({
      code: 'ERR_TOO_LARGE',
      message: expect.stringMatching(
        /20000 bytes.* up to \d+: larger ones need an endpoint of this package at both ends, with credits/,
      ) as string,
    });
    await client.send('small');
    expect((await server.receive())!.text()).toBe('small');
  });

  it.each([{ solicited: true }, { invalidate: 1 }])('is refused with the reason: %j', async (options) => {
    const { client } = await pair(world);
    const refused = client.send(large, options);
    await expect(refused).rejects.toMatchObject({ code: 'ERR_TOO_LARGE' });
    await expect(refused).rejects.toThrow(/with solicited or invalidate a message is one Send/);
  });

  it('ends the connection to a foreign peer, which says why', async () => {
    const { client } = await pair(world, { credits: false }, { credits: false, maxMessageSize: 1000 });
    await Promise.allSettled([client.send(large)]);
    const { cause, error } = await client.closed;
    expect(cause).toBe('terminated');
    expect(error).toMatchObject({ terminate: { origin: 'remote', layer: 1, type: 2, code: 5 } });
    expect(error!.message).toContain('message too long for the available buffer');
  });
});

describe.each(WORLDS)('streams, %s', (world) => {
  it('carry bytes both ways with back-pressure, beside messages', async () => {
    const { client, server } = await pair(world);
    const data = randomBytes(3 << 20);
    const opened = taken(server.streams());
    const stream = client.stream('echo');
    const writing = pipeline(Readable.from([data.subarray(0, 1 << 20), data.subarray(1 << 20)]), stream, {
      end: true,
    });
    const far = await opened;
    expect(far.name).toBe('echo');
    await client.send('between');
    expect((await server.receive())!.text()).toBe('between');
    far.pipe(far);
    const back = Buffer.concat(await stream.toArray());
    await writing;
    expect(back.equals(data)).toBe(true);
  });

  it('stop their writer until they are read, and end when one side breaks off', async () => {
    const { client, server } = await pair(world);
    const opened = taken(server.streams());
    const stream = client.stream();
    for (let i = 0; i < 64; i++) stream.write(new Uint8Array(1 << 16));
    const far: ByteStream = await opened;
    await pause(50);
    expect(server.counters().payloadIn).toBeLessThan(600_000);
    const failed = new Promise<Error>((resolve) => stream.once('error', resolve));
    far.destroy();
    expect(await failed).toMatchObject({ code: 'ERR_ABORTED' });
    const web = client.stream('web').toWeb();
    const other = await taken(server.streams());
    await web.writable.getWriter().write(Buffer.from('hi'));
    expect(text(await taken<Buffer>(other))).toBe('hi');
  });
});

describe.each(WORLDS)('names, %s', (world) => {
  it('are found, also by a side that asks first', async () => {
    const { client, server } = await pair(world);
    const early = client.lookup('table');
    await expect(client.lookup('nothing', { timeout: 30 })).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    const region = server.allocate(64, 'read');
    region.bytes[3] = 9;
    server.publish('table', region);
    expect((await client.read(await early))[3]).toBe(9);
    expect((await client.read((await client.lookup('table')).slice(3, 1)))[0]).toBe(9);
    server.publish('table', null);
    await expect(client.lookup('table', { timeout: 30 })).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
  });
});
