/**
 * Peers that break the protocol of requests, large messages and streams: one loses its connection, no
 * other.
 */
import { describe, expect, it, onTestFinished } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { connect, createServer, type Connection } from '../../src/index.ts';
import { rnicOf, WORLDS } from './support.ts';

/** The first bytes of a batch. */
const MARK = Buffer.from('IWRPfrms');
const [
  REQUEST,
  REPLY,
  ERROR,
  CANCEL,
  LOOKUP,
  ANNOUNCE,
  DONE,
  REFUSE,
  WITHDRAW,
  OPEN,
  DATA,
  WINDOW,
  END,
  RESET,
  PART,
] = Array.from({ length: 15 }, (_, i) => i + 1) as [
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
];

/** A frame as docs and code describe it, written here by hand. */
function frame(
  type: number,
  id: number,
  payload: Uint8Array = new Uint8Array(0),
  number = 0,
  flags = 0,
): Buffer {
  const head = Buffer.alloc(16);
  head[0] = type;
  head[1] = flags;
  head.writeUInt32BE(id, 4);
  head.writeUInt32BE(payload.length, 8);
  head.writeUInt32BE(number, 12);
  return Buffer.concat([head, payload]);
}

/** An announcement: a ticket to `length` bytes at `rkey`. */
function announced(rkey: number, length: number): Buffer {
  const body = Buffer.alloc(20);
  body.writeUInt32BE(rkey, 8);
  body.writeUInt32BE(length, 12);
  return body;
}

function forge(from: Connection, batch: Uint8Array): void {
  const mr = from.allocate(MARK.length + batch.length, 'none');
  mr.bytes.set(MARK);
  mr.bytes.set(batch, MARK.length);
  from.queuePair.postSend({ opcode: 'send', solicited: true, sges: [{ mr }] });
}

