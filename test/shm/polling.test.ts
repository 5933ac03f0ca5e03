/**
 * A program that polls a completion queue in a loop, and gives the event loop no turn. Both ends of most
 * tests are in this thread, each polled in turn.
 */
import { existsSync } from 'node:fs';
import { MessageChannel } from 'node:worker_threads';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { openRnic, traceTransitions, type Rnic } from '../../src/index.ts';
import { RingWriter } from '../../src/engine/channel/ring.ts';
import { EarlyTasks } from '../../src/engine/inline/early-tasks.ts';
import { helloFor, send } from '../../src/shm/names.ts';
import { ringPair, sharingOf, ShmPort, type ShmChannel, type ShmEnds } from '../../src/shm/port.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';
import { BusyPoll } from '../../src/transport/busy-poll.ts';
import type { PortAddress, PortHandler } from '../../src/transport/port.ts';
import {
  ACCESS,
  createWorkCompletion,
  type CompletionQueue,
  type MemoryRegion,
  type QueuePair,
  type WorkCompletion,
} from '../../src/verbs/index.ts';
import { encodeStartup } from '../support/naive/encoder.ts';
import { freshName, said, thread } from './support.ts';

const SLOT = 64;
const DEPTH = 64;
const LONGEST_MS = 20_000;

/** A queue pair with memory for receives, polled by hand. */
interface End {
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly mr: MemoryRegion;
  receive(): void;
  send(length?: number): void;
}

function endOf({ device }: Rnic, octets = DEPTH * SLOT): End {
  const pd = device.allocatePd();
  const cq = device.createCq(1024);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: 4 * DEPTH, maxSendWr: DEPTH });
  const mr = pd.registerMemory(device.allocateMemory(octets), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE);
  let next = 0;
  return {
    ...{ cq, qp, mr },
    receive: () => qp.postRecv({ sges: [{ mr, offset: (next++ % DEPTH) * SLOT, length: SLOT }] }),
    send: (length = SLOT) => qp.postSend({ opcode: 'send', sges: [{ mr, length }] }),
  };
}

/** Two ends in this thread, of one device or of two, with receives posted. */
async function connected(octets?: number, other: Rnic = openRnic({ wire: 'shm' })): Promise<[End, End]> {
  const path = freshName();
  const own = openRnic({ wire: 'shm' });
  const [client, server] = [endOf(own, octets), endOf(other, octets)];
  for (const end of [client, server]) for (let i = 0; i < DEPTH; i++) end.receive();
  const listener = await other.cm.listen({ path }, (request) => {
    request.setHandler(() => undefined);
    request.accept(server.qp);
  });
  const connection = own.cm.connect(client.qp, { path });
  await new Promise<void>((resolve) =>
    connection.setHandler(({ type }) => {
      if (type === 'established') resolve();
    }),
  );
  await new Promise(setImmediate);
  onTestFinished(() => {
    connection.abort();
    listener.close();
  });
  return [client, server];
}

/** Polls these queues in turn, until `found` has had enough. */
function spin(cqs: readonly CompletionQueue[], found: (wc: WorkCompletion, cq: number) => boolean): void {
  const out = [createWorkCompletion()];
  const end = performance.now() + LONGEST_MS;
  for (let polls = 0; ; polls++) {
    const at = polls % cqs.length;
    // Two polls that find nothing drive the streams.
    for (let tries = 0; tries < 2; tries++) if (cqs[at]!.poll(out) === 1 && found({ ...out[0]! }, at)) return;
    if (polls % 1000 === 0 && performance.now() > end) throw new Error('nothing comes of it');
  }
}

/** Whether the event loop has had a turn since. */
function turns(): () => boolean {
  let turned = false;
  setImmediate(() => (turned = true));
  return () => turned;
}

