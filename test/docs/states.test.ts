// docs/state-machines.md shows the tables that the machines run on.

import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { renderStatesPage, STATES_PAGE } from '../../scripts/docs-states.ts';
import { STREAM_TABLE } from '../../src/rdmap/stream-states.ts';
import { QP_TABLE } from '../../src/verbs/qp-states.ts';

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
