import { expect, it } from 'vitest';
import { fuzz } from './fuzz.ts';

it('20,000 wrong datagrams neither throw nor lose a completion', () => {
  const { datagrams, dropped, worlds } = fuzz(20_000, 1);
  expect(datagrams).toBe(20_000);
  expect(dropped).toBeGreaterThan(500);
  for (const count of Object.values(worlds)) expect(count).toBeGreaterThan(0);
});
