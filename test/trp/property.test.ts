/**
 * Whatever the network does to datagrams, every request ends exactly once, with the outcome and the memory
 * of a network that does nothing to them.
 */
import { describe, expect, it } from 'vitest';
import type { MemoryDatagramOptions } from '../../src/simnet/datagrams.ts';
import type { TrpOptions } from '../../src/trp/profile.ts';
import { play, withoutOrder } from './script.ts';

const NETWORKS: readonly [string, MemoryDatagramOptions][] = [
  ['0.1 % loss', { loss: 0.001, latency: 1 }],
  ['1 % loss', { loss: 0.01, latency: 1 }],
  ['10 % loss', { loss: 0.1, latency: 0.5 }],
  ['30 % loss', { loss: 0.3, latency: 1 }],
  ['30 % reordering', { reordering: 0.3, disorder: 5, latency: 1 }],
  ['half of all twice', { repetition: 0.5, latency: 0.2 }],
  ['all of it', { loss: 0.1, repetition: 0.2, reordering: 0.3, disorder: 10, latency: 2 }],
];

const MODES: readonly [string, TrpOptions][] = [
  ['placing', {}],
  ['placing, Reads placed', { reads: 'placed' }],
  ['ordered', { receiver: 'ordered' }],
  ['near the wrap', { firstPsn: 0xffff_fff0 }],
  ['a window of 4', { window: 4 }],
];

describe.each(MODES)('%s', (_name, trp) => {
  it.each(NETWORKS)('with %s everything ends once, as if nothing had happened', (_network, network) => {
    for (let seed = 1; seed <= 4; seed++) {
      const [ours, theirs] = play(seed, { latency: 1 }, trp);
      const [client, server] = play(seed, { ...network, seed }, trp);
      if (trp.reads === 'placed') {
        expect(withoutOrder(client)).toEqual(withoutOrder(ours));
        expect(withoutOrder(server)).toEqual(withoutOrder(theirs));
      } else {
        expect(client).toEqual(ours);
        expect(server).toEqual(theirs);
      }
      expect(client.sends.every((one) => one.includes(' success '))).toBe(true);
    }
  });
});

describe('profile urdma', () => {
  // Six transmissions are all there are, and one range above a hole is all that is kept: with much loss or
  // reordering some datagram has none that is taken.
  it.each(NETWORKS.filter(([name]) => !/^30|^all/.test(name)))(
    'with %s everything ends once, as if nothing had happened',
    (_network, network) => {
      const trp = { profile: 'urdma' } as const;
      const [ours, theirs] = play(5, { latency: 1 }, trp);
      const [client, server] = play(5, { ...network, seed: 5 }, trp);
      expect(client).toEqual(ours);
      expect(server).toEqual(theirs);
    },
  );
});
