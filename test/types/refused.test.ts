/**
 * Programs that must not compile. The type check of the repository holds this file: each `@ts-expect-error`
 * without an error below it is an error itself. What the types cannot see, because it is a state at run time
 * (a freed region, another protection domain, memory without the right, a closed handle), throws from the
 * call instead; the second half shows that for these four mistakes.
 */
// cspell:ignore succes
import { describe, expect, it } from 'vitest';
import { connect, RemoteBuffer, type Connection } from '../../src/index.ts';
import type { CmEvent } from '../../src/cm/index.ts';
import {
  ACCESS,
  type MemoryRegion,
  type MemoryWindow,
  type ProtectionDomain,
  type QueuePair,
  type WorkCompletion,
} from '../../src/verbs/index.ts';
import { connectedPair } from '../support/pair.ts';
import { codeOf } from '../verbs/support.ts';

/** Never called. */
function workRequests(qp: QueuePair, mr: MemoryRegion, mw: MemoryWindow, bytes: Uint8Array): void {
  // @ts-expect-error a Read needs the address at the peer
  qp.postSend({ opcode: 'rdma-read', sges: [{ mr }], rkey: 1 });
  // @ts-expect-error a Read has no inline data
  qp.postSend({ opcode: 'rdma-read', inline: bytes, rkey: 1, remoteAddr: 0 });
  // @ts-expect-error `sgl` is no field
  qp.postSend({ opcode: 'send', sgl: [{ mr }] });
  // @ts-expect-error no such opcode
  qp.postSend({ opcode: 'rdma-send', sges: [{ mr }] });
  // @ts-expect-error an element names a region, not memory
  qp.postSend({ opcode: 'send', sges: [{ mr: bytes }] });
  // @ts-expect-error a window is for the peer: it cannot be a local element
  qp.postRecv({ sges: [{ mr: mw }] });
  // @ts-expect-error an Atomic works on numbers
  qp.postSend({ opcode: 'atomic-fetch-add', sges: [{ mr }], rkey: 1, remoteAddr: 0, add: '1' });
  // @ts-expect-error the connection manager makes RTS
  qp.modify({ state: 'rtr' });
}

/** Never called. */
function objects(pd: ProtectionDomain, bytes: Uint8Array, mr: MemoryRegion): void {
  // @ts-expect-error rights are named
  pd.registerMemory(bytes);
  // @ts-expect-error memory is a view, not a length
  pd.registerMemory(64, ACCESS.LOCAL_WRITE);
  // @ts-expect-error a queue pair needs a queue for its receives
  pd.createQp({ sendCq: pd.device.createCq(1) });
  // @ts-expect-error the STag of a region cannot be set
  mr.rkey = 7;
}

/** Never called. */
async function promises(connection: Connection, ticket: RemoteBuffer, mr: MemoryRegion): Promise<void> {
  // @ts-expect-error no such right
  connection.register(new Uint8Array(8), 'readwrite');
  // @ts-expect-error the ticket and the memory are the other way round
  await connection.write(ticket, new Uint8Array(8));
  // @ts-expect-error a region is not a ticket to it
  await connection.write(new Uint8Array(8), mr);
  // @ts-expect-error a number cannot be sent
  await connection.send(7);
  // @ts-expect-error Immediate Data is a bigint
  await connection.sendImmediate(7);
  // @ts-expect-error a port is a number
  await connect({ port: '4711' });
  // @ts-expect-error a ticket does not change
  ticket.rkey = 1;
}

/** Never called. */
function unions(event: CmEvent, wc: WorkCompletion): void {
  // @ts-expect-error only some events have this field
  void event.negotiated;
  // @ts-expect-error no such status
  if (wc.status === 'succes') return;
  // @ts-expect-error no such event
  if (event.type === 'connected') return;
}

it('programs that do not compile are as many as this file has', () => {
  expect([workRequests, objects, promises, unions].every((program) => typeof program === 'function')).toBe(
    true,
  );
});

describe('what the types cannot see throws from the call', () => {
  it('a freed region, another domain, memory without the right, a closed handle', async () => {
    const { client, server } = await connectedPair();
    const freed = client.register(8);
    void freed.deregister();
    const foreign = client.device.allocatePd().registerMemory(new Uint8Array(8), ACCESS.LOCAL_WRITE);
    const readOnly = client.register(8, ACCESS.REMOTE_READ);
    const read = (mr: MemoryRegion): string =>
      codeOf(() => client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 }));
    expect([read(freed), read(foreign), read(readOnly)]).toEqual([
      'ERR_INVALID_REGION',
      'ERR_WRONG_PD',
      'ERR_ACCESS',
    ]);
    const closed = server.createQp();
    closed.destroy();
    expect(codeOf(() => closed.postRecv({}))).toBe('ERR_DESTROYED');
    expect(codeOf(() => closed.postSend({ opcode: 'send' }))).toBe('ERR_DESTROYED');
  });
});
