/**
 * The output of the tap, and whether the packets written from it are right: judged by a separate reader,
 * written from the RFCs.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { ipOctets, mappedIpv6 } from '../../src/transport/ip-address.ts';
import { MemoryTransport, VirtualTime } from '../../src/simnet/memory.ts';
import { wrapTransport } from '../../src/transport/middleware.ts';
import type { PortRole } from '../../src/transport/middleware.ts';
import { openPcapFile, pcapTap } from '../../src/transport/pcap-tap.ts';
import type { PcapTapOptions } from '../../src/transport/pcap-tap.ts';
import { tap } from '../../src/transport/tap.ts';
import type { TapInfo, TapSink } from '../../src/transport/tap.ts';
import { World, pattern } from './harness.ts';
import type { End } from './harness.ts';

interface Packet {
  readonly time: number;
  readonly from: string;
  readonly to: string;
  readonly flags: string;
  readonly sequence: number;
  readonly acknowledged: number;
  readonly payload: Uint8Array;
}

/** RFC 1071 over big-endian words: a right checksum makes the folded sum all ones. */
function allOnes(...parts: Uint8Array[]): boolean {
  const bytes = Buffer.concat(parts);
  let total = 0;
  for (let i = 0; i < bytes.length; i++) total += i % 2 === 0 ? (bytes[i] ?? 0) * 256 : (bytes[i] ?? 0);
  while (total > 65_535) total = (total & 65_535) + Math.floor(total / 65_536);
  return total === 65_535;
}

/** Reads a capture and checks every length and checksum in it. */
function readCapture(file: Uint8Array): Packet[] {
  const capture = Buffer.from(file);
  expect([
    capture.readUInt32LE(0),
    capture.readUInt16LE(4),
    capture.readUInt16LE(6),
    capture.readUInt32LE(20),
  ]).toEqual([0xa1b23c4d, 2, 4, 101]);
  const packets: Packet[] = [];
  let at = 24;
  while (at < capture.length) {
    const time = capture.readUInt32LE(at) * 1e9 + capture.readUInt32LE(at + 4);
    const octets = capture.readUInt32LE(at + 8);
    expect(capture.readUInt32LE(at + 12)).toBe(octets);
    packets.push(readPacket(capture.subarray(at + 16, at + 16 + octets), time));
    at += 16 + octets;
  }
  expect(at).toBe(capture.length);
  return packets;
}

function readPacket(packet: Buffer, time: number): Packet {
  const isV4 = packet.readUInt8(0) >> 4 === 4;
  const header = isV4 ? 20 : 40;
  const tcp = packet.subarray(header);
  const [from, to] = isV4
    ? [packet.subarray(12, 16), packet.subarray(16, 20)]
    : [packet.subarray(8, 24), packet.subarray(24, 40)];
  if (isV4) {
    expect(packet.readUInt16BE(2)).toBe(packet.length);
    expect(allOnes(packet.subarray(0, 20)), 'IPv4 header checksum').toBe(true);
    expect(packet.readUInt8(9)).toBe(6);
  } else {
    expect(packet.readUInt8(0)).toBe(0x60);
    expect(packet.readUInt16BE(4)).toBe(tcp.length);
    expect(packet.readUInt8(6)).toBe(6);
  }
  const pseudo = Buffer.alloc(isV4 ? 4 : 8);
  if (isV4) {
    pseudo.writeUInt16BE(6, 0);
    pseudo.writeUInt16BE(tcp.length, 2);
  } else {
    pseudo.writeUInt32BE(tcp.length, 0);
    pseudo.writeUInt32BE(6, 4);
  }
  expect(allOnes(from, to, pseudo, tcp), 'TCP checksum').toBe(true);
  const bits = tcp.readUInt8(13);
  return {
    time,
    from: `${from.toString('hex')}:${tcp.readUInt16BE(0)}`,
    to: `${to.toString('hex')}:${tcp.readUInt16BE(2)}`,
    flags: ['F', 'S', 'R', 'P', 'A'].filter((_, i) => bits & (1 << i)).join(''),
    sequence: tcp.readUInt32BE(4),
    acknowledged: tcp.readUInt32BE(8),
    payload: tcp.subarray((tcp.readUInt8(12) >> 4) * 4),
  };
}

interface Scene {
  readonly time: VirtualTime;
  readonly active: End;
  readonly passive: End;
  readonly packets: () => Packet[];
}

