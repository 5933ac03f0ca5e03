/**
 * The AsyncLocalStorage store in which each function of a program runs that promises, connection manager and
 * verbs call, with both engines; and what hooks of `node:async_hooks` see.
 */
import { AsyncLocalStorage, createHook } from 'node:async_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, createServer, openRnic, type EngineKind, type Rnic } from '../../src/index.ts';
import type { CmEvent, PassiveConnection } from '../../src/cm/index.ts';
import { createWorkCompletion, type CompletionQueue, type QueuePair } from '../../src/verbs/index.ts';

const store = new AsyncLocalStorage<string>();
const within = <T>(name: string, task: () => T): T => store.run(name, task);

/** Each name with the stores that were seen there. */
class Seen {
  readonly #stores = new Map<string, Set<string>>();

  note(name: string): void {
    const stores = this.#stores.get(name) ?? new Set<string>();
    this.#stores.set(name, stores.add(store.getStore() ?? 'none'));
  }

  get table(): Record<string, string> {
    return Object.fromEntries([...this.#stores].map(([name, stores]) => [name, [...stores].join(' and ')]));
  }
}

const TO = { host: '127.0.0.1', port: 0 };
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

async function promises(rnic: Rnic): Promise<Record<string, string>> {
  const seen = new Seen();
  const server = createServer(
    {
      rnic,
      onRequest: ({ privateData }) => {
        seen.note('onRequest');
        if (privateData.length > 0) throw new Error('private data');
      },
      onError: (_error, connection) =>
        void seen.note(connection === undefined ? 'onError of onRequest' : 'onError of the function'),
    },
    async (connection) => {
      seen.note('function, at first');
      const serving = within('serving', () => connection.serve(() => seen.note('handler of serve')));
      for await (const stream of connection.streams()) {
        seen.note('streams');
        stream.on('data', () => seen.note('stream: data'));
        stream.on('end', () => seen.note('stream: end'));
        stream.end();
        break;
      }
      for await (const message of connection) {
        seen.note('messages');
        message.release();
      }
      await serving;
      seen.note('function, at the end');
      throw new Error('the function');
    },
  );
  await within('listen', () => server.listen(TO));
  const { port } = server.address();
  const ours = { ...TO, port, rnic };
  await within('connect', async () => {
    const connection = await connect(ours);
    seen.note('connect resolves');
    void connection.closed.then(() => seen.note('closed'));
    await within('request', async () => {
      await connection.request('?');
      seen.note('request resolves');
    });
    const stream = connection.stream('one');
    stream.resume();
    await within('long write', async () => {
      await new Promise<void>(
        (resolve) =>
          void stream.write(Buffer.alloc(8 << 20), () => resolve(seen.note('callback of a long write'))),
      );
    });
    const queued = (job: string): Promise<void> =>
      within(
        job,
        () =>
          new Promise(
            (resolve) =>
              void stream.write(Buffer.alloc(4 << 20), () => resolve(seen.note(`callback of ${job}`))),
          ),
      );
    await Promise.all([queued('queued write 1'), queued('queued write 2')]);
    await within(
      'ending',
      () => new Promise<void>((resolve) => void stream.end(() => resolve(seen.note('callback of end')))),
    );
    await connection.send('hello');
    await connection.close();
  });
  await within('rejected', () =>
    connect({ ...ours, privateData: Buffer.from('x') }).catch(() => seen.note('connect rejects')),
  );
  while (seen.table['onError of the function'] === undefined) await turn();
  await server.close();
  return seen.table;
}

async function verbs(rnic: Rnic): Promise<Record<string, string>> {
  const { device, cm } = rnic;
  const seen = new Seen();
  within('asynchronous', () =>
    device.setAsyncEventHandler(() => seen.note('handler of asynchronous events')),
  );
  const pd = device.allocatePd();
  const channel = device.createCompletionChannel();
  const queue = (cq: CompletionQueue): QueuePair => pd.createQp({ sendCq: cq, recvCq: cq });
  const [a, b] = [device.createCq(8), device.createCq(8, { channel })] as const;
  const [qpA, qpB] = [queue(a), queue(b)];
  const notified: string[] = [];
  const notify = (name: string, what: string): void => {
    seen.note(what);
    notified.push(name);
  };
  within('notifications', () => a.setHandler(() => notify('a', 'handler of a queue')));
  within('channel', () => channel.setHandler(() => notify('b', 'handler of a channel')));
  let passive: PassiveConnection | null = null;
  const ended: CmEvent[] = [];
  const handler =
    (name: string) =>
    (event: CmEvent): void => {
      seen.note(`${name}: ${event.type}`);
      if (event.type === 'disconnected') ended.push(event);
    };
  const listener = await within('listen', () =>
    cm.listen({ ...TO, onFailure: () => void seen.note('onFailure') }, (request) => {
      seen.note('onRequest');
      passive = request;
      within('accepting', () => {
        request.setHandler(handler('passive'));
        request.accept(qpB);
      });
    }),
  );
  const active = within('connect', () => cm.connect(qpA, { ...TO, port: listener.address.port }));
  const established = new Promise<void>((resolve) =>
    within('handler', () =>
      active.setHandler((event) => {
        handler('active')(event);
        if (event.type === 'established') resolve();
      }),
    ),
  );
  await established;
  a.requestNotify();
  b.requestNotify();
  const mr = pd.registerMemory(device.newMemory(64), 1);
  qpB.postRecv({ wrId: 1, sges: [{ mr, offset: 0, length: 64 }] });
  within('posting', () => qpA.postSend({ wrId: 2, opcode: 'send', sges: [{ mr, offset: 0, length: 8 }] }));
  while (!notified.includes('a') || !notified.includes('b')) await turn();
  for (const cq of [a, b]) cq.poll([createWorkCompletion()]);
  within('aborting', () => passive!.abort());
  while (ended.length < 2) await turn();
  within('closing', () => listener.close(() => seen.note('close')));
  while (seen.table['close'] === undefined) await turn();
  device.setAsyncEventHandler(null);
  for (const object of [qpA, qpB, a, b]) object.destroy();
  channel.destroy();
  mr.deregister();
  pd.deallocate();
  return seen.table;
}

describe.each<EngineKind>(['thread', 'worker'])('with the engine %s', (engine) => {
  let rnic: Rnic;
  beforeAll(async () => {
    rnic = openRnic({ engine });
    // The code that uses the device first, in whose store an engine's messages arrive.
    await within('first', async () => {
      const server = await createServer({ rnic }, () => undefined).listen(TO);
      await (await connect({ ...TO, port: server.address().port, rnic })).close();
      await server.close();
    });
  });
  afterAll(() => rnic.device.close());

  it('promises: each function runs in the store of its call, or of listen', async () => {
    expect(await promises(rnic)).toEqual({
      onRequest: 'listen',
      'onError of onRequest': 'listen',
      'onError of the function': 'listen',
      'function, at first': 'listen',
      'function, at the end': 'listen',
      'handler of serve': 'serving',
      streams: 'listen',
      'stream: data': 'listen',
      'stream: end': 'listen',
      messages: 'listen',
      'connect resolves': 'connect',
      'request resolves': 'request',
      'callback of a long write': 'long write',
      'callback of queued write 1': 'queued write 1',
      'callback of queued write 2': 'queued write 2',
      'callback of end': 'ending',
      closed: 'connect',
      'connect rejects': 'rejected',
    });
  });

  it('verbs and the connection manager: likewise', async () => {
    const table = await verbs(rnic);
    expect(table).toMatchObject({
      onRequest: 'listen',
      'passive: established': 'listen',
      'passive: disconnected': 'listen',
      'active: established': 'connect',
      'active: disconnected': 'connect',
      'handler of a queue': 'notifications',
      'handler of a channel': 'channel',
      'handler of asynchronous events': 'asynchronous',
      close: 'closing',
    });
    for (const [name, stores] of Object.entries(table))
      expect(`${name}: ${stores}`).not.toMatch(/first|none/);
  });

  it('hooks see each context and its end, and nothing keeps a connection that has ended', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const alive = new Map<number, string>();
    const types = new Set<string>();
    const hook = createHook({
      init: (id, type) => {
        if (!type.startsWith('IWARP_')) return;
        alive.set(id, type);
        types.add(type);
      },
      destroy: (id) => void alive.delete(id),
    }).enable();
    try {
      await promises(rnic);
      expect([...types]).toEqual(
        expect.arrayContaining(['IWARP_LISTENER', 'IWARP_CONNECTION', 'IWARP_CALL']),
      );
      while (alive.size > 0) {
        await turn();
        collect();
      }
    } finally {
      hook.disable();
    }
  });
});
