/**
 * What a program can see of itself: diagnostics channels, transitions, frames, captures, latencies, counters;
 * and that off is off.
 */
import { execFileSync, spawn } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  captureTo,
  connect,
  createServer,
  DIAGNOSTICS_CHANNELS,
  RemoteBuffer,
  traceFrames,
  traceTransitions,
  type Connection,
  type ConnectionDiagnostics,
  type DeviceDiagnostics,
  type TracedFrame,
  type Transition,
} from '../../src/index.ts';
import { trace } from '../../src/base/fsm.ts';
import { dissectOctets, problemIds } from '../inspect/support.ts';
import { pairOf, pattern, rnicOf, THREAD_WORLDS, threadRnicOf, type Ends } from '../api/support.ts';

/** Where microtasks of the stack go in a test that looks at them. */
const deferred = vi.hoisted(() => ({ to: null as (() => void)[] | null }));
vi.mock(import('../../src/base/host.ts'), async (original) => ({
  ...(await original()),
  queueMicrotask: (task) => void (deferred.to === null ? queueMicrotask(task) : deferred.to.push(task)),
}));

const cleanup: (() => unknown)[] = [];

afterEach(async () => {
  vi.restoreAllMocks();
  for (const step of cleanup.splice(0).reverse()) await step();
});

async function pair(...args: Parameters<typeof pairOf>): Promise<Ends> {
  const ends = await pairOf(...args);
  cleanup.push(() => ends.close());
  return ends;
}

/** In this thread: a stream in another one is out of sight of what looks at this process's. */
function threadPair(world: (typeof THREAD_WORLDS)[number]): Promise<Ends> {
  const rnic = threadRnicOf(world);
  return pair(world, { rnic }, { rnic });
}

async function busy({ client, server }: Ends): Promise<void> {
  const region = server.allocate(4096);
  await client.write(pattern(4096), server.share(region));
  await client.read(server.share(region));
  await client.fetchAdd(server.share(region), 1n);
  await client.send('hello');
  (await server.receive())!.release();
}

describe('diagnostics channels', () => {
  it('carry the events of connections and devices, by name', async () => {
    const seen: string[] = [];
    const listen = (message: unknown, name: string | symbol): void => {
      const { event } = message as ConnectionDiagnostics | DeviceDiagnostics;
      expect(String(name).endsWith(`:${event.type}`)).toBe(true);
      seen.push(String(name));
    };
    for (const name of DIAGNOSTICS_CHANNELS) subscribe(name, listen);
    cleanup.push(() => DIAGNOSTICS_CHANNELS.forEach((name) => unsubscribe(name, listen)));
    const { client, server } = await pair('memory');
    await client.read(new RemoteBuffer(0x1234_5678, 0n, 8)).catch(() => undefined);
    await Promise.all([client.closed, server.closed]);
    const sorted = [...new Set(seen)].sort();
    expect(sorted).toEqual([
      'iwarp:connection:disconnected',
      'iwarp:connection:established',
      'iwarp:connection:terminate',
      'iwarp:device:terminate-received',
      'iwarp:device:terminate-sent',
    ]);
    expect(seen.filter((name) => name === 'iwarp:connection:established')).toHaveLength(2);
  });
});

describe('traceTransitions', () => {
  it('reports every step of every machine until it is stopped, and is null again', async () => {
    const steps: Transition[] = [];
    const stop = traceTransitions((step) => steps.push(step));
    const other = traceTransitions(() => undefined);
    const { client, server } = await threadPair('memory');
    await client.close();
    await server.closed;
    stop();
    const before = steps.length;
    expect(new Set(steps.map(({ table }) => table))).toEqual(
      new Set([
        'CM listener',
        'MPA initiator',
        'MPA responder',
        'RDMA stream',
        'active connection',
        'listener slot',
        'passive connection',
        'queue pair',
        'promise server',
        'promise connection',
      ]),
    );
    const machine = steps.find(({ table }) => table === 'queue pair')!.machine;
    expect(steps.filter((step) => step.machine === machine).map(({ from, to }) => `${from} ${to}`)).toEqual([
      'idle rts',
      'rts closing',
      'closing idle',
    ]);
    await threadPair('memory');
    expect(steps).toHaveLength(before);
    other();
    expect(trace.transition).toBeNull();
  });

  it('a listener that throws breaks nothing: its error reaches the process after the stack', async () => {
    const later: (() => void)[] = [];
    deferred.to = later;
    const stop = traceTransitions(() => {
      throw new Error('from the listener');
    });
    const frames = traceFrames(() => {
      throw new Error('from the listener');
    });
    const ends = await threadPair('memory');
    await busy(ends);
    stop();
    frames();
    deferred.to = null;
    expect(later.length).toBeGreaterThan(10);
    expect(later[0]).toThrow('from the listener');
  });

  it('wrong listeners are refused', () => {
    for (const listen of [traceTransitions, traceFrames]) {
      for (const wrong of [undefined, null, 1, 'x', {}])
        expect(() => listen(wrong as never)).toThrow(
          expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
        );
    }
  });
});

