// docs/state-machines.md shows the tables that the machines run on.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { renderStatesPage, STATES_PAGE } from '../../scripts/docs-states.ts';
import { STREAM_TABLE } from '../../src/stream/states.ts';
import { QP_TABLE } from '../../src/verbs/qp-states.ts';
import { ROOT } from '../examples/support.ts';

it('docs/state-machines.md is up to date (npm run docs)', () => {
  expect(readFileSync(STATES_PAGE, 'utf8')).toBe(renderStatesPage());
});

it('each transition of a table is an edge of its diagram', () => {
  const page = renderStatesPage();
  for (const table of [STREAM_TABLE, QP_TABLE]) {
    for (const [from, row] of Object.entries(table.transitions)) {
      for (const [input, to] of Object.entries(row)) {
        expect(page).toMatch(new RegExp(`^  ${from} --> ${to}: (.*, )?${input}(,|$)`, 'm'));
      }
    }
  }
});

/** The paths below a folder of the repository, and what the files there say. */
function texts(folder: string, name: RegExp): [path: string, text: string][] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => name.test(path))
    .map((path) => [
      `${folder}/${path.replaceAll('\\', '/')}`,
      readFileSync(join(ROOT, folder, path), 'utf8'),
    ]);
}

it('each table of src is drawn, and taken by a test', () => {
  const page = renderStatesPage();
  const tests = texts('test', /\.test\.ts$/).filter(([path]) => path !== 'test/docs/states.test.ts');
  const tables = texts('src', /\.ts$/).flatMap(([path, text]) =>
    [...text.matchAll(/const (\w+): MachineTable</g)].map(([, name]) => ({ path, name: name! })),
  );
  expect(tables.length).toBeGreaterThan(20);
  for (const { path, name } of tables) {
    expect(page, path).toContain(`\`${name}\` in [${path}](../${path});`);
    const taken = new RegExp(`\\b${name}\\b`);
    expect(tests.filter(([, text]) => taken.test(text)).length, `${name} of ${path}`).toBeGreaterThan(0);
  }
});