describe('two ends that poll', () => {
  it('send to and fro without a turn of the event loop, and call no handler', async () => {
    const [client, server] = await connected();
    const called = vi.fn();
    for (const { cq } of [client, server]) {
      cq.setHandler(called);
      cq.requestNotify();
    }
    const hasTurned = turns();
    let left = 300;
    client.send();
    spin([client.cq, server.cq], ({ opcode, status }, at) => {
      expect(status).toBe('success');
      if (opcode !== 'receive') return false;
      const end = [client, server][at]!;
      end.receive();
      end.send();
      return --left === 0;
    });
    expect(hasTurned()).toBe(false);
    expect(called).not.toHaveBeenCalled();
    await new Promise(setImmediate);
    expect(called).toHaveBeenCalledTimes(2);
  });

  it('move more than the rings hold, and Write more than a turn of the event loop may', async () => {
    const PIECE = 1 << 20;
    const [client, server] = await connected(PIECE);
    client.mr.bytes.fill(7);
    const hasTurned = turns();
    let written = 0;
    const write = (): void => {
      client.qp.postSend({
        opcode: 'rdma-write',
        sges: [{ mr: client.mr, length: PIECE }],
        rkey: server.mr.rkey,
        remoteAddr: server.mr.addr,
      });
    };
    write();
    spin([client.cq, server.cq], ({ status }) => status === 'success');
    // The first Write has gone through the ring, and asked for the memory.
    const out = [createWorkCompletion()];
    for (let polls = 0; polls < 20_000; polls++)
      for (const { cq } of [client, server]) expect(cq.poll(out)).toBe(0);
    expect(server.mr.bytes.every((octet) => octet === 7)).toBe(true);
    server.mr.bytes.fill(0);
    const before = server.qp.counters()!.octetsIn;
    write();
    spin([client.cq, server.cq], ({ status }) => {
      expect(status).toBe('success');
      if (++written < 20) write();
      return written === 20;
    });
    expect(server.mr.bytes.every((octet) => octet === 7)).toBe(true);
    expect(server.qp.counters()!.octetsIn).toBe(before);
    let received = 0;
    const big = server.mr;
    for (let i = 0; i < DEPTH; i++) server.qp.postRecv({ sges: [{ mr: big, length: PIECE / 4 }] });
    for (let i = 0; i < DEPTH; i++) client.send(SLOT); // those of `connected` come first
    spin([server.cq, client.cq], (_wc, at) => at === 0 && ++received === DEPTH);
    received = 0;
    let sent = 0;
    const more = (): void => {
      if (sent++ < DEPTH) client.send(PIECE / 4);
    };
    for (let i = 0; i < 8; i++) more();
    spin([server.cq, client.cq], ({ status, opcode, byteLength }, at) => {
      expect(status).toBe('success');
      if (at === 1) more();
      else expect([opcode, byteLength]).toEqual(['receive', PIECE / 4]);
      return at === 0 && ++received === DEPTH;
    });
    expect(hasTurned()).toBe(false);
  });

  it('are driven by the second poll in a row that finds nothing, unless it asks to be notified', async () => {
    const [client, server] = await connected();
    const out = [createWorkCompletion()];
    client.send();
    spin([client.cq], () => true);
    expect([server.cq.poll(out), server.cq.poll(out)]).toEqual([0, 1]);
    client.send();
    spin([client.cq], () => true);
    expect(server.cq.poll(out)).toBe(0);
    server.cq.requestNotify();
    expect(server.cq.poll(out)).toBe(0);
    server.cq.requestNotify();
    expect(server.cq.poll(out)).toBe(0);
    expect(server.cq.poll(out)).toBe(1);
  });

  it('see a close in order, and go on in the event loop afterwards', async () => {
    const [client, server] = await connected();
    const hasTurned = turns();
    client.send();
    spin([server.cq, client.cq], ({ opcode }) => opcode === 'receive');
    server.send();
    expect(hasTurned()).toBe(false);
    const seen = server.cq[Symbol.asyncIterator]();
    expect((await seen.next()).value).toMatchObject({ opcode: 'send', status: 'success' });
    client.qp.modify({ state: 'closing' });
    const flushed: string[] = [];
    spin([server.cq], ({ opcode, status }) => {
      flushed.push(`${opcode} ${status}`);
      return flushed.length === DEPTH - 1;
    });
    expect(new Set(flushed)).toEqual(new Set(['receive flushed']));
  });
});

