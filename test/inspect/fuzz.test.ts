// Damaged captures: nothing is thrown but the typed error for a file of another kind, and no input takes
// long. The number of inputs comes from IWARP_FUZZ (5000 or 20000 without it), the seed from IWARP_FUZZ_SEED.

import { describe, expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { WAITING_OCTETS } from '../../src/inspect/capture/limits.ts';
import { OctetBudget } from '../../src/inspect/capture/octet-queue.ts';
import { LINK_TYPE } from '../../src/inspect/capture/pcap.ts';
import { renderJson, renderLine, renderOctets, renderTree } from '../../src/inspect/render/views.ts';
import { StreamDecoder } from '../../src/inspect/decode/stream-decoder.ts';
import {
  Wire,
  bytesOf,
  concat,
  conversation,
  dissectOctets,
  ethernet,
  ipv6,
  pcapOf,
  wireOf,
} from './support.ts';
import { depth } from '../support/depth.ts';

const COUNT = Number(process.env['IWARP_FUZZ'] ?? depth(5000, 20_000));
const SEED = Number(process.env['IWARP_FUZZ_SEED'] ?? 1);
/** One input may take this long; the machine may lose its processor for a second. */
const LIMIT_MS = 5000;

/**
 * Milliseconds of processor time: what else the machine does, or another test file, is none of this test's
 * affair.
 */
function processorTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** xorshift32. */
function randomFrom(seed: number): (below: number) => number {
  let state = (seed * 2654435761) >>> 0 || 1;
  return (below) => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state % below;
  };
}

/** Enhanced packet blocks around the packets of a pcap file, so that both readers are fed. */
function toPcapng(packets: readonly Uint8Array[]): Uint8Array {
  const words = (...values: number[]): Uint8Array => new Uint8Array(Uint32Array.from(values).buffer);
  const parts = [
    words(0x0a0d0d0a, 28, 0x1a2b3c4d, 1, 0xffffffff, 0xffffffff, 28),
    words(1, 20, LINK_TYPE.ETHERNET, 0x40000, 20),
  ];
  for (const packet of packets) {
    const padded = concat(packet, new Uint8Array(-packet.length & 3));
    parts.push(
      words(6, 32 + padded.length, 0, 0, 0, packet.length, packet.length),
      padded,
      words(32 + padded.length),
    );
  }
  return concat(...parts);
}

const TALK = conversation({ markers: [true, false] });
const SMALL = wireOf(
  {
    ...TALK,
    fromInitiator: TALK.fromInitiator.subarray(0, 900),
    fromResponder: TALK.fromResponder.subarray(0, 300),
  },
  new Wire(),
  250,
).packets;
const OLD = conversation({ crc: false });
const SEEDS: readonly Uint8Array[] = [
  pcapOf(SMALL),
  toPcapng(SMALL),
  pcapOf(
    wireOf(
      { ...OLD, fromInitiator: OLD.fromInitiator.subarray(0, 800) },
      new Wire([9, 9], (from, s) => ethernet(ipv6(from, s))),
      300,
    ).packets,
  ),
];

const INTERESTING = [0, 1, 0x7f, 0x80, 0xff, 0x40, 0x41, 0xc1, 0x4d];

function mutate(seed: Uint8Array, random: (below: number) => number): Uint8Array {
  let octets: Uint8Array = seed.slice();
  const changes = 1 + random(8);
  for (let i = 0; i < changes; i++) {
    const at = random(octets.length);
    switch (random(6)) {
      case 0:
        octets[at] = random(256);
        break;
      case 1:
        octets[at] = INTERESTING[random(INTERESTING.length)]!;
        break;
      case 2:
        octets[at]! ^= 1 << random(8);
        break;
      case 3:
        octets = octets.slice(0, Math.max(1, at));
        break;
      case 4:
        octets.copyWithin(at, random(octets.length), random(octets.length));
        break;
      default:
        octets = concat(octets.subarray(0, at), bytesOf(random(40), random(256)), octets.subarray(at));
        break;
    }
  }
  return octets;
}

describe('damaged input', () => {
  it(`${COUNT} mutated captures: no throw that is not typed, bounded time`, {
    timeout: 60_000 + COUNT * 20,
  }, () => {
    const random = randomFrom(SEED);
    let refused = 0;
    let worst = 0;
    for (let i = 0; i < COUNT; i++) {
      const octets = mutate(SEEDS[i % SEEDS.length]!, random);
      const began = processorTime();
      try {
        const { events } = dissectOctets(octets, 1 + random(octets.length));
        for (const { event, connection } of events.slice(0, 4)) {
          for (const render of [renderLine, renderTree, renderOctets])
            expect(typeof render(event)).toBe('string');
          JSON.parse(renderJson(event, connection));
        }
      } catch (error) {
        if (!(error instanceof IwarpError)) throw new Error(`input ${i} of seed ${SEED}`, { cause: error });
        refused++;
      }
      worst = Math.max(worst, processorTime() - began);
    }
    expect(worst).toBeLessThan(LIMIT_MS);
    expect(refused).toBeLessThan(COUNT / 2);
  });

  it('looks through octets made to look like FPDUs in linear time and bounded memory', () => {
    // Every fourth octet begins a front that claims 65535 octets: the worst the search can meet.
    const trap = new Uint8Array(4 << 20);
    for (let at = 0; at < trap.length; at += 4) trap.set([0xff, 0xff, 0xc1, 0x40], at);
    const budget = new OctetBudget(WAITING_OCTETS);
    let most = 0;
    const decoder = new StreamDecoder({ direction: 0, begin: 'unknown', budget, emit: () => {} });
    const began = processorTime();
    for (let at = 0; at < trap.length; at += 1448) {
      decoder.push(trap, at, Math.min(trap.length, at + 1448), 0);
      most = Math.max(most, budget.taken);
    }
    decoder.end('capture', 0);
    expect(processorTime() - began).toBeLessThan(LIMIT_MS * 3);
    expect(most).toBeLessThan(1 << 20);
    expect(budget.taken).toBe(0);
  });
});
