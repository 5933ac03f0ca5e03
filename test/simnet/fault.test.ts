/** Each fault at each octet, in both directions: what the two ends then see. */

import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { faulty, randomFaults } from '../../src/simnet/fault.ts';
import type { Fault, FaultDirection } from '../../src/simnet/fault.ts';
import { MemoryTransport, VirtualTime } from '../../src/simnet/memory.ts';
import { wrapTransport } from '../../src/transport/middleware.ts';
import { World, pattern } from '../transport/harness.ts';
import type { End } from '../transport/harness.ts';

const SENT = Uint8Array.from({ length: 12 }, (_, i) => 0x10 + i);

interface Scene {
  readonly time: VirtualTime;
  /**
   * The end whose stream goes wrong: with an 'out' fault at its own port, with an 'in' fault at the
   * receiver's.
   */
  readonly sender: End;
  readonly receiver: End;
}

async function scene(faults: readonly Fault[], options: { buffer?: number } = {}): Promise<Scene> {
  const time = new VirtualTime();
  const network = new MemoryTransport(time, { latency: 1, verifyWrites: true, ...options });
  const broken = faulty(time, faults);
  const inbound = faults[0]?.direction === 'in';
  // The connecting end sends; the fault sits at the end whose direction it names.
  const transport = wrapTransport(network, (port, role) =>
    (role === 'passive') === inbound ? broken(port, role) : port,
  );
  const world = new World('memory', transport, time);
  const { active, passive } = await world.pair();
  active.attach();
  passive.attach();
  time.run();
  return { time, sender: active, receiver: passive };
}

/** Three writes of 4 octets, each of two chunks. */
function send(sender: End): void {
  for (let i = 0; i < 12; i += 4) sender.write(SENT.slice(i, i + 1), SENT.slice(i + 1, i + 4));
}

const both: readonly FaultDirection[] = ['in', 'out'];
const octets = Array.from(SENT.keys());

