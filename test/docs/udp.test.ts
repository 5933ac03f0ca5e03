// docs/udp.md: its proxies and the tables of what one sees, with the commands as they stand there.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseDatagramSettings } from '../../cli/proxy/datagram-proxy.ts';
import { seededRandom } from '../../src/base/random.ts';
import { pattern } from '../verbs/support.ts';
import { DATA, World } from '../trp/support.ts';

const SACK = 0x5000;
const OCTETS = 250_000;
const LATENCY = 1;
const ROUND_TRIP = 2 * LATENCY;
/** Segments that one acknowledgement answers at most. */
const MOST_FOR_ONE = 64;
const SEEDS = Array.from({ length: 16 }, (_, i) => i + 1);

/** The datagrams of an RDMA Write over a network with this loss. */
interface Seen {
  readonly segments: number;
  readonly transmissions: number;
  readonly acks: number;
  readonly sacks: number;
  /** SACKs with one acknowledgement, at most. */
  readonly mostRanges: number;
  /** Transmissions of segments that were lost, those of repeats among them; lost answers. */
  readonly lost: number;
  readonly lostRepeats: number;
  readonly lostAnswers: number;
  /** Segments that came above a hole. */
  readonly above: number;
  /** Milliseconds from each lost first transmission to the next. */
  readonly repairs: readonly number[];
  readonly timeouts: number;
  /** Milliseconds in which nothing was sent, at most. */
  readonly longestPause: number;
  /** How often the sender's window has shrunk, and then grown. */
  readonly shrunk: number;
  readonly grown: number;
}

/** Write through a network with this loss; every segment must arrive, once. */
function watch(loss: number, seed: number): Seen {
  const world = World.connected({ network: { latency: LATENCY } });
  world.run(50);
  const { client, server, network, time } = world;
  const { port } = client.connection!.localAddress!;
  client.memory.bytes.set(pattern(OCTETS, seed));
  const draw = seededRandom(seed);
  const sentAt = new Map<number, number[]>();
  const lostFirst: number[] = [];
  let [lost, lostRepeats, lostAnswers] = [0, 0, 0];
  let [shrunk, grown, window] = [0, 0, client.trp.congestionWindow];
  let [longestPause, last] = [0, time.now()];
  const from = network.passed.length;
  network.mayPass = ({ opcode, bytes, fromPort }) => {
    const { congestionWindow } = client.trp;
    if (congestionWindow < window) shrunk++;
    else if (congestionWindow > window && shrunk > 0) grown++;
    window = congestionWindow;
    const passes = draw() % 1_000_000 >= loss * 1_000_000;
    // All but the client's segments are answers; a client in trouble asks for one by the same datagram.
    if (fromPort !== port || opcode !== DATA || bytes.length === 10) {
      if (!passes) lostAnswers++;
      return passes;
    }
    longestPause = Math.max(longestPause, time.now() - last);
    last = time.now();
    const psn = Buffer.from(bytes).readUInt32BE(0);
    const times = sentAt.get(psn) ?? [];
    times.push(time.now());
    sentAt.set(psn, times);
    if (passes) return true;
    lost++;
    if (times.length > 1) lostRepeats++;
    else lostFirst.push(psn);
    return false;
  };
  client.qp.postSend({
    wrId: 1,
    opcode: 'rdma-write',
    sges: [{ mr: client.memory, length: OCTETS }],
    rkey: server.memory.rkey,
    remoteAddr: 0n,
  });
  world.run(60_000, () => client.poll().length > 0);
  expect(client.completions).toMatchObject([{ wrId: 1, status: 'success' }]);
  expect(Buffer.compare(server.memory.bytes.subarray(0, OCTETS), pattern(OCTETS, seed))).toBe(0);
  expect(server.trp.received).toBe(sentAt.size);
  const passed = network.passed.slice(from);
  let [mostRanges, ranges] = [0, 0];
  for (const { opcode } of passed) {
    ranges = opcode === SACK ? ranges + 1 : 0;
    mostRanges = Math.max(mostRanges, ranges);
  }
  return {
    segments: sentAt.size,
    transmissions: [...sentAt.values()].reduce((sum, { length }) => sum + length, 0),
    acks: passed.filter(({ opcode, bytes }) => opcode === DATA && bytes.length === 10).length,
    sacks: passed.filter(({ opcode }) => opcode === SACK).length,
    mostRanges,
    lost,
    lostRepeats,
    lostAnswers,
    above: server.trp.above,
    repairs: lostFirst.map((psn) => sentAt.get(psn)![1]! - sentAt.get(psn)![0]!),
    timeouts: client.trp.timeouts,
    longestPause,
    shrunk,
    grown,
  };
}

