/** Iteration over messages is what an async generator over `receive` would be: each test has both. */
import { describe, expect, it } from 'vitest';
import type { Connection, Message } from '../../src/index.ts';
import type { OperationOptions } from '../../src/api/operations.ts';
import { pair } from './support.ts';

type Iteration = AsyncGenerator<Message, void, undefined>;
type Make = (connection: Connection, options?: OperationOptions) => Iteration;

async function* generator(connection: Connection, options: OperationOptions = {}): Iteration {
  for (
    let message = await connection.receive(options);
    message !== null;
    message = await connection.receive(options)
  )
    yield message;
}

/** The last says whether it takes a signal. */
const KINDS: readonly (readonly [string, Make, boolean])[] = [
  ['messages()', (connection, options) => connection.messages(options), true],
  ['for await over the connection', (connection) => connection[Symbol.asyncIterator](), false],
  ['an async generator', generator, true],
];

const text = (message: Message | void): string | undefined => {
  const read = message?.data === undefined ? undefined : Buffer.from(message.data).toString();
  message?.release();
  return read;
};
const said = async (step: Promise<IteratorResult<Message, void>>): Promise<unknown> => {
  try {
    const { value, done } = await step;
    return done === true ? 'over' : text(value);
  } catch (error) {
    return (error as { code?: string }).code ?? (error as Error).message;
  }
};

describe.each(KINDS)('%s', (_name, make) => {
  it('gives earlier and later messages, in order, and is over when the peer has closed', async () => {
    const { client, server } = await pair('memory');
    await Promise.all(['a', 'b'].map((each) => client.send(each)));
    const read: unknown[] = [];
    const reading = (async () => {
      for await (const message of make(server)) read.push(text(message));
    })();
    for (const each of ['c', 'd']) await client.send(each);
    await client.close();
    await reading;
    expect(read).toEqual(['a', 'b', 'c', 'd']);
    const late = make(server);
    expect([await said(late.next()), await said(late.next())]).toEqual(['over', 'over']);
  });

  it('serves calls in their order, made before the messages come; the end is for all of them', async () => {
    const { client, server } = await pair('memory');
    const iteration = make(server);
    const steps = Promise.all([1, 2, 3, 4].map(() => said(iteration.next())));
    for (const each of ['a', 'b']) await client.send(each);
    await client.close();
    expect(await steps).toEqual(['a', 'b', 'over', 'over']);
  });

  it('leaves messages to others after the loop is left', async () => {
    const { client, server } = await pair('memory');
    for (const each of ['a', 'b']) await client.send(each);
    const iteration = make(server);
    const read: unknown[] = [];
    for await (const message of iteration) {
      read.push(text(message));
      break;
    }
    expect(read).toEqual(['a']);
    expect(await said(iteration.next())).toBe('over');
    expect(text((await server.receive())!)).toBe('b');
  });

  it('is over after return and throw', async () => {
    const { client, server } = await pair('memory');
    await client.send('a');
    const [returned, thrown] = [make(server), make(server)];
    expect(await returned.return()).toEqual({ value: undefined, done: true });
    await expect(thrown.throw(new Error('enough'))).rejects.toThrow('enough');
    for (const iteration of [returned, thrown]) {
      expect(await said(iteration.next())).toBe('over');
      expect(await iteration.return()).toEqual({ value: undefined, done: true });
    }
    expect(text((await server.receive())!)).toBe('a');
  });

  it('fails once when the connection fails, behind the messages that had come', async () => {
    const { client, server } = await pair('memory');
    await client.send('a');
    const iteration = make(server);
    expect(await said(iteration.next())).toBe('a');
    const steps = Promise.all([1, 2, 3].map(() => said(iteration.next())));
    client.destroy();
    expect(await steps).toEqual(['ERR_CONNECTION_RESET', 'over', 'over']);
    expect(await said(iteration.next())).toBe('over');
    expect(await said(make(server).next())).toBe('ERR_CONNECTION_RESET');
  });
});

describe.each(KINDS.filter(([, , signal]) => signal))('%s', (_name, make) => {
  it('ends with its signal: no message is taken afterwards, and none is lost', async () => {
    const { client, server } = await pair('memory');
    const controller = new AbortController();
    const iteration = make(server, { signal: controller.signal });
    await client.send('a');
    expect(await said(iteration.next())).toBe('a');
    const waiting = said(iteration.next());
    controller.abort();
    await client.send('b');
    expect(await waiting).toBe('ERR_ABORTED');
    expect(await said(iteration.next())).toBe('over');
    expect(await said(make(server, { signal: controller.signal }).next())).toBe('ERR_ABORTED');
    expect(text((await server.receive())!)).toBe('b');
  });
});

describe('messages()', () => {
  it('throws at once for wrong options, without a call of next', async () => {
    const { server } = await pair('memory');
    expect(() => server.messages({ signal: 1 as never })).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }) as Error,
    );
  });

  it('can be given up by `await using`', async () => {
    const { server } = await pair('memory');
    const iteration = server.messages();
    await iteration[Symbol.asyncDispose]();
    expect(await said(iteration.next())).toBe('over');
  });
});
