/**
 * docs/engines.md: its table is that of docs/matrix.json, whose runs were in the configurations that they are
 * named after.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { RUNTIMES } from '../../scripts/runtimes.ts';
import { MATRIX_PAGE, MATRIX_RECORD, matrixPage, type MatrixRecord } from '../../scripts/docs-matrix.ts';
import { CONFIGURATIONS, expectedSettings, VARIABLES } from '../../scripts/matrix-configurations.ts';

const page = readFileSync(MATRIX_PAGE, 'utf8');
const record = JSON.parse(readFileSync(MATRIX_RECORD, 'utf8')) as MatrixRecord;

describe('the matrix', () => {
  it('is in the page as it was recorded: npx tsx scripts/docs-matrix.ts', () => {
    expect(matrixPage(page, record)).toBe(page);
  });

  it.each(record.runs)(
    'has the $kind run with $name in Node $node as one of the whole, in which that was in force',
    ({ name, kind, environment, settings, passed, failed }) => {
      expect(CONFIGURATIONS.find((each) => each.name === name)?.environment).toEqual(environment);
      // Which CRC32c is the fastest is the recording host's affair.
      expect({
        busyPoll: expectedSettings(environment).busyPoll,
        ...settings,
        crc32c: environment.IWARP_CRC32C ?? '',
      }).toEqual({ ...expectedSettings(environment), crc32c: environment.IWARP_CRC32C ?? '' });
      if (environment.IWARP_CRC32C !== undefined) expect(settings.crc32c).toBe(environment.IWARP_CRC32C);
      expect(passed + failed.length).toBeGreaterThan(kind === 'suite' ? 3000 : 10);
    },
  );

  it('has the suite and the interop cases in each configuration, the suite also in each Node', () => {
    // The fastest CRC32c has no separate rows: nothing set is the same.
    const suites = CONFIGURATIONS.map(({ name }) => name).filter((name) => name !== 'simd');
    const rows = record.runs.map(({ name, kind, node }) => `${kind} ${name} ${node.split('.')[0]}`);
    for (const name of suites)
      expect(rows).toEqual(expect.arrayContaining([`suite ${name} 20`, `interop ${name} 20`]));
    for (const node of [22, 24, 26]) expect(rows).toContain(`suite default ${node}`);
  });

  it('has the programs in each other runtime, and none of them failed', () => {
    const rows = (record.runtimes ?? []).map(({ name, version, failed }) => ({ name, version, failed }));
    expect(rows).toEqual(RUNTIMES.map(({ name, version }) => ({ name, version, failed: [] })));
    for (const { passed } of record.runtimes!) expect(passed).toBeGreaterThan(10);
  });

  it('is of variables that the page explains', () => {
    for (const name of VARIABLES) expect(page).toContain(`| \`${name}\` |`);
  });
});