describe.each(both)('a fault in the direction %s', (direction) => {
  it('flips the one bit, in a copy', async () => {
    for (const at of octets) {
      const { time, sender, receiver } = await scene([{ kind: 'flip', direction, at, bit: at % 8 }]);
      send(sender);
      time.run();
      const wanted = SENT.slice();
      wanted[at] = (wanted[at] ?? 0) ^ (1 << (at % 8));
      expect(receiver.bytes, `at ${at}`).toEqual(wanted);
      expect(sender.dones).toEqual(['0:true', '1:true', '2:true']);
    }
  });

  it('truncates: octets before it, then FIN; the sender notices nothing', async () => {
    for (const at of octets) {
      const { time, sender, receiver } = await scene([{ kind: 'truncate', direction, at }]);
      send(sender);
      time.run();
      expect(receiver.bytes, `at ${at}`).toEqual(SENT.slice(0, at));
      expect(receiver.log).toEqual(['end']);
      expect(sender.dones).toEqual(['0:true', '1:true', '2:true']);
      expect(sender.log).toEqual([]);
      receiver.write(Uint8Array.of(1, 2));
      receiver.call(() => receiver.port.end());
      time.run();
      expect(receiver.log).toEqual(['end', 'close']);
      expect(sender.received).toEqual([1, 2]);
      expect(sender.log).toEqual(['end']);
      sender.write(Uint8Array.of(3));
      sender.call(() => sender.port.end());
      time.run();
      expect(sender.log).toEqual(['end', 'close']);
      expect(sender.dones.at(-1)).toBe('3:true');
      expect(receiver.bytes).toEqual(SENT.slice(0, at));
    }
  });

  it('stalls for ever, FIN included, until either end resets', async () => {
    for (const at of octets) {
      const { time, sender, receiver } = await scene([{ kind: 'stall', direction, at }]);
      send(sender);
      sender.call(() => sender.port.end());
      time.advance(1e9);
      expect(receiver.bytes, `at ${at}`).toEqual(SENT.slice(0, at));
      expect(receiver.log).toEqual([]);
      receiver.call(() => receiver.port.pause());
      receiver.call(() => receiver.port.resume());
      time.run();
      expect(receiver.received.length).toBe(at);
      receiver.write(Uint8Array.of(1));
      time.run();
      expect(sender.received).toEqual([1]);
      const resetting = at % 2 === 0 ? sender : receiver;
      resetting.call(() => resetting.port.reset());
      time.run();
      expect(sender.log).toEqual([...(sender.log.includes('end') ? ['end'] : []), 'close with error']);
      expect(receiver.log).toEqual(['close with error']);
      const passed = direction === 'in' ? 3 : Math.floor(at / 4);
      expect(sender.dones).toEqual([0, 1, 2].map((i) => `${i}:${i < passed}`));
    }
  });

  it('delays once, in order', async () => {
    for (const at of octets) {
      const { time, sender, receiver } = await scene([{ kind: 'delay', direction, at, milliseconds: 50 }]);
      const start = time.now();
      send(sender);
      sender.call(() => sender.port.end());
      time.runUntil(start + 50);
      expect(receiver.bytes, `at ${at}`).toEqual(SENT.slice(0, at));
      time.runUntil(start + 51);
      expect(receiver.bytes).toEqual(SENT);
      expect(receiver.log).toEqual(['end']);
      expect(sender.dones).toEqual(['0:true', '1:true', '2:true']);
    }
  });

  it('resets: nothing after it passes, both ends hear of it', async () => {
    for (const at of octets) {
      const { time, sender, receiver } = await scene([{ kind: 'reset', direction, at }]);
      send(sender);
      time.run();
      expect(receiver.received.length, `at ${at}`).toBeLessThanOrEqual(at);
      expect(receiver.bytes).toEqual(SENT.slice(0, receiver.received.length));
      if (direction === 'in') expect(receiver.received.length).toBe(at);
      expect(sender.log).toEqual(['close with error']);
      expect(receiver.log).toEqual(['close with error']);
      expect(sender.dones.map((done) => done.slice(0, 2))).toEqual(['0:', '1:', '2:']);
      sender.write(Uint8Array.of(1));
      time.run();
      expect(sender.dones.at(-1)).toBe('3:false');
    }
  });

  it('plays several, also at one octet', async () => {
    const { time, sender, receiver } = await scene([
      { kind: 'truncate', direction, at: 9 },
      { kind: 'delay', direction, at: 5, milliseconds: 10 },
      { kind: 'flip', direction, at: 5, bit: 0 },
      { kind: 'delay', direction, at: 5, milliseconds: 10 },
      { kind: 'flip', direction, at: 5, bit: 1 },
    ]);
    const start = time.now();
    send(sender);
    time.runUntil(start + 20);
    expect(receiver.received.length).toBe(5);
    time.run();
    const wanted = SENT.slice(0, 9);
    wanted[5] = (wanted[5] ?? 0) ^ 3;
    expect(receiver.bytes).toEqual(wanted);
    expect(receiver.log).toEqual(['end']);
  });

  it('does nothing beyond the stream', async () => {
    const { time, sender, receiver } = await scene([{ kind: 'reset', direction, at: 12 }]);
    send(sender);
    sender.call(() => sender.port.end());
    receiver.call(() => receiver.port.end());
    time.run();
    expect(receiver.bytes).toEqual(SENT);
    expect(receiver.log).toEqual(['end', 'close']);
    expect(sender.log).toEqual(['end', 'close']);
  });

  it('keeps the order of delayed octets while the handler pauses', async () => {
    const { time, sender, receiver } = await scene([{ kind: 'delay', direction, at: 2, milliseconds: 10 }]);
    receiver.hook = () => receiver.port.pause();
    send(sender);
    sender.call(() => sender.port.end());
    for (let i = 0; i < 20 && receiver.log.length === 0; i++) {
      time.run();
      receiver.call(() => receiver.port.resume());
      time.run();
    }
    expect(receiver.bytes).toEqual(SENT);
    expect(receiver.log).toEqual(['end']);
  });
});

