// Two copies of the package in one process, as an application and a library of its may have them.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import * as mine from '../../src/index.ts';
import * as myVerbs from '../../src/verbs/index.ts';
import { NbdError } from '../../src/nbd/index.ts';

let theirs: typeof mine;
let theirVerbs: typeof myVerbs;
let TheirNbdError: typeof NbdError;

beforeAll(async () => {
  vi.resetModules();
  theirs = await import('../../src/index.ts');
  theirVerbs = await import('../../src/verbs/index.ts');
  ({ NbdError: TheirNbdError } = await import('../../src/nbd/index.ts'));
  expect(theirs.IwarpError).not.toBe(mine.IwarpError);
});

const ends: { close(): unknown }[] = [];
afterAll(async () => {
  for (const end of ends) await end.close();
});

it('an error is one of its class in both, and of no other class', () => {
  const privateData = new Uint8Array(0);
  const made = [
    new theirs.IwarpError('ERR_LIMIT', 'x'),
    new theirs.RejectedError('x', privateData),
    new TheirNbdError('EIO', 'x'),
  ];
  const classes = [mine.IwarpError, mine.RejectedError, mine.TerminateError, mine.OperationError, NbdError];
  expect(made.map((error) => classes.map((type) => error instanceof type))).toEqual([
    [true, false, false, false, false],
    [true, true, false, false, false],
    [true, false, false, false, true],
  ]);
  expect(new mine.RejectedError('x', privateData)).toBeInstanceOf(theirs.RejectedError);
});

it('a subclass of the program, other objects and other values are told apart as always', () => {
  class Own extends mine.IwarpError {}
  const own = new Own('ERR_LIMIT', 'x');
  expect([own instanceof Own, own instanceof mine.IwarpError, own instanceof theirs.IwarpError]).toEqual([
    true,
    true,
    true,
  ]);
  expect(new theirs.IwarpError('ERR_LIMIT', 'x')).not.toBeInstanceOf(Own);
  for (const value of [null, undefined, 1, 'x', {}, [], new Error('x'), Object.create(null)])
    expect((value as unknown) instanceof mine.IwarpError).toBe(false);
  expect(Object.keys(own)).not.toContain('iwarp.IwarpError');
});

it('a region of another copy is a region, and refused as one of another domain', () => {
  const [here, there] = [new myVerbs.Device(), new theirVerbs.Device()];
  const pd = here.allocatePd();
  const cq = here.createCq(8);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const foreign = there.allocatePd().registerMemory(new Uint8Array(8), myVerbs.ACCESS.LOCAL_WRITE);
  expect(foreign).toBeInstanceOf(myVerbs.MemoryRegion);
  expect(there.allocatePd().allocateMw()).toBeInstanceOf(myVerbs.MemoryWindow);
  const mr = foreign as unknown as myVerbs.MemoryRegion;
  expect(() => qp.postRecv({ sges: [{ mr }] })).toThrow(
    expect.objectContaining({ code: 'ERR_WRONG_PD', message: expect.stringContaining('another copy') }),
  );
  expect(() => qp.postSend({ opcode: 'local-invalidate', target: mr } as never)).toThrow();
});

describe('a ticket of another copy', () => {
  it('works in every call that takes one', async () => {
    const server = await mine
      .createServer(async (connection) => {
        const region = connection.allocate(8, 'all');
        await connection.send(connection.share(region).toBytes());
        await connection.closed;
      })
      .listen({ host: '127.0.0.1' });
    ends.push(server);
    const client = await mine.connect({ host: '127.0.0.1', port: server.address().port });
    ends.unshift(client);
    const message = await client.receive();
    const ticket = theirs.RemoteBuffer.fromBytes(message!.data);
    expect(ticket).toBeInstanceOf(mine.RemoteBuffer);
    await client.write(new Uint8Array(8).fill(5), ticket as unknown as mine.RemoteBuffer);
    const back = await client.read(ticket.slice(0, 4) as unknown as mine.RemoteBuffer);
    expect([...back]).toEqual([5, 5, 5, 5]);
  });
});