async function captured(
  host: string,
  role: PortRole = 'active',
  options: PcapTapOptions = {},
): Promise<Scene> {
  const time = new VirtualTime();
  const parts: Uint8Array[] = [];
  const middleware = tap(
    time,
    pcapTap((bytes) => parts.push(bytes), options),
  );
  const network = wrapTransport(new MemoryTransport(time, { latency: 1, buffer: 1 << 20 }), (port, at) =>
    at === role ? middleware(port, at) : port,
  );
  const world = new World('memory', network, time);
  const { active, passive } = await world.pair(host);
  active.attach();
  passive.attach();
  return { time, active, passive, packets: () => readCapture(Buffer.concat(parts)) };
}

/** The payload that one side sent, with its sequence numbers checked for gaps. */
function stream(packets: readonly Packet[], from: string): Uint8Array {
  const mine = packets.filter((packet) => packet.from === from);
  let next = mine[0]?.sequence ?? 0;
  const payload: Uint8Array[] = [];
  for (const packet of mine) {
    expect(packet.sequence).toBe(next);
    const spent = packet.payload.length + (/[SF]/.test(packet.flags) ? 1 : 0);
    next = (next + spent) >>> 0;
    payload.push(packet.payload);
  }
  return Buffer.concat(payload);
}

describe('tap', () => {
  it('shows writes whole, arrivals as they come, ends and the close', async () => {
    const time = new VirtualTime();
    const log: string[] = [];
    const sinks: TapInfo[] = [];
    const make = (info: TapInfo): TapSink => ({
      open: (again) => {
        expect(again).toBe(info);
        sinks.push(info);
      },
      data: (direction, bytes, start, end, at) =>
        log.push(`${at} ${info.role} ${direction} ${[...bytes.subarray(start, end)].join(',')}`),
      end: (direction, at) => log.push(`${at} ${info.role} ${direction} end`),
      close: (error, at, direction) =>
        log.push(`${at} ${info.role} ${direction} close ${error === undefined ? 'in order' : 'with error'}`),
    });
    const world = new World(
      'memory',
      wrapTransport(new MemoryTransport(time, { latency: 1 }), tap(time, make)),
      time,
    );
    const first = await world.pair();
    first.active.attach();
    first.passive.attach();
    first.active.write(Uint8Array.of(1), Uint8Array.of(2, 3), new Uint8Array(0));
    first.active.write();
    first.active.write(new Uint8Array(0));
    time.run();
    first.active.call(() => first.active.port.end());
    first.active.call(() => first.active.port.end());
    time.run();
    first.passive.call(() => first.passive.port.end());
    time.run();
    expect(log).toEqual([
      '2 active out 1,2,3',
      '3 passive in 1,2,3',
      '4 active out end',
      '5 passive in end',
      '5 passive out end',
      '5 passive in close in order',
      '6 active in end',
      '6 active in close in order',
    ]);
    expect(sinks.map((info) => info.role).toSorted()).toEqual(['active', 'passive']);
    log.length = 0;
    const second = await world.pair();
    second.active.attach();
    second.passive.attach();
    second.active.call(() => second.active.port.reset());
    second.active.write(Uint8Array.of(1));
    time.run();
    expect(log.map((line) => line.replace(/^\d+ /, ''))).toEqual([
      'active out close with error',
      'passive in close with error',
    ]);
  });
});