it('lets the network fill up after an inbound stall', async () => {
  const { time, sender, receiver } = await scene([{ kind: 'stall', direction: 'in', at: 3 }], {
    buffer: 100,
  });
  for (let i = 0; i < 20; i++) sender.write(new Uint8Array(20));
  time.run();
  expect(receiver.received.length).toBe(3);
  expect(sender.dones.length).toBeLessThan(12);
});

it('flips the bit in a copy, also of a Buffer, whose slice is no copy', async () => {
  const { time, sender, receiver } = await scene([{ kind: 'flip', direction: 'out', at: 5, bit: 0 }]);
  const memory = Buffer.from(SENT);
  sender.port.write([memory], 1, () => undefined);
  time.run();
  expect(receiver.received[5]).toBe(SENT[5]! ^ 1);
  expect([...memory]).toEqual([...SENT]);
});

it('refuses a write after end, and answers writes after a reset with false', async () => {
  const { sender } = await scene([{ kind: 'flip', direction: 'out', at: 0, bit: 0 }]);
  sender.call(() => sender.port.end());
  expect(() => sender.write(SENT)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
  const other = await scene([{ kind: 'flip', direction: 'out', at: 0, bit: 0 }]);
  other.sender.call(() => other.sender.port.reset());
  other.sender.write(SENT);
  other.time.run();
  expect(other.sender.dones).toEqual(['0:false']);
});

it('refuses faults that make no sense', () => {
  const time = new VirtualTime();
  expect(() => faulty(time, [{ kind: 'flip', direction: 'in', at: 0, bit: 8 }])).toThrow('bit must be');
  expect(() => faulty(time, [{ kind: 'reset', direction: 'in', at: -1 }])).toThrow('at must be');
  expect(() => faulty(time, [{ kind: 'duplicate' as 'reset', direction: 'in', at: 0 }])).toThrow(
    'kind must be',
  );
});

it('draws the same faults from the same seed, within the range', () => {
  const range = { octets: 50, count: 40, milliseconds: 9 };
  const faults = randomFaults(5, range);
  expect(randomFaults(5, range)).toEqual(faults);
  expect(randomFaults(6, range)).not.toEqual(faults);
  expect(new Set(faults.map((fault) => fault.kind)).size).toBe(5);
  expect(faults.every((fault) => fault.at < 50)).toBe(true);
  expect(
    randomFaults(5, { octets: 9, count: 9, kinds: ['stall'], directions: ['out'] }).every(
      (fault) => fault.kind === 'stall' && fault.direction === 'out',
    ),
  ).toBe(true);
});

it('ends every random session in order or by reset, with each write answered once', async () => {
  for (let seed = 1; seed <= 300; seed++) {
    const time = new VirtualTime();
    const network = new MemoryTransport(time, { latency: 1, buffer: 500, verifyWrites: true });
    const world = new World(
      'memory',
      wrapTransport(network, faulty(time, randomFaults(seed, { octets: 2000, count: 3 }))),
      time,
    );
    const { active, passive } = await world.pair();
    const random = seededRandom(seed);
    const ends = [active.attach(), passive.attach()];
    for (const end of ends) {
      for (let i = 0; i < 6; i++) end.write(pattern(random() % 400, random));
      end.call(() => end.port.end());
    }
    time.run();
    // A program that waits for a silent peer gives up.
    for (const end of ends) if (!end.closed) end.call(() => end.port.reset());
    time.run();
    for (const end of ends) {
      expect(
        end.dones.map((done) => Number.parseInt(done, 10)),
        `seed ${seed}`,
      ).toEqual([0, 1, 2, 3, 4, 5]);
      const [first, ...rest] = end.dones.map((done) => done.endsWith('true'));
      rest.reduce((before, ok) => {
        expect(before || !ok, `seed ${seed}: a write succeeds after one that failed`).toBe(true);
        return ok;
      }, first ?? false);
      expect(end.log.filter((entry) => entry.startsWith('close')).length, `seed ${seed}`).toBe(1);
      expect(
        end.log.filter((entry) => !['end', 'close', 'close with error'].includes(entry)),
        `seed ${seed}`,
      ).toEqual([]);
    }
  }
});