describe('a watcher that polls in the middle of the stack', () => {
  it('drives nothing', async () => {
    const shared = openRnic({ wire: 'shm' });
    const [client] = await connected(undefined, shared);
    const [other, second] = await connected(undefined, shared);
    const out = [createWorkCompletion()];
    const inside: number[] = [];
    const stop = traceTransitions(() => {
      for (let i = 0; i < 4; i++) inside.push(second.cq.poll(out));
    });
    onTestFinished(stop);
    other.send();
    spin([other.cq], () => true);
    client.qp.modify({ state: 'closing' });
    stop();
    expect(inside.length).toBeGreaterThan(0);
    expect(new Set(inside)).toEqual(new Set([0]));
    spin([second.cq], ({ status }) => status === 'success');
  });
});

// ------------------------------------------------------------------------------------------------ ports

const NOWHERE: PortAddress = { address: 'test', port: 0, family: 'Unix' };

class QuietChannel implements ShmChannel {
  readonly posted: unknown[] = [];
  on(): void {}
  postMessage(message: unknown): void {
    this.posted.push(message);
  }
  ref(): void {}
  unref(): void {}
  close(): void {}
}

/** A port whose ring this test writes. */
function writtenPort(sharing = sharingOf(new BusyPoll(0))) {
  const [incoming, outgoing] = ringPair();
  const channel = new QuietChannel();
  const ends: ShmEnds = { incoming, outgoing, channel, local: NOWHERE, remote: NOWHERE };
  const port = new ShmPort(ends, sharing);
  const writer = new RingWriter(new Int32Array(incoming));
  const put = (octets: number, value: number): void => {
    const at = writer.begin(1, 2 + Math.ceil(octets / 4));
    writer.words[at + 1] = octets;
    writer.bytes.fill(value, (at + 2) * 4, (at + 2) * 4 + octets);
    writer.publish();
  };
  return { port, channel, writer, put, sharing };
}

const handler = (more: Partial<PortHandler> = {}): PortHandler => ({
  ...{ onData: () => undefined, onEnd: () => undefined, onClose: () => undefined },
  ...more,
});

describe('a port that is driven', () => {
  it('reads a bounded amount in a call, whatever has come', () => {
    const { port, put } = writtenPort();
    let records = 0;
    port.attach(handler({ onData: () => void records++ }));
    for (let i = 0; i < 6000; i++) put(8, 1);
    const seen: number[] = [];
    while (records < 6000) {
      port.drive();
      seen.push(records);
    }
    expect(seen[0]).toBeLessThanOrEqual(2000);
    expect(seen.length).toBeLessThan(10);
  });

  it('does not hand on another port’s octets meanwhile', () => {
    const first = writtenPort();
    const second = writtenPort(first.sharing);
    const seen: string[] = [];
    first.port.attach(
      handler({
        onData: (bytes, start, end) => {
          first.sharing.polled.look();
          seen.push(`first ${bytes.subarray(start, end).join()}`);
        },
      }),
    );
    second.port.attach(handler({ onData: (bytes, start) => void seen.push(`second ${bytes[start]}`) }));
    first.put(4, 1);
    second.put(4, 2);
    first.sharing.polled.look();
    expect(seen).toEqual(['first 1,1,1,1', 'second 2']);
  });

  it('lets each port of many have its call', () => {
    const sharing = sharingOf(new BusyPoll(0));
    const seen = new Set<number>();
    const ports = Array.from({ length: 40 }, (_, i) => {
      const one = writtenPort(sharing);
      one.port.attach(handler({ onData: () => void seen.add(i) }));
      one.put(4, 1);
      return one;
    });
    sharing.polled.look();
    expect(seen.size).toBe(16);
    for (let i = 0; i < 2; i++) sharing.polled.look();
    expect(seen.size).toBe(ports.length);
  });

  it.each<[string, (words: Int32Array) => void]>([
    ['a head beyond the ring', (words) => (words[0] = 1 << 20)],
    ['a record of no type', (words) => (words[64] = 9 | (3 << 8))],
    ['a record without length', (words) => (words[64] = 1)],
    ['octets beyond the record', (words) => (words[65] = 1000)],
  ])('ends at %s, once, with its error, and leaves the other side a reset', (_what, spoil) => {
    const { port, put, writer, channel, sharing } = writtenPort();
    const closes: (Error | undefined)[] = [];
    port.attach(handler({ onClose: (error) => void closes.push(error) }));
    put(4, 1);
    spoil(writer.words);
    for (let i = 0; i < 3; i++) sharing.polled.look();
    expect(closes).toMatchObject([{ code: 'ERR_CONNECTION_RESET' }]);
    expect(channel.posted).toContain(1);
  });

  it('asks after messages when nothing has come for long: a reset, and the end of the thread', () => {
    const messages: unknown[] = [0, 1];
    let end = (_number: number): boolean => false;
    const hearsay = {
      thread: () => 77,
      hasEnded: (number: number) => end(number),
      nextMessage: () => (messages.length === 0 ? undefined : { message: messages.shift() }),
    };
    const sharing = { ...sharingOf(new BusyPoll(0)), hearsay };
    const codes: unknown[] = [];
    const note = handler({ onClose: (error) => void codes.push((error as { code?: string }).code) });
    const first = writtenPort(sharing);
    first.port.attach(note);
    for (let i = 0; i < 5000; i++) sharing.polled.look();
    expect([codes, messages]).toEqual([['ERR_CONNECTION_RESET'], []]);
    const second = writtenPort(sharing);
    const got: number[] = [];
    second.port.attach({ ...note, onData: (bytes, start) => void got.push(bytes[start]!) });
    second.writer.words[8] = 4711;
    end = (number) => {
      if (number === 4711) second.put(4, 9); // the last that it has written
      return number === 4711;
    };
    for (let i = 0; i < 2100; i++) sharing.polled.look();
    expect([codes.length, got]).toEqual([2, [9]]);
  });
});