/** Worlds whose streams run over byte streams: `traceFrames` does not see datagrams. */
const STREAM_WORLDS = THREAD_WORLDS.filter((world) => world !== 'trp');

describe('traceFrames', () => {
  it.each(STREAM_WORLDS)('reports each frame of both directions as a line, over %s', async (world) => {
    const frames: TracedFrame[] = [];
    const began = Date.now();
    const stop = traceFrames((frame) => frames.push(frame));
    cleanup.push(stop);
    const ends = await threadPair(world);
    await busy(ends);
    await ends.client.close();
    await ends.server.closed;
    const active = frames.filter(({ localAddress }) => localAddress.port === ends.client.localAddress.port);
    const kinds = (direction: string): string[] =>
      active.filter((frame) => frame.direction === direction).map(({ text }) => text.split(/ +/)[3]!);
    // The first Write is the RTR message.
    expect(kinds('out').slice(0, 3)).toEqual(['MPA', 'Write', 'Write']);
    expect(kinds('out')).toContain('AtomicReq');
    expect(kinds('in')[0]).toBe('MPA');
    expect(kinds('in')).toContain('ReadResp');
    expect(kinds('in')).toContain('AtomicResp');
    const send = active.find(({ text }) => text.includes(' Send '))!.text;
    expect(send).toMatch(/^#\d → +\d+\.\d{6} {2}Send +MSN 1 L +5 bytes {2}CRC (ok|off)$/);
    expect(send.endsWith('off')).toBe(world === 'shm');
    expect(active[0]!.remoteAddress).toEqual(ends.client.remoteAddress);
    for (const { time, text } of active) {
      expect(time).toBeGreaterThanOrEqual(began - 50);
      expect(time).toBeLessThanOrEqual(Date.now() + 50);
      expect(text).not.toContain('['); // no broken rule
    }
    // The other end sees the same, mirrored; arrows always point away from the side that connected.
    const passive = frames.filter(({ localAddress }) => localAddress.port === ends.server.localAddress.port);
    expect(passive.filter(({ direction }) => direction === 'in')).toHaveLength(
      active.filter(({ direction }) => direction === 'out').length,
    );
    stop();
    const before = frames.length;
    await busy(await threadPair(world));
    expect(frames).toHaveLength(before);
  });
});

describe('captureTo', () => {
  it('writes a capture that dissectors read, each connection once', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-capture-'));
    cleanup.push(() => rmSync(folder, { recursive: true }));
    const path = join(folder, 'run.pcap');
    const capture = captureTo(path);
    cleanup.push(() => capture.close());
    const ends = await threadPair('tcp, onread');
    await busy(ends);
    await ends.client.close();
    await ends.server.closed;
    capture.close();
    const { events, remarks } = dissectOctets(readFileSync(path));
    expect(remarks).toEqual([]);
    expect(new Set(events.map(({ connection }) => connection.number))).toEqual(new Set([1]));
    expect(events.map(({ event }) => (event.kind === 'note' ? event.message : event.opcode))).toEqual(
      expect.arrayContaining([
        'MPA Request',
        'MPA Reply',
        'RDMA Write',
        'RDMA Read Request',
        'Atomic Request',
        'Send',
      ]),
    );
    expect(problemIds(events)).toEqual([]);
  });

  it('an unwritable file is refused at once; one that fills up ends the capture alone', async () => {
    expect(() => captureTo('/nonexistent/run.pcap')).toThrow(expect.objectContaining({ code: 'ERR_ACCESS' }));
    for (const wrong of ['', undefined, 1, null])
      expect(() => captureTo(wrong as never)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
      );
    expect(() => captureTo('/dev/full')).toThrow(expect.objectContaining({ code: 'ERR_ACCESS' }));
    // A pipe whose reader leaves after the file's header.
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-capture-'));
    cleanup.push(() => rmSync(folder, { recursive: true }));
    const path = join(folder, 'pipe');
    execFileSync('mkfifo', [path]);
    const reader = spawn('head', ['-c', '24', path], { stdio: 'ignore' });
    const left = once(reader, 'exit');
    const capture = captureTo(path);
    cleanup.push(() => capture.close());
    await left;
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const ends = await threadPair('memory');
    await busy(ends);
    expect(warned).toHaveBeenCalledTimes(1);
    expect(warned.mock.calls[0]![1]).toMatchObject({ type: 'IwarpWarning', code: 'ERR_ACCESS' });
    expect((await ends.client.close()).cause).toBe('graceful');
  });
});

