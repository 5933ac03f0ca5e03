// The cases of iWARP over UDP: their number, some against our own stack, and a target that fails them.
import { describe, expect, it } from 'vitest';
import { TRP_CASES } from '../trp/cases.ts';
import type { Target } from '../trp/probe.ts';
import { runTrpCases } from '../trp/run.ts';
import { openSelf } from '../trp/self.ts';

const named = (...prefixes: string[]) =>
  TRP_CASES.filter(({ name }) => prefixes.some((prefix) => name.startsWith(prefix)));

describe('the cases of iWARP over UDP', () => {
  it('are at least sixty, each with a name of its own and a clause', () => {
    expect(TRP_CASES.length).toBeGreaterThanOrEqual(60);
    expect(new Set(TRP_CASES.map(({ name }) => name)).size).toBe(TRP_CASES.length);
    for (const { clause } of TRP_CASES) expect(clause).toMatch(/\d/);
  });

  it.each(['fixed', 'urdma'] as const)(
    'are passed by our own stack, profile %s',
    async (profile) => {
      const target = await openSelf(profile);
      const cases = named('setup.accept', 'data.', 'sack.', 'fin.', 'foreign.data');
      const results = await runTrpCases(cases, profile, ['passive', 'active'], target, () => undefined);
      target.close();
      expect(results.filter(({ failure }) => failure !== undefined)).toEqual([]);
      expect(results.length).toBeGreaterThan(20);
    },
    60_000,
  );

  it('are failed by a target that says nothing', async () => {
    const silent: Target = { host: '127.0.0.1', port: 9, connect: () => undefined };
    const results = await runTrpCases(named('data.delivered'), 'fixed', ['passive'], silent, () => undefined);
    expect(results.map(({ failure }) => failure)).toEqual(['the request is not answered with an accept']);
  }, 60_000);
});