const page = readFileSync(new URL('../../docs/udp.md', import.meta.url), 'utf8');
const commands = [...page.matchAll(/^iwarp .*$/gm)].map(([line]) => line);

describe('docs/udp.md', () => {
  it('has proxy commands that the proxy takes', () => {
    const proxies = commands.filter((line) => line.startsWith('iwarp proxy'));
    expect(proxies.length).toBeGreaterThanOrEqual(3);
    for (const line of proxies) expect(parseDatagramSettings(line.split(' ').slice(2))).not.toBeNull();
  });

  describe('the table of what one sees', () => {
    const rows = new Map(
      [...page.matchAll(/^\| ([\d.]+) % \| (.*) \|$/gm)].map(([, loss, words]) => [loss, words]),
    );

    it('has the words that are checked here', () => {
      expect(Object.fromEntries(rows)).toEqual({
        0: 'one acknowledgement for a burst of up to 64 segments, no `TRP SACK`, nothing repeated',
        0.1:
          'mostly the same; where a segment is lost, each one behind it is answered by a `TRP SACK` until ' +
          'the lost one has come, and that is repeated once',
        1:
          "several such holes, each lost segment repeated after one round trip or two; the sender's window " +
          'shrinks and grows',
        5: 'several ranges at a time; repeats that are lost too',
        30:
          'four of ten segments or more sent again, a few of them by the timer, after a pause; everything ' +
          'still arrives, once',
      });
    });

    it('0 %: few acknowledgements, no SACK, nothing repeated', () => {
      const { segments, transmissions, acks, sacks } = watch(0, 1);
      expect([sacks, transmissions]).toEqual([0, segments]);
      expect(acks).toBeGreaterThanOrEqual(Math.floor(segments / MOST_FOR_ONE));
      expect(acks).toBeLessThan(segments / 16);
    });

    it('0.1 %: a lost segment costs one repetition, and a SACK for each one behind it', () => {
      const seen = SEEDS.map((seed) => watch(0.001, seed));
      for (const { lost, lostAnswers, transmissions, segments, above, sacks } of seen) {
        if (lostAnswers > 0) continue;
        expect(transmissions - segments).toBe(lost);
        expect(sacks).toBe(above);
        expect(sacks > 0).toBe(lost > 0);
      }
      expect(seen.some(({ lost }) => lost > 0)).toBe(true);
      expect(seen.filter(({ sacks }) => sacks === 0).length).toBeGreaterThan(SEEDS.length / 2);
    });

    it('1 %: a lost segment comes again after a round trip or two, and the window shrinks and grows', () => {
      const seen = SEEDS.map((seed) => watch(0.01, seed));
      for (const { repairs, shrunk, lost } of seen) {
        for (const ms of repairs) expect(ms).toBeLessThanOrEqual(2 * ROUND_TRIP);
        expect(shrunk > 0).toBe(lost > 0);
      }
      expect(seen.filter(({ lost }) => lost > 1).length).toBeGreaterThan(SEEDS.length / 4);
      expect(seen.some(({ grown }) => grown > 0)).toBe(true);
    });

    it('5 %: several ranges at a time, and repeats that are lost', () => {
      const seen = SEEDS.map((seed) => watch(0.05, seed));
      expect(seen.filter(({ mostRanges }) => mostRanges > 1).length).toBeGreaterThan(SEEDS.length / 2);
      expect(seen.some(({ lostRepeats }) => lostRepeats > 0)).toBe(true);
    });

    it('30 %: four of ten or more again, timers among them', () => {
      const seen = SEEDS.map((seed) => watch(0.3, seed));
      for (const { transmissions, segments, timeouts } of seen) {
        expect(transmissions - segments).toBeGreaterThan(0.35 * segments);
        expect(timeouts).toBeLessThan((transmissions - segments) / 2);
      }
      expect(seen.filter(({ timeouts }) => timeouts > 0).length).toBeGreaterThan(SEEDS.length / 2);
      // A pause: the least time-out is ten round trips.
      for (const { longestPause, timeouts } of seen)
        if (timeouts > 0) expect(longestPause).toBeGreaterThanOrEqual(10 * ROUND_TRIP);
    });
  });
});
