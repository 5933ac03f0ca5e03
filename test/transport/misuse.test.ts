/**
 * Networks for tests that are given what they cannot use say so at once, and name it: a test that tests
 * nothing is the worst there is.
 */
// cspell:ignore recieve latncy evry cuont
import { describe, expect, it } from 'vitest';
import { createServer } from '../../src/sockets/index.ts';
import {
  faulty,
  MemoryTransport,
  pcapTap,
  randomFaults,
  segmenting,
  tap,
  TcpTransport,
  VirtualTime,
  wrapTransport,
} from '../../src/testing.ts';

const time = new VirtualTime();
const network = new MemoryTransport(time);

describe('misuse', () => {
  it.each<[message: string, call: () => unknown]>([
    ['options.latncy is not a known option', () => new MemoryTransport(time, { latncy: 1 } as never)],
    ['options.recieve is not a known option', () => new TcpTransport({ recieve: 'data' } as never)],
    ['options.allocate must be a function, got 5', () => new TcpTransport({ allocate: 5 as never })],
    ['segmentation must be an object, got undefined', () => segmenting(time, undefined as never)],
    [
      'segmentation.kind must be one of asIs, every, random, coalesce, got "evry"',
      () => segmenting(time, { kind: 'evry', octets: 1 } as never),
    ],
    ['segmentation.octets must be an integer', () => segmenting(time, { kind: 'every' } as never)],
    ['segmentation.seed must be an integer', () => segmenting(time, { kind: 'random' } as never)],
    ['segmentation.max must be an integer', () => segmenting(time, { kind: 'random', seed: 1, max: 0 })],
    [
      'faults must be an array, got an instance of Object',
      () => faulty(time, { kind: 'reset', direction: 'in', at: 1 } as never),
    ],
    [
      'faults[1].kind must be one of flip, ',
      () =>
        faulty(time, [
          { kind: 'reset', direction: 'in', at: 1 },
          { kind: 'rest', direction: 'in', at: 1 } as never,
        ]),
    ],
    ['faults[0] must be an object, got null', () => faulty(time, [null as never])],
    ['seed must be an integer', () => randomFaults('7' as never, { octets: 10 })],
    ['range must be an object, got undefined', () => randomFaults(7, undefined as never)],
    ['range.cuont is not a known option', () => randomFaults(7, { octets: 10, cuont: 2 } as never)],
    ['range.octets must be an integer', () => randomFaults(7, {} as never)],
    ['range.count must be an integer', () => randomFaults(7, { octets: 10, count: -1 })],
    ['range.milliseconds must be an integer', () => randomFaults(7, { octets: 10, milliseconds: -1 })],
    [
      'range.kinds[1] must be one of flip, ',
      () => randomFaults(7, { octets: 10, kinds: ['flip', 'flap' as never] }),
    ],
    [
      'range.directions must be an array that is not empty',
      () => randomFaults(7, { octets: 10, directions: [] }),
    ],
    ['makeSink must be a function, got undefined', () => tap(time, undefined as never)],
    ['output must be a function, got undefined', () => pcapTap(undefined as never)],
    ['options.ms is not a known option', () => pcapTap(() => undefined, { ms: 1 } as never)],
    [
      'layers[1] must be a function, got 5',
      () => wrapTransport(network, segmenting(time, { kind: 'asIs' }), 5 as never),
    ],
    ['callback must be a function, got undefined', () => createServer().getConnections(undefined as never)],
  ])('%s', (message, call) => {
    expect(call).toThrow(
      expect.objectContaining({
        code: 'ERR_INVALID_ARGUMENT',
        message: expect.stringContaining(message) as string,
      }),
    );
  });
});
