/** Queue pairs over plain TCP, opposite sockets of Node, on both engines. */
// cspell:ignore regionpayload
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ACCESS } from '../../src/verbs/index.ts';
import { dial, PlainServer, QpEnd, read, until } from './support.ts';

describe.each(['thread', 'worker'] as const)('a queue pair over plain TCP, engine %s', (engine) => {
  let end: QpEnd;
  let server: PlainServer;
  beforeEach(() => {
    end = QpEnd.open(engine);
    server = new PlainServer();
  });
  afterEach(() => {
    end.close();
    server.close();
  });

  it('sends what the program sends, and nothing else', async () => {
    end.connect(await server.listen());
    const socket = await server.next();
    end.outbox.bytes.set(Buffer.from('payload of a region'));
    end.qp.postSend([
      { wrId: 1, opcode: 'send', inline: Buffer.from('GET / ') },
      { wrId: 2, opcode: 'send' },
      {
        wrId: 3,
        opcode: 'send',
        sges: [
          { mr: end.outbox, offset: 11, length: 8 },
          { mr: end.outbox, length: 7 },
        ],
      },
    ]);
    expect((await read(socket, 21)).toString()).toBe('GET / a regionpayload');
    for (const wrId of [1, 2, 3])
      expect(await end.completion()).toMatchObject({ wrId, status: 'success', opcode: 'send' });
    expect(end.connection!.counters()).toMatchObject({
      octetsOut: 21,
      payloadOut: 21,
      messagesOut: { sends: 3 },
    });
    socket.destroy();
  });

  it('completes receives with the bytes at hand, without waiting for them to be full', async () => {
    end.receive(0, 100);
    end.receive(100, 100);
    end.connect(await server.listen());
    const socket = await server.next();
    socket.write('hello');
    expect(await end.received(1)).toEqual(['hello']);
    socket.write('w'.repeat(100));
    expect(await end.received(1)).toEqual(['w'.repeat(100)]);
    expect(end.text(0, 5)).toBe('hello');
    socket.destroy();
  });

  it('closes the window of a peer while no receive is posted, and loses nothing', async () => {
    end.connect(await server.listen());
    const socket = await server.next();
    await end.event('established');
    const total = 24 << 20;
    let sent = 0;
    const piece = Buffer.alloc(1 << 16);
    const pump = (): void => {
      while (sent < total && !socket.destroyed) {
        for (let i = 0; i < piece.length; i += 4) piece.writeUInt32BE(sent + i, i);
        sent += piece.length;
        if (!socket.write(Buffer.from(piece))) return void socket.once('drain', pump);
      }
    };
    pump();
    // What the systems of both sides hold, and no more: the rest has to wait for receives.
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(sent).toBeLessThan(total);
    let got = 0;
    for (let i = 0; i < 8; i++) end.receive(i << 16, 1 << 16);
    while (got < total) {
      const { wrId, byteLength, status } = await end.completion();
      expect(status).toBe('success');
      const bytes = Buffer.from(end.inbox.bytes.subarray(Number(wrId), Number(wrId) + byteLength));
      for (let i = (4 - (got % 4)) % 4; i + 4 <= byteLength; i += 4)
        if (bytes.readUInt32BE(i) !== got + i) throw new Error(`wrong octets at ${got + i}`);
      got += byteLength;
      end.receive(Number(wrId), 1 << 16);
    }
    expect(got).toBe(total);
    socket.destroy();
  });

  it('has the larger a window the more receives are posted', async () => {
    const PIECE = 65_536;
    const taken: number[] = [];
    for (const receives of [2, 128]) {
      const own = QpEnd.open(engine);
      for (let i = 0; i < receives; i++) own.receive((i % 16) * PIECE, PIECE);
      own.connect(await server.listen());
      const socket = await server.next();
      let pieces = 0;
      const piece = Buffer.alloc(PIECE);
      const next = (): void => {
        if (++pieces < 512) socket.write(piece, next);
      };
      socket.write(piece, next);
      await own.received(receives);
      for (let before = -1; before !== pieces; ) {
        before = pieces;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      taken.push(pieces);
      socket.destroy();
      own.connection!.abort();
      await own.event('disconnected');
      own.close();
      server.close();
      server = new PlainServer();
    }
    // The buffers of the system are the same both times. It reports room a third of them late.
    expect(taken[1]! - taken[0]!).toBeGreaterThanOrEqual(64);
    expect(taken[1]).toBeLessThan(512);
  });

  it('goes on sending after the end of the peer, and ends in order', async () => {
    const listener = await end.rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      end.watch(request);
      request.accept(end.qp);
    });
    end.receive(0, 64);
    end.receive(64, 64);
    const socket = await dial(listener.address.port);
    socket.end('a question');
    expect(await end.received(2)).toEqual(['a question', 'flushed']);
    expect((await end.event('closing')).by).toBe('peer');
    end.send('an answer');
    expect((await read(socket, 9)).toString()).toBe('an answer');
    end.connection!.disconnect();
    socket.resume();
    await once(socket, 'end');
    expect(await end.event('disconnected')).toMatchObject({ cause: 'graceful' });
    expect(end.qp.state).toBe('idle');
    listener.close();
  });

  it('fills receives after its own end, until the end of the peer', async () => {
    end.receive(0, 64);
    end.connect(await server.listen());
    const socket = await server.next();
    end.send('the last word');
    await end.event('established');
    end.connection!.disconnect();
    expect((await read(socket, 13)).toString()).toBe('the last word');
    socket.resume();
    await once(socket, 'end');
    socket.end('not quite');
    expect(await end.received(1)).toEqual(['not quite']);
    expect(await end.event('disconnected')).toMatchObject({ cause: 'graceful' });
  });

  it('puts a length in front of each message, and takes messages apart by it', async () => {
    for (let i = 0; i < 4; i++) end.receive(i * 100_000, 100_000);
    end.connect(await server.listen(), 'length');
    const socket = await server.next();
    end.outbox.bytes.fill(0x61);
    end.qp.postSend([
      { opcode: 'send', inline: Buffer.from('one') },
      { opcode: 'send' },
      { opcode: 'send', sges: [{ mr: end.outbox, length: 70_000 }] },
    ]);
    const octets = await read(socket, 4 + 3 + 4 + 4 + 70_000);
    expect(octets.subarray(0, 15)).toEqual(Buffer.from('\0\0\0\x03one\0\0\0\0\0\x01\x11\x70', 'latin1'));
    expect(octets.subarray(15).equals(Buffer.alloc(70_000, 0x61))).toBe(true);
    // The same back, octet by octet at first and in one piece then.
    for (const octet of octets.subarray(0, 20)) {
      socket.write(Buffer.of(octet));
      await new Promise((resolve) => setImmediate(resolve));
    }
    socket.write(octets.subarray(20));
    expect(await end.received(3)).toEqual(['one', '', 'a'.repeat(70_000)]);
    socket.destroy();
  });

  it('makes one write of each Send with framing segment', async () => {
    for (let i = 0; i < 4; i++) end.receive(i * 100, 100);
    end.connect(await server.listen(), 'segment');
    const socket = await server.next();
    socket.setNoDelay(true);
    const parts: string[] = [];
    socket.on('data', (part) => parts.push(String(part)));
    for (const text of ['first', 'second']) {
      end.send(text);
      await until(() => parts.includes(text));
      socket.write(text);
      expect(await end.received(1)).toEqual([text]);
    }
    expect(parts).toEqual(['first', 'second']);
    socket.destroy();
  });

  it('refuses what plain TCP cannot carry, at once', async () => {
    const { qp, inbox: mr, rnic, pd } = end;
    const remote = { rkey: 1, remoteAddr: 0n };
    const sges = [{ mr, length: 8 }];
    const refused = { code: 'ERR_NOT_SUPPORTED' };
    const thrown = (act: () => unknown): void => expect(act).toThrow(expect.objectContaining(refused));
    thrown(() => qp.postSend({ opcode: 'rdma-write', sges, ...remote }));
    thrown(() => qp.postSend({ opcode: 'rdma-read', sges, ...remote }));
    thrown(() => qp.postSend({ opcode: 'atomic-fetch-add', sges, add: 1n, ...remote }));
    thrown(() => qp.postSend({ opcode: 'atomic-cmp-swap', sges, compare: 1n, swap: 2n, ...remote }));
    thrown(() => qp.postSend({ opcode: 'immediate', immediate: 1n }));
    thrown(() => qp.postSend({ opcode: 'send', solicited: true }));
    thrown(() => qp.postSend({ opcode: 'send', invalidate: 5 }));
    thrown(() => rnic.cm.connect(qp, { host: '127.0.0.1', port: 9, privateData: Buffer.from('x') }));
    expect(rnic.device.query().capabilities).toMatchObject({ immediateData: false, atomics: 'none' });
    expect(qp.state).toBe('idle');
    expect(pd.device.wire).toBe('qpip');
  });

  it('does not read into the memory of a region that has ended', async () => {
    const memory = end.rnic.device.allocateMemory(256);
    const mr = end.pd.registerMemory(memory, ACCESS.LOCAL_WRITE);
    end.receive(0, 64);
    end.qp.postRecv([
      { wrId: 1, sges: [{ mr }] },
      { wrId: 2, sges: [{ mr }] },
    ]);
    end.connect(await server.listen());
    const socket = await server.next();
    socket.write('x');
    expect(await end.received(1)).toEqual(['x']);
    mr.deregister();
    socket.write('must not be placed');
    expect(await end.received(2)).toEqual(['local-protection-error', 'flushed']);
    expect(memory.every((octet) => octet === 0)).toBe(true);
    expect(await end.event('disconnected')).toMatchObject({
      cause: 'reset',
      error: { code: 'ERR_INVALID_REGION' },
    });
  });

  it('serves several connections from one shared receive queue', async () => {
    const { pd, cq, rnic } = end;
    const srq = pd.createSrq({ maxWr: 64 });
    const make = (): QpEnd['qp'] => pd.createQp({ sendCq: cq, recvCq: cq, srq });
    const qps = [make(), make()];
    const port = await server.listen();
    for (const qp of qps) rnic.cm.connect(qp, { host: '127.0.0.1', port });
    const sockets = [await server.next(), await server.next()];
    for (const socket of sockets) socket.write('early');
    await new Promise((resolve) => setTimeout(resolve, 50));
    srq.postRecv(
      [0, 100, 200].map((offset) => ({ wrId: offset, sges: [{ mr: end.inbox, offset, length: 50 }] })),
    );
    expect(await end.received(2)).toEqual(['early', 'early']);
    sockets[1]!.write('late');
    expect(await end.received(1)).toEqual(['late']);
    for (const qp of qps) qp.destroy();
    srq.destroy();
  });

  it('works over IPv6', async () => {
    end.receive(0, 64);
    end.connect(await server.listen('::1'), 'none', '::1');
    const socket = await server.next();
    socket.end('six');
    expect(await end.received(1)).toEqual(['six']);
    expect(end.connection!.remoteAddress).toMatchObject({ address: '::1', family: 'IPv6' });
  });
});
