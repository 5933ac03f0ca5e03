/** The wire `shm` between threads: by a name, by a port, through the promise layer and byte streams. */
import { once } from 'node:events';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connect, createServer, openRnic, RemoteBuffer, type Connection } from '../../src/index.ts';
import * as sockets from '../../src/sockets/index.ts';
import { freshName, said, thread } from './support.ts';

const rnic = openRnic({ wire: 'shm' });

/** Shares a region, and answers each message with the first bytes of the region. */
const SERVER = `
  const rnic = iwarp.openRnic({ wire: 'shm' });
  const server = await iwarp.createServer({ rnic }, async (connection) => {
    const memory = connection.allocate(1 << 20, 'all');
    const plain = connection.register(new Uint8Array(1 << 16), 'all');
    await connection.send(connection.share(memory).toBytes());
    await connection.send(connection.share(plain).toBytes());
    for (;;) {
      const message = await connection.receive();
      if (message === null) break;
      if (message.text() === 'end') await connection.close();
      else await connection.send(Uint8Array.of(memory.bytes[0], memory.bytes.at(-1), plain.bytes[0]));
    }
  }).listen(data.target);
  port.postMessage('ready');
`;

const remoteOf = async (connection: Connection): Promise<RemoteBuffer> =>
  RemoteBuffer.fromBytes((await connection.receive())!.data);

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'worked',
    ({ code, cause }: NodeJS.ErrnoException) => {
      const below = cause as NodeJS.ErrnoException | undefined;
      return below === undefined ? code : `${code} ${below.syscall} ${below.code}`;
    },
  );

