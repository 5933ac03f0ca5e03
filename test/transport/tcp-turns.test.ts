/** What a busy TCP port leaves to others: turns of the event loop, and read memory that its handler names. */
import { afterEach, describe, expect, it } from 'vitest';
import type { Port, PortHandler, PortListener } from '../../src/transport/port.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';

interface Ends {
  readonly active: Port;
  readonly passive: Port;
  readonly listener: PortListener;
}

function connected(transport: TcpTransport): Promise<Ends> {
  return new Promise((resolve, reject) => {
    let active: Port | undefined;
    let passive: Port | undefined;
    transport.listen(
      { host: '127.0.0.1' },
      (port) => ((passive = port), settle()),
      (bound, error) => {
        if (bound === undefined) return reject(error);
        listener = bound;
        transport.connect(
          { host: '127.0.0.1', port: bound.address.port },
          (port) => ((active = port), settle()),
        );
      },
    );
    let listener: PortListener;
    const settle = (): void => {
      if (active !== undefined && passive !== undefined) resolve({ active, passive, listener });
    };
  });
}

const nothing: PortHandler = { onData: () => undefined, onEnd: () => undefined, onClose: () => undefined };

describe('a busy TCP port', () => {
  let ends: Ends | undefined;

  afterEach(() => {
    ends?.active.reset();
    ends?.passive.reset();
    ends?.listener.close();
  });

  it('lets the event loop turn while a user writes from every completion', async () => {
    const { active, passive } = (ends = await connected(new TcpTransport()));
    let received = 0;
    passive.attach({ ...nothing, onData: (_bytes, start, end) => void (received += end - start) });
    active.attach(nothing);
    const chunk = [new Uint8Array(1)];
    let sent = 0;
    let running = true;
    // Small enough that the system takes every write at once, for longer than its buffers last.
    const more = (ok: boolean): void => {
      if (!ok || !running || sent === 500_000) return;
      sent++;
      active.write(chunk, 1, more);
    };
    more(true);
    await new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)));
    running = false;
    expect(sent).toBeLessThan(1000);
    while (received < sent) await new Promise<void>((resolve) => setImmediate(resolve));
    expect(received).toBe(sent);
  });

  it.each(['onread', 'data'] as const)(
    'with %s: lets the event loop turn between reads whose handling takes long, and loses nothing',
    async (receive) => {
      const { active, passive } = (ends = await connected(new TcpTransport({ receive })));
      const OCTETS = 4 << 20;
      const HANDLING_MS = 2;
      let received = 0;
      let turn = 0;
      const fullReads = new Map<number, number>();
      const turns = (): void => {
        turn++;
        if (received < OCTETS) setImmediate(turns);
      };
      passive.pause();
      passive.attach({
        ...nothing,
        onData: (bytes, start, end) => {
          received += end - start;
          if (end < bytes.length) return;
          fullReads.set(turn, (fullReads.get(turn) ?? 0) + 1);
          for (const until = performance.now() + HANDLING_MS; performance.now() < until; );
        },
      });
      active.attach(nothing);
      active.write([new Uint8Array(OCTETS)], 1, () => undefined);
      // The system's buffers fill first: libuv would have many reads to make in a row.
      await new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)));
      passive.resume();
      turns();
      while (received < OCTETS) await new Promise<void>((resolve) => setImmediate(resolve));
      expect(received).toBe(OCTETS);
      expect(fullReads.size).toBeGreaterThan(3);
      expect(Math.max(...fullReads.values())).toBe(1);
    },
  );

  it.each(['onread', 'data'] as const)(
    'with %s: reads into the memory that the handler names, where it can',
    async (receive) => {
      const { active, passive } = (ends = await connected(new TcpTransport({ receive })));
      const place = new Uint8Array(1000);
      const got: { readonly named: boolean; readonly octets: Uint8Array }[] = [];
      let told: () => void = () => undefined;
      passive.attach({
        ...nothing,
        onData: (bytes, start, end) => {
          got.push({ named: bytes === place, octets: bytes.slice(start, end) });
          told();
        },
        readTarget: () => (got.length === 1 ? place : undefined),
      });
      active.attach(nothing);
      for (let i = 0; i < 3; i++) {
        const arrived = new Promise<void>((resolve) => (told = resolve));
        active.write([Uint8Array.of(i, i + 1, i + 2)], 1, () => undefined);
        await arrived;
      }
      expect(got.map(({ octets }) => [...octets])).toEqual([
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
      ]);
      expect(got.map(({ named }) => named)).toEqual([false, receive === 'onread', false]);
      expect([...place.subarray(0, 3)]).toEqual(receive === 'onread' ? [1, 2, 3] : [0, 0, 0]);
    },
  );
});