describe.each(WORLDS)('a peer that forges frames, %s', (world) => {
  async function served(): Promise<{
    hostile(): Promise<Connection>;
    honest: Connection;
    ends: Promise<unknown>[];
  }> {
    const rnic = rnicOf(world);
    const ends: Promise<unknown>[] = [];
    const server = await createServer({ rnic, maxRequests: 4, maxLargeMessage: 1 << 20 }, (connection) => {
      ends.push(connection.closed.then(({ error }) => error?.code));
      void connection
        .serve(async (request) => {
          if (request.text() === 'wait') await new Promise(() => undefined);
          return request.data;
        })
        .catch(() => undefined);
    }).listen({ host: '127.0.0.1', port: 0 });
    const to = { rnic, host: '127.0.0.1', port: server.address().port };
    const honest = await connect(to);
    const all = [honest];
    onTestFinished(async () => {
      for (const connection of all) connection.destroy();
      await server.close();
    });
    const hostile = async (): Promise<Connection> => {
      const connection = await connect(to);
      all.push(connection);
      return connection;
    };
    return { hostile, honest, ends };
  }

  const text = (words: string): Buffer => Buffer.from(words);
  it.each([
    ['a batch that ends in a header', Buffer.alloc(15)],
    ['a payload beyond the batch', frame(REQUEST, 0, text('abc')).subarray(0, 18)],
    ['a type that there is not', frame(99, 0)],
    ['a reply that nobody asked for', frame(REPLY, 0)],
    ['an error that nobody asked for', frame(ERROR, 7)],
    ['a request beyond the limit', frame(REQUEST, 4, text('x'))],
    ['a slot twice', Buffer.concat([frame(REQUEST, 0, text('wait')), frame(REQUEST, 0, text('wait'))])],
    ['a done that is forged', frame(DONE, 3)],
    ['a refusal that is forged', frame(REFUSE, 3)],
    ['an announcement that is too short', frame(ANNOUNCE, 0, Buffer.alloc(19))],
    ['an announcement of a reply', frame(ANNOUNCE, 0, announced(1, 20_000), 0, 2)],
    ['an announcement twice', Buffer.concat([0, 0].map(() => frame(ANNOUNCE, 1, announced(1, 1 << 20))))],
    ['an announcement beyond the limit of slots', frame(ANNOUNCE, 64, announced(1, 20_000))],
    ['bytes of no stream', frame(DATA, 0, text('x'))],
    ['an end of no stream', frame(END, 0)],
    ['a window that overflows', Buffer.concat([frame(OPEN, 0), frame(WINDOW, 0, undefined, 0xffff_ffff)])],
    ['bytes after the end', Buffer.concat([frame(OPEN, 0), frame(END, 0), frame(DATA, 0, text('x'))])],
    ['a stream twice', Buffer.concat([frame(OPEN, 0), frame(OPEN, 0)])],
    ['a part that is larger than all', frame(PART, 0, text('abc'), 2, 1)],
    ['a part of more than may come in parts', frame(PART, 0, text('a'), 5 * 16_384 + 1, 1)],
    ['a part that says another length', Buffer.concat([2, 3].map((n) => frame(PART, 0, text('a'), n, 1)))],
    ['a part of a reply that nobody asked for', frame(PART, 0, text('a'), 2, 2)],
    ['a part of no kind', frame(PART, 0, text('a'), 2, 0)],
    [
      'a part for a slot in use',
      Buffer.concat([frame(REQUEST, 0, text('wait')), frame(PART, 0, text('a'), 2, 1)]),
    ],
    ['a last part without others', frame(REQUEST, 0, text('a'), 0, 2)],
    [
      'a whole that is too short',
      Buffer.concat([frame(PART, 0, text('a'), 3, 1), frame(REQUEST, 0, text('b'), 0, 2)]),
    ],
    ['a name that is too long', frame(LOOKUP, 0, Buffer.alloc(256))],
  ])('%s ends its connection with ERR_PROTOCOL, and no other', async (_, batch) => {
    const { hostile, honest, ends } = await served();
    forge(await hostile(), batch);
    await expect.poll(() => ends.length).toBe(2);
    expect(await ends[1]).toBe('ERR_PROTOCOL');
    expect(String(await honest.request('still served'))).toBe('still served');
  });

  it('4 GiB that are announced are refused without memory, and lawful nonsense does no harm', async () => {
    const { hostile, honest, ends } = await served();
    const peer = await hostile();
    const before = process.memoryUsage().arrayBuffers;
    forge(peer, frame(ANNOUNCE, 0, announced(1, 0xffff_ffff)));
    forge(peer, Buffer.concat([frame(CANCEL, 9), frame(WITHDRAW, 9), frame(RESET, 9), frame(WINDOW, 9)]));
    await honest.request('x');
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(8 << 20);
    expect(ends).toHaveLength(2);
    expect(honest.state).toBe('open');
  });

  it('a ticket that is forged ends the connection when it is read', async () => {
    const { hostile, honest, ends } = await served();
    forge(await hostile(), frame(ANNOUNCE, 0, announced(0x1234, 20_000)));
    await expect.poll(() => ends.length).toBe(2);
    expect(await ends[1]).toBe('ERR_TERMINATED');
    expect(String(await honest.request('still served'))).toBe('still served');
  });

  it('random frames end in an error of one connection or in nothing', async () => {
    const { hostile, honest } = await served();
    for (let seed = 0; seed < 40; seed++) {
      const random = seededRandom(seed);
      const peer = await hostile();
      const frames = Array.from({ length: 8 }, () =>
        frame(
          random() % 18,
          random() % 5,
          Buffer.from(Array.from({ length: random() % 40 }, () => random() & 0xff)),
          random() % 3 === 0 ? random() : random() % 70_000,
          random() % 4,
        ),
      );
      const batch = Buffer.concat(frames);
      forge(peer, batch.subarray(0, random() % 3 === 0 ? random() % batch.length : batch.length));
      await honest.request(String(seed));
      peer.destroy();
    }
    expect(honest.state).toBe('open');
  });
});