describe('pcapTap', () => {
  it.each([
    ['10.0.0.2', 'active'],
    ['10.0.0.2', 'passive'],
    ['fd00::2:0:1', 'active'],
    ['::ffff:10.0.0.9', 'passive'],
  ] as const)(
    'writes a whole connection with right lengths, numbers and checksums: %s, %s',
    async (host, role) => {
      const { time, active, passive, packets } = await captured(host, role);
      const random = seededRandom(11);
      const sent = pattern(150_001, random);
      const answered = pattern(777, random);
      active.write(sent.subarray(0, 100), sent.subarray(100, 70_000));
      active.write(sent.subarray(70_000));
      time.run();
      passive.write(answered);
      time.run();
      active.call(() => active.port.end());
      time.run();
      passive.call(() => passive.port.end());
      time.run();
      const all = packets();
      const caller = all[0]?.from ?? '';
      const callee = all[0]?.to ?? '';
      expect(all.slice(0, 3).map((packet) => [packet.from === caller, packet.flags])).toEqual([
        [true, 'S'],
        [false, 'SA'],
        [true, 'A'],
      ]);
      expect(caller.length).toBe(host.includes('::') && !host.includes('ffff') ? 38 : caller.length);
      expect(Buffer.from(stream(all, caller)).equals(sent)).toBe(true);
      expect(Buffer.from(stream(all, callee)).equals(answered)).toBe(true);
      expect(all.filter((packet) => packet.flags.includes('F')).map((packet) => packet.from)).toEqual([
        caller,
        callee,
      ]);
      // Every acknowledgement names what the other side has sent by then.
      const next = new Map<string, number>();
      for (const packet of all) {
        if (packet.flags.includes('A')) expect(packet.acknowledged).toBe(next.get(packet.to));
        next.set(
          packet.from,
          (packet.sequence + packet.payload.length + (/[SF]/.test(packet.flags) ? 1 : 0)) >>> 0,
        );
      }
      expect(Math.max(...all.map((packet) => packet.payload.length))).toBe(65_495);
    },
  );

  it('lets sequence numbers wrap', async () => {
    const { time, active, packets } = await captured('10.0.0.2', 'active', {
      firstSequence: [0xffff_ff00, 0xffff_ffff],
    });
    const bytes = pattern(1000, seededRandom(2));
    active.write(bytes);
    time.run();
    const all = packets();
    expect(all[1]?.sequence).toBe(0xffff_ffff);
    expect(all[2]?.acknowledged).toBe(0);
    expect(Buffer.from(stream(all, all[0]?.from ?? '')).equals(bytes)).toBe(true);
  });

  it('splits at the maximum segment size and at given places', async () => {
    const { time, active, packets } = await captured('10.0.0.2', 'active', {
      mss: 300,
      cut: (_direction, _bytes, start) => start + 700,
    });
    active.write(new Uint8Array(1500));
    time.run();
    const lengths = packets()
      .map((packet) => packet.payload.length)
      .filter((octets) => octets > 0);
    expect(lengths).toEqual([300, 300, 100, 300, 300, 100, 100]);
  });

  it('writes a reset from the side it came from', async () => {
    for (const who of ['active', 'passive'] as const) {
      const scene = await captured('::1');
      const end = scene[who];
      end.call(() => end.port.reset());
      scene.time.run();
      const all = scene.packets();
      expect(all.at(-1)?.flags).toBe('RA');
      expect(all.at(-1)?.from === all[0]?.from).toBe(who === 'active');
    }
  });

  it('writes the times of the clock, from the epoch given', async () => {
    const { time, active, packets } = await captured('10.0.0.2', 'active', { epoch: 1_700_000_000_000 });
    time.runUntil(1234.567891);
    active.write(Uint8Array.of(1));
    expect(packets().at(-1)?.time).toBe(1_700_000_001 * 1e9 + 234_567_891);
  });

  it('writes a file', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'pcap-tap-'));
    try {
      const path = join(folder, 'run.pcap');
      const file = openPcapFile(path);
      const time = new VirtualTime();
      const network = wrapTransport(new MemoryTransport(time), tap(time, pcapTap(file.output)));
      const world = new World('memory', network, time);
      await world.pair();
      file.close();
      file.close();
      file.output(Uint8Array.of(1));
      expect(readCapture(readFileSync(path)).length).toBe(6);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('refuses a maximum segment size that no packet holds', () => {
    expect(() => pcapTap(() => undefined, { mss: 65_496 })).toThrow('mss must be');
    expect(() => pcapTap(() => undefined, { mss: 0 })).toThrow('mss must be');
  });
});

describe('ipOctets', () => {
  it.each([
    ['1.2.3.255', '010203ff'],
    ['::', '00000000000000000000000000000000'],
    ['::1', '00000000000000000000000000000001'],
    ['fe80::1%eth0', 'fe800000000000000000000000000001'],
    ['2001:db8:1:2:3:4:5:6', '20010db8000100020003000400050006'],
    ['2001:db8::', '20010db8000000000000000000000000'],
    ['64:ff9b::1.2.3.4', '0064ff9b000000000000000001020304'],
    ['::ffff:1.2.3.4', '01020304'],
  ])('reads %s', (text, hex) => {
    expect(Buffer.from(ipOctets(text) ?? []).toString('hex')).toBe(hex);
  });

  it('refuses wrong addresses, and knows how IPv6 carries IPv4', () => {
    expect(ipOctets('localhost')).toBeUndefined();
    expect(ipOctets('1.2.3')).toBeUndefined();
    expect(Buffer.from(mappedIpv6(Uint8Array.of(1, 2, 3, 4))).toString('hex')).toBe(
      '00000000000000000000ffff01020304',
    );
  });
});
