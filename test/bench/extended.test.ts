/** The rows of extended sockets: each cell is measured, and the table has a line for each row. */
import { expect, it } from 'vitest';
import { extendedTable, gather, passThrough } from '../../bench/extended.ts';

it('measures pass-through beside node:net, and the three ways to gather', async () => {
  const plain = await passThrough(1, { trips: [64], writes: [65_536] });
  expect(plain.map(({ row, subject, unit }) => [row, subject, unit])).toEqual([
    ['round trip of 64', 'net', 'us'],
    ['round trip of 64', 'extended', 'us'],
    ['writes of 65536', 'net', 'MB/s'],
    ['writes of 65536', 'extended', 'MB/s'],
  ]);
  const gathered = await gather(1, { sizes: [8192], pieces: [2] });
  expect(gathered.map(({ subject }) => subject).toSorted()).toEqual(['copy', 'cork', 'lend', 'one piece']);
  for (const { value, ratio, cpuRatio } of [...plain, ...gathered])
    for (const number of [value, ratio, cpuRatio]) expect(number).toBeGreaterThan(0);
  const table = extendedTable(plain).split('\n');
  expect(table).toHaveLength(4);
  for (const line of table) expect(line.split('|')).toHaveLength(9);
  expect(table[0]).toBe('| bytes | net | ratio | CPU ratio | extended | ratio | CPU ratio |');
}, 60_000);