describe('two threads', () => {
  it.each([
    ['a name', { path: freshName() }],
    ['a port', { host: '127.0.0.1', port: 4711 }],
  ])('connect by %s: messages, Writes, Reads, atomics, a close in order', async (_what, target) => {
    const worker = await thread(SERVER, { target });
    const connection = await connect({ rnic, ...target });
    const shared = await remoteOf(connection);
    const plain = await remoteOf(connection);
    for (let round = 1; round < 20; round++) {
      await connection.write(rnic.device.allocateMemory(1 << 20).fill(round), shared);
      await connection.write(new Uint8Array(1 << 16).fill(100 + round), plain);
      await connection.send('look');
      expect([...(await connection.receive())!.data]).toEqual([round, round, 100 + round]);
    }
    const back = new Uint8Array(1 << 20);
    await connection.read(shared, back);
    expect(back.every((octet) => octet === 19)).toBe(true);
    const counter = shared.slice(8, 16);
    await connection.write(new Uint8Array(8), counter);
    const adds = await Promise.all(Array.from({ length: 50 }, () => connection.fetchAdd(counter, 1n)));
    expect(adds.map(Number)).toEqual(Array.from({ length: 50 }, (_, i) => i));
    await connection.send('end');
    expect(await connection.receive()).toBeNull();
    await connection.close();
    await worker.terminate();
  });

  it('that are both workers connect without anything from this one', async () => {
    const path = freshName();
    await thread(SERVER, { target: { path } });
    const client = await thread(
      `port.postMessage('ready');
       const rnic = iwarp.openRnic({ wire: 'shm' });
       const connection = await iwarp.connect({ rnic, path: data.path });
       const remote = iwarp.RemoteBuffer.fromBytes((await connection.receive()).data);
       await connection.receive();
       await connection.write(new Uint8Array(1 << 20).fill(9), remote);
       await connection.send('look');
       port.postMessage([...(await connection.receive()).data]);`,
      { path },
    );
    expect(await said(client)).toEqual([9, 9, 0]);
  });

  it('carry byte streams', async () => {
    const server = sockets.createServer({ rnic }, (socket) => socket.pipe(socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const client = await thread(
      `port.postMessage('ready');
       const rnic = iwarp.openRnic({ wire: 'shm' });
       const socket = sockets.connect({ rnic, host: '127.0.0.1', port: data.port });
       let octets = 0;
       socket.on('data', (piece) => (octets += piece.length)).on('end', () => port.postMessage(octets));
       for (let i = 0; i < 50; i++) socket.write(Buffer.alloc(100_000, i));
       socket.end();`,
      { port: (server.address() as { port: number }).port },
    );
    expect(await said(client)).toBe(5_000_000);
    await new Promise((resolve) => server.close(resolve));
  });

  it('see private data of a request and of its refusal', async () => {
    const path = freshName();
    const worker = await thread(
      `const rnic = iwarp.openRnic({ wire: 'shm' });
       await iwarp.createServer({ rnic, onRequest: ({ privateData }) => {
         port.postMessage(Buffer.from(privateData).toString());
         throw new iwarp.RejectedError('no', Buffer.from('no'));
       } }).listen({ path: data.path });
       port.postMessage('ready');`,
      { path },
    );
    const heard = said(worker);
    const refused = connect({ rnic, path, privateData: Buffer.from('please') });
    expect(await failure(refused)).toBe('ERR_REJECTED');
    expect(await heard).toBe('please');
  });
});

describe('a thread that ends', () => {
  const QUIET = `
    const rnic = iwarp.openRnic({ wire: 'shm' });
    await iwarp.createServer({ rnic }, (connection) => connection.send('here')).listen({ path: data.path });
    port.on('message', () => {
      if (data.how === 'exit') process.exit(3);
      setImmediate(() => { throw new Error('over'); });
    });
    port.postMessage('ready');`;

  it.each(['terminate', 'exit', 'throw'])('by %s ends its connections with an error', async (how) => {
    const path = freshName();
    const worker = await thread(QUIET, { path, how });
    worker.on('error', () => undefined);
    const connection = await connect({ rnic, path });
    await connection.receive();
    const waiting = failure(connection.receive());
    const sends = Array.from({ length: 200 }, () => failure(connection.send(new Uint8Array(4000))));
    if (how === 'terminate') await worker.terminate();
    else worker.postMessage(0);
    expect(await waiting).toMatch(/^ERR_(CONNECTION_LOST|CONNECTION_RESET|CLOSED)/);
    expect(new Set(await Promise.all(sends)).size).toBeGreaterThan(0);
    await connection.closed;
  });
});

describe('a thread that hangs', () => {
  it('loses its connection where a heartbeat asks for a sign of life', async () => {
    const path = freshName();
    const flag = new Int32Array(new SharedArrayBuffer(4));
    onTestFinished(() => void Atomics.store(flag, 0, 1));
    await thread(
      `const rnic = iwarp.openRnic({ wire: 'shm' });
       await iwarp.createServer({ rnic }, () => {
         while (Atomics.load(data.flag, 0) === 0);
       }).listen({ path: data.path });
       port.postMessage('ready');`,
      { path, flag },
    );
    const connection = await connect({ rnic, path, heartbeat: { interval: 50, timeout: 150 } });
    const { cause, error } = await connection.closed;
    expect([cause, error?.code]).toEqual(['timeout', 'ERR_TIMEOUT']);
    expect(error?.message).toMatch(/did not answer a heartbeat/);
  });
});

describe('names', () => {
  it('that nobody has are refused, and those of another thread are in use', async () => {
    expect(await failure(connect({ rnic, path: freshName() }))).toBe('ERR_CONNECT connect ECONNREFUSED');
    const path = freshName();
    const worker = await thread(SERVER, { target: { path } });
    // A thread that has had no processor for a quarter of a second has not answered: then it is asked again.
    for (let taken: unknown = 'worked'; taken === 'worked'; ) {
      const second = createServer({ rnic });
      taken = await failure(second.listen({ path }));
      if (taken === 'worked') await second.close();
      else expect(taken).toBe('ERR_CONNECT listen EADDRINUSE');
    }
    await worker.terminate();
    const server = await createServer({ rnic }).listen({ path });
    expect(await failure(createServer({ rnic }).listen({ path }))).toBe('ERR_CONNECT listen EADDRINUSE');
    await server.close();
  });

  it('go with no engine in a worker, no transport, no TLS', async () => {
    expect(() => openRnic({ wire: 'shm', engine: 'worker' })).toThrow(/open a device in each/);
    expect(await failure(connect({ rnic, host: '127.0.0.1', port: 1, tls: true }))).toBe('ERR_NOT_SUPPORTED');
  });
});

describe('a MessagePort', () => {
  it('carries any number of connections in both directions, and stays the program’s', async () => {
    const { port1, port2 } = new MessageChannel();
    const worker = await thread(
      `port.postMessage('ready');
       const rnic = iwarp.openRnic({ wire: 'shm' });
       const { messagePort } = data;
       const answer = (one) => one.send("from the worker");
       const server = await iwarp.createServer({ rnic }, answer).listen({ messagePort });
       for (let i = 0; i < 3; i++) {
         const connection = await iwarp.connect({ rnic, messagePort });
         port.postMessage((await connection.receive()).text());
         await connection.close();
       }
       messagePort.postMessage('the program’s own');`,
      { messagePort: port2 },
      [port2],
    );
    let count = 0;
    const heard: unknown[] = [];
    port1.on('message', (message) => heard.push(message));
    const server = await createServer({ rnic }, (one) => one.send(`hello ${++count}`)).listen({
      messagePort: port1,
    });
    expect(server.address()).toEqual({ address: 'MessagePort', port: 0, family: 'Unix' });
    const connection = await connect({ rnic, messagePort: port1 });
    expect((await connection.receive())!.text()).toBe('from the worker');
    for (const text of ['hello 1', 'hello 2', 'hello 3']) expect(await said(worker)).toBe(text);
    await connection.close();
    await server.close();
    while (!heard.includes('the program’s own')) await once(port1, 'message');
    port1.close();
  });

  it('goes with this wire alone, and with no other name', async () => {
    const { port1 } = new MessageChannel();
    const own = { messagePort: port1 };
    expect(await failure(connect({ ...own, rnic: openRnic() }))).toBe('ERR_NOT_SUPPORTED');
    expect(await failure(createServer({ rnic: openRnic() }).listen(own))).toBe('ERR_NOT_SUPPORTED');
    for (const more of [{ path: 'x' }, { port: 1 }, { host: 'localhost' }, { tls: true }])
      expect(await failure(connect({ ...own, ...more, rnic }))).toBe('ERR_INVALID_ARGUMENT');
    expect(await failure(connect({ rnic, messagePort: {} as MessagePort }))).toBe('ERR_INVALID_ARGUMENT');
    port1.close();
    expect(await failure(connect({ ...own, rnic }))).toBe('ERR_CONNECT connect ECONNREFUSED');
  });
});