describe('latency histograms', () => {
  it('count each kind of operation from start to stop, and show percentiles', async () => {
    const { client, server } = await pair('memory');
    const region = server.allocate(64);
    const remote = server.share(region);
    const once = async (connection: Connection): Promise<void> => {
      await Promise.all([
        connection.write(pattern(8), remote),
        connection.writeImmediate(pattern(8), remote, 1n),
        connection.read(remote.slice(0, 8)),
      ]);
      await Promise.all([
        connection.fetchAdd(remote, 1n),
        connection.compareSwap(remote, 0n, 1n),
        connection.send('x'),
        connection.sendImmediate(2n),
      ]);
      for (let i = 0; i < 3; i++) (await server.receive())!.release();
    };
    await once(client); // not measured
    const latency = client.measureLatency();
    for (let i = 0; i < 5; i++) await once(client);
    const counts = Object.fromEntries(
      Object.entries(latency.histograms).map(([kind, histogram]) => [kind, histogram.count]),
    );
    expect(counts).toEqual({ send: 5, 'rdma-write': 10, 'rdma-read': 5, atomic: 10, immediate: 5 });
    const { 'rdma-read': reads } = latency.histograms;
    expect(reads.min).toBeGreaterThan(0);
    expect(reads.percentile(50)).toBeGreaterThanOrEqual(reads.min);
    expect(reads.percentile(99)).toBeGreaterThanOrEqual(reads.percentile(50));
    expect(reads.max).toBeLessThan(10e9);
    const next = client.measureLatency();
    await once(client);
    expect([latency.histograms.send.count, next.histograms.send.count]).toEqual([5, 1]);
    latency.stop(); // the first one is over already: the second goes on
    await once(client);
    next.stop();
    await once(client);
    expect(next.histograms.send.count).toBe(2);
  });
});

describe('counters of a device', () => {
  it('count every connection that it has and had', async () => {
    const rnic = rnicOf('memory');
    const server = await createServer({
      rnic,
      onRequest: ({ privateData }) => {
        if (privateData[0] === 1) throw new Error('not you');
      },
      onError: () => undefined,
    }).listen({ host: '127.0.0.1', port: 0 });
    cleanup.push(() => server.close());
    const to = { rnic, host: '127.0.0.1', port: server.address().port };
    for (let i = 0; i < 2; i++) {
      const [client, passive] = await Promise.all([connect(to), server.accept()]);
      await client.send('one');
      (await passive!.receive())!.release();
      await (i === 0 ? client.close() : Promise.resolve(client.destroy()));
      await Promise.all([client.closed, passive!.closed]);
    }
    await expect(connect({ ...to, privateData: Uint8Array.of(1) })).rejects.toMatchObject({
      code: 'ERR_REJECTED',
    });
    await expect(connect({ ...to, port: 1 })).rejects.toMatchObject({ code: 'ERR_CONNECT' });
    const [kept, passive] = await Promise.all([connect(to), server.accept()]);
    await kept.send('two');
    (await passive!.receive())!.release();
    const counters = rnic.cm.counters();
    expect(counters).toMatchObject({
      established: 6,
      closed: 2,
      broken: 2,
      failed: 1,
      refused: 0,
      crcErrors: 0,
    });
    expect(counters.rejected).toBeGreaterThanOrEqual(1);
    expect([counters.messagesOut.sends, counters.messagesIn.sends]).toEqual([3, 3]);
    expect(counters.octetsIn).toBeGreaterThan(0);
    // what crossed the reset has not arrived
    expect(counters.octetsIn).toBeLessThanOrEqual(counters.octetsOut);
    await kept.close();
  });
});
