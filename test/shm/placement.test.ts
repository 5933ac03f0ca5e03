/** Writes that a thread places in the other thread's memory itself, and when it may no longer do so. */
import { describe, expect, it, onTestFinished } from 'vitest';
import { connect, createServer, openRnic, RemoteBuffer, type Connection } from '../../src/index.ts';
import { connectedPair } from '../support/pair.ts';
import { freshName, said, thread } from './support.ts';
import { depth } from '../support/depth.ts';

const rnic = openRnic({ wire: 'shm' });

interface Both {
  readonly client: Connection;
  readonly server: Connection;
}

/** Two ends in this thread. */
async function pair(): Promise<Both> {
  const path = freshName();
  const server = await createServer({ rnic }).listen({ path });
  const accepted = server[Symbol.asyncIterator]().next();
  const client = await connect({ rnic, path });
  onTestFinished(async () => {
    await client.close().catch(() => undefined);
    await server.close();
  });
  return { client, server: (await accepted).value as Connection };
}

/** Writes until the region has been given: the first Write asks for it. */
async function warm(client: Connection, server: Connection, remote: RemoteBuffer): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await client.write(new Uint8Array(remote.length), remote);
    await client.send('turn');
    (await server.receive())!.release();
  }
}

const code = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'worked',
    (error: { code: string }) => error.code,
  );

it('a Write needs no code of the thread whose memory it fills', async () => {
  const path = freshName();
  const flag = new Int32Array(new SharedArrayBuffer(4));
  const worker = await thread(
    `const rnic = iwarp.openRnic({ wire: 'shm' });
     await iwarp.createServer({ rnic }, async (connection) => {
       const memory = connection.allocate(1 << 20, 'write');
       await connection.send(connection.share(memory).toBytes());
       for (let i = 0; i < 3; i++) {
         (await connection.receive()).release();
         await connection.send('turned');
       }
       await connection.receive();
       port.postMessage('blocked');
       Atomics.wait(data.flag, 0, 0, 20_000);
       port.postMessage([memory.bytes[0], memory.bytes.at(-1), Atomics.load(data.flag, 0)]);
     }).listen({ path: data.path });
     port.postMessage('ready');`,
    { path, flag },
  );
  const connection = await connect({ rnic, path });
  const remote = RemoteBuffer.fromBytes((await connection.receive())!.data);
  for (let i = 0; i < 3; i++) {
    await connection.write(new Uint8Array(remote.length), remote);
    await connection.send('turn');
    (await connection.receive())!.release();
  }
  const blocked = said(worker);
  await connection.send('turn');
  expect(await blocked).toBe('blocked');
  // Much more than the ring holds: it could not go anywhere else.
  for (let i = 1; i <= 64; i++) await connection.write(new Uint8Array(remote.length).fill(i), remote);
  const seen = said(worker);
  Atomics.store(flag, 0, 1);
  Atomics.notify(flag, 0);
  expect(await seen).toEqual([64, 64, 1]);
});

it('a Write does not overtake one to the same memory under another STag', async () => {
  const pair = await connectedPair({ wire: 'shm' });
  const { client, server } = pair;
  const memory = server.device.allocateMemory(8);
  const [known, other] = [server.register(memory), server.register(memory)] as const;
  const write = (rkey: number, value: number): void => {
    const inline = new Uint8Array(8).fill(value);
    client.qp.postSend({ opcode: 'rdma-write', inline, rkey, remoteAddr: 0 });
  };
  for (const value of [1, 2, 3]) {
    write(known.rkey, value); // the second one asks for the memory, the third one is placed
    pair.run();
  }
  expect(server.qp.counters()?.messagesIn.writes).toBe(2);
  write(other.rkey, 4); // through the ring
  write(known.rkey, 5);
  pair.run();
  expect(server.qp.counters()?.messagesIn.writes).toBe(3);
  expect(memory[0]).toBe(5);
});

it('a Send behind a Write finds it placed, whatever way either has gone', async () => {
  const { client, server } = await pair();
  const region = server.allocate(4096, 'write');
  const remote = server.share(region);
  const words = new Uint32Array(region.bytes.buffer, region.bytes.byteOffset, 1024);
  for (let round = 1; round <= 3000; round++) {
    const bytes = new Uint8Array(new Uint32Array(1024).fill(round).buffer);
    const length = round % 3 === 0 ? 4 : 4096;
    const written = client.write(bytes.subarray(0, length), remote.slice(0, length));
    await Promise.all([written, client.send('look')]);
    (await server.receive())!.release();
    expect(words[0]).toBe(round);
    expect(words[length / 4 - 1]).toBe(round);
  }
});