describe('early tasks', () => {
  it('run once, and those behind one that throws run later', () => {
    const time = new VirtualTime();
    const early = new EarlyTasks(time);
    const ran: string[] = [];
    early.defer(() => ran.push('a'));
    early.run();
    time.run();
    expect(ran).toEqual(['a']);
    early.defer(() => {
      throw new Error('first');
    });
    early.defer(() => {
      ran.push('b');
      early.defer(() => ran.push('c'));
    });
    expect(() => early.run()).toThrow('first');
    expect(ran).toEqual(['a']);
    time.run();
    expect(ran).toEqual(['a', 'b', 'c']);
  });

  it('read the clock once in a call', () => {
    let now = 0;
    const early = new EarlyTasks({ now: () => ++now, at: () => () => undefined, defer: () => undefined });
    early.stop();
    expect([early.now(), early.now()]).toEqual([1, 1]);
    early.goOn();
    expect(early.now()).toBe(2);
    early.stop();
    expect(early.now()).toBe(3);
  });
});

// ---------------------------------------------------------------------------------------- other threads

describe('another thread', () => {
  /** Accepts connections, and ends them as a message says. */
  const SERVER = `
    const { device, cm } = iwarp.openRnic({ wire: 'shm' });
    const pd = device.allocatePd();
    const cq = device.createCq(64);
    const all = [];
    await cm.listen({ path: data.path }, (request) => {
      request.setHandler(() => undefined);
      request.accept(pd.createQp({ sendCq: cq, recvCq: cq }));
      all.push(request);
    });
    port.on('message', (how) => {
      if (how === 'exit') process.exit();
      for (const one of all) if (how === 'abort') one.abort(); else one.disconnect();
    });
    port.postMessage('ready');`;
  const onLinux = existsSync('/proc/thread-self');

  it.each(onLinux ? ['exit', 'terminate', 'abort', 'close'] : ['abort', 'close'])(
    'that ends its connection by %s is heard of in a loop of polls',
    async (how) => {
      const path = freshName();
      const worker = await thread(SERVER, { path });
      const rnic = openRnic({ wire: 'shm' });
      const end = endOf(rnic);
      end.receive();
      const connection = rnic.cm.connect(end.qp, { path });
      await new Promise<void>((resolve) =>
        connection.setHandler(({ type }) => {
          if (type === 'established') resolve();
        }),
      );
      await new Promise(setImmediate);
      const hasTurned = turns();
      if (how === 'terminate') void worker.terminate();
      else worker.postMessage(how);
      spin([end.cq], ({ status }) => {
        expect(status).toBe('flushed');
        return true;
      });
      expect(hasTurned()).toBe(false);
    },
  );

  it('that writes garbage while this one polls loses its connection, and touches no memory', async () => {
    const path = freshName();
    const rnic = openRnic({ wire: 'shm' });
    const end = endOf(rnic);
    end.mr.bytes.fill(0xc5);
    let established = (): void => undefined;
    const accepted = new Promise<void>((resolve) => (established = resolve));
    const listener = await rnic.cm.listen({ path }, (request) => {
      request.setHandler(({ type }) => {
        if (type === 'established') established();
      });
      for (let i = 0; i < 3; i++) end.receive();
      request.accept(end.qp);
    });
    const { port1: channel, port2 } = new MessageChannel();
    onTestFinished(() => channel.close());
    const [incoming, outgoing] = ringPair();
    const writer = new RingWriter(new Int32Array(outgoing));
    const frame = encodeStartup({ kind: 'request', crc: false });
    const at = writer.begin(1, 2 + Math.ceil(frame.length / 4));
    writer.words[at + 1] = frame.length;
    writer.bytes.set(frame, (at + 2) * 4);
    writer.publish();
    const names = { name: path, host: '', address: '', port: 0 };
    send(helloFor({ ...names, incoming: outgoing, outgoing: incoming, channel: port2 }), () => undefined);
    await accepted;
    const hasTurned = turns();
    for (let i = 0; i < 64; i++) writer.words[64 + ((writer.written + i) % 131_072)] = 0x0101_0101 * i;
    Atomics.store(writer.words, 0, writer.written + 60);
    const statuses: string[] = [];
    spin([end.cq], ({ status }) => statuses.push(status) === 3);
    expect([statuses, hasTurned()]).toEqual([['flushed', 'flushed', 'flushed'], false]);
    expect(end.mr.bytes.every((octet) => octet === 0xc5)).toBe(true);
    listener.close();
  });

  it('that polls too answers while neither event loop turns', async () => {
    const path = freshName();
    await thread(
      `const { device, cm } = iwarp.openRnic({ wire: 'shm' });
       const pd = device.allocatePd();
       const cq = device.createCq(64);
       const qp = pd.createQp({ sendCq: cq, recvCq: cq });
       const mr = pd.registerMemory(device.allocateMemory(64), 1);
       const receive = () => qp.postRecv({ sges: [{ mr }] });
       for (let i = 0; i < 8; i++) receive();
       await cm.listen({ path: data.path }, (request) => {
         request.setHandler(() => undefined);
         request.accept(qp);
       });
       cq.setHandler(() => {
         let turned = 0;
         setImmediate(() => (turned = 1));
         for (const out = []; ; ) {
           if (cq.poll(out, 1) === 0 || out[0].opcode !== 'receive') continue;
           if (out[0].byteLength === 1) break;
           qp.postSend({ opcode: 'send', sges: [{ mr, length: 64 }], signaled: false });
           receive();
         }
         port.postMessage(turned);
       });
       cq.requestNotify();
       port.postMessage('ready');`,
      { path },
    ).then(async (worker) => {
      const rnic = openRnic({ wire: 'shm' });
      const end = endOf(rnic);
      for (let i = 0; i < 8; i++) end.receive();
      const connection = rnic.cm.connect(end.qp, { path });
      await new Promise<void>((resolve) =>
        connection.setHandler(({ type }) => {
          if (type === 'established') resolve();
        }),
      );
      await new Promise(setImmediate);
      const hasTurned = turns();
      const theirs = said(worker);
      let trips = 0;
      end.send();
      spin([end.cq], ({ opcode, status }) => {
        expect(status).toBe('success');
        if (opcode !== 'receive') return false;
        end.receive();
        if (++trips < 30) end.send();
        return trips === 30;
      });
      expect(hasTurned()).toBe(false);
      end.send(1);
      expect(await theirs).toBe(0);
    });
  });
});
