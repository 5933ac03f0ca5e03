// What a connection and its completions say of the link and of a refusal: the same with both engines.
import { afterAll, describe, expect, it, vi } from 'vitest';
import { connect, createServer, openRnic, type Rnic } from '../../src/index.ts';
import { ACCESS, createWorkCompletion } from '../../src/verbs/index.ts';
import { interfaceMtu } from '../../src/transport/interface-mtu.ts';
import { TERM } from '../../src/base/terminate-codes.ts';
import { connectedPair } from '../support/pair.ts';
import { End, join, memory, openWorkers, stop, until } from '../engine/support.ts';

const rnics: Readonly<Record<'thread' | 'worker', Rnic>> = {
  thread: openRnic({ engine: 'thread' }),
  worker: openWorkers(),
};
afterAll(() => stop(rnics.worker));

describe.each(['thread', 'worker'] as const)('engine %s', (engine) => {
  const rnic = rnics[engine];

  it('queryPort has the MTU of the interface, in both roles', async () => {
    const [client, server] = [new End(rnic), new End(rnic)];
    expect(client.connection).toBe(null);
    await join(client, server);
    const mtu = interfaceMtu('127.0.0.1');
    expect(mtu).toBeGreaterThan(1000);
    for (const end of [client, server]) {
      expect(end.connection!.queryPort()).toEqual({
        state: 'active',
        activeMtu: mtu,
        emss: 65_483,
        maxMessage: 0xffff_ffff,
      });
    }
    client.connection!.abort();
    await until(() => client.connection!.finished);
    expect(client.connection!.queryPort()?.state).toBe('down');
  });

  it('vendorError is the Terminate that refused a request, and 0 elsewhere', async () => {
    const [client, server] = [new End(rnic), new End(rnic)];
    await join(client, server);
    const sink = memory(client, 64);
    const hidden = memory(server, 64, ACCESS.LOCAL_WRITE);
    const read = { opcode: 'rdma-read', sges: [{ mr: sink }], remoteAddr: 0 } as const;
    client.qp.postSend([
      { ...read, wrId: 1, rkey: memory(server, 64).rkey },
      { ...read, wrId: 2, rkey: hidden.rkey },
      { ...read, wrId: 3, rkey: hidden.rkey },
    ]);
    const completions = await client.completed(3);
    expect(completions.map(({ wrId, status, vendorError }) => [wrId, status, vendorError])).toEqual([
      [1, 'success', 0],
      [2, 'remote-access-error', TERM.RDMAP_ACCESS],
      [3, 'flushed', 0],
    ]);
    const { terminate } = client.qp.query();
    expect((terminate!.layer << 12) | (terminate!.type << 8) | terminate!.code).toBe(TERM.RDMAP_ACCESS);
  });
});

it('vendorError stays with its completion when the queue pair goes on, and is not left behind', async () => {
  const pair = await connectedPair();
  const { client, server } = pair;
  const mr = client.register(8);
  const hidden = server.register(8, ACCESS.LOCAL_WRITE);
  client.qp.postSend({
    wrId: 1,
    opcode: 'rdma-read',
    sges: [{ mr }],
    rkey: hidden.rkey,
    remoteAddr: 0,
  });
  pair.run();
  client.qp.modify({ state: 'idle' });
  expect(client.qp.query().terminate).toBeUndefined();
  const out = [{ ...createWorkCompletion(), vendorError: 99 }];
  expect(client.sendCq.poll(out)).toBe(1);
  expect(out[0]).toMatchObject({ status: 'remote-access-error', vendorError: TERM.RDMAP_ACCESS });
  client.qp.modify({ state: 'error' });
  client.qp.postSend({ wrId: 2, opcode: 'send' });
  pair.run();
  expect(client.sendCq.poll(out)).toBe(1);
  expect(out[0]).toMatchObject({ wrId: 2, status: 'flushed', vendorError: 0 });
});

it('a region without named rights warns once in a process; with rights there is no warning', async () => {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
  const given = (): unknown[] =>
    warn.mock.calls.filter(([, options]) => JSON.stringify(options).includes('IWARP_ALL_RIGHTS'));
  const rnic = rnics.thread;
  const server = await createServer({ rnic }).listen({ host: '127.0.0.1' });
  const connection = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
  for (const rights of ['none', 'read', 'write', 'read-write', 'all'] as const)
    connection.allocate(8, rights);
  expect(given()).toEqual([]);
  connection.register(new Uint8Array(8));
  connection.allocate(8);
  expect(given()).toHaveLength(1);
  warn.mockRestore();
  await connection.close();
  await server.close();
});