it('a Write never overtakes an earlier one to the same memory', async () => {
  for (let round = 0; round < depth(10, 50); round++) {
    const { client, server } = await pair();
    const region = server.allocate(200_000, 'write');
    const remote = server.share(region);
    const writes: Promise<unknown>[] = [];
    for (let i = 1; i <= 20; i++) {
      writes.push(client.write(new Uint8Array(200_000).fill(i), remote));
      if (i % 5 === round % 5) await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(writes);
    await client.send('look');
    (await server.receive())!.release();
    expect([region.bytes[0], region.bytes.at(-1)]).toEqual([20, 20]);
    await client.close();
  }
});

describe('a grant', () => {
  it('ends with the registration: nothing is placed after deregister returns', async () => {
    const path = freshName();
    const worker = await thread(
      `const rnic = iwarp.openRnic({ wire: 'shm' });
       port.postMessage('ready');
       port.on('message', async () => {
         const connection = await iwarp.connect({ rnic, path: data.path });
         const remote = iwarp.RemoteBuffer.fromBytes((await connection.receive()).data);
         let value = 0;
         try {
           for (;;) await connection.write(new Uint8Array(remote.length).fill(++value), remote);
         } catch (error) { port.postMessage(error.code); }
       });`,
      { path },
    );
    const server = await createServer({ rnic }).listen({ path });
    const connections = server[Symbol.asyncIterator]();
    const untouched = Buffer.alloc(3 << 20, 0xee);
    for (let round = 0; round < 25; round++) {
      worker.postMessage(0);
      const connection = (await connections.next()).value as Connection;
      const region = connection.allocate(3 << 20, 'write');
      const { bytes } = region;
      await connection.send(connection.share(region).toBytes());
      while (bytes[0]! < 3 + round) await new Promise((resolve) => setImmediate(resolve));
      const failed = said(worker);
      const returned = region.deregister();
      const [first, last] = [bytes[0], bytes.at(-1)];
      bytes.fill(0xee);
      await returned;
      expect(await failed).toMatch(/^ERR_/);
      expect(first).toBeGreaterThan(0);
      expect(last).toBeGreaterThan(0);
      const { cause } = await connection.closed;
      // A copy that has not ended 100 ms after it ends the connection, and only the promise waits for it.
      if (cause === 'reset') bytes.fill(0xee);
      expect(Buffer.from(bytes.buffer).equals(untouched)).toBe(true);
    }
    await server.close();
  });

  it('is bounded to the byte, and what goes beyond ends the connection as over TCP', async () => {
    const { client, server } = await pair();
    const memory = new Uint8Array(new SharedArrayBuffer(12_288)).fill(0xcc);
    const region = server.register(memory.subarray(4096, 8192), 'write');
    const remote = server.share(region);
    await warm(client, server, remote);
    const beyond = new RemoteBuffer(remote.rkey, remote.address, 4097);
    await code(client.write(new Uint8Array(4097).fill(1), beyond));
    const { cause } = (await client.closed) as unknown as { cause: string };
    expect(cause).toBe('terminated');
    expect(memory.subarray(0, 4096).every((octet) => octet === 0xcc)).toBe(true);
    expect(memory.subarray(8192).every((octet) => octet === 0xcc)).toBe(true);
  });

  it('is not given without the right', async () => {
    const { client, server } = await pair();
    const secret = server.allocate(8192, 'read');
    const remote = server.share(secret);
    await code(client.write(new Uint8Array(8192).fill(1), remote));
    await client.closed;
    expect(secret.bytes.every((octet) => octet === 0)).toBe(true);
  });
});

it('a ticket for one use is used by one Write, whose bytes do not come past its owner', async () => {
  const { client, server } = await pair();
  const region = server.allocate(65_536, 'none');
  for (let round = 1; round < 4; round++) {
    const loan = server.lend(region, 'write', { uses: 1 });
    await client.write(new Uint8Array(65_536).fill(round), loan.ticket);
    expect(await loan.ended).toBe('used');
    expect(region.bytes.every((octet) => octet === round)).toBe(true);
  }
  const last = server.lend(region, 'write', { uses: 1 });
  const writes = [4, 5, 6].map((octet) =>
    code(client.write(new Uint8Array(65_536).fill(octet), last.ticket)),
  );
  await Promise.all(writes);
  expect((await server.closed).terminate).toMatchObject({ origin: 'local', layer: 1, type: 1, code: 0 });
  expect(region.bytes.every((octet) => octet === 4)).toBe(true);
});

it('many regions at once, more than a writer remembers', async () => {
  const { client, server } = await pair();
  const regions = Array.from({ length: 5000 }, () => server.allocate(4096, 'write'));
  for (let round = 1; round < 3; round++) {
    for (const [i, region] of regions.entries()) {
      await client.write(new Uint8Array(4096).fill(round + (i % 50)), server.share(region));
    }
    await client.send('look');
    (await server.receive())!.release();
    expect(regions.every(({ bytes }, i) => bytes[0] === round + (i % 50) && bytes.at(-1) === bytes[0])).toBe(
      true,
    );
  }
});
