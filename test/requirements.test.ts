// Keeps the requirements catalogue, the tests, the conformance cases and the citations in the sources in
// step. How they are scanned: scripts/requirements.ts and scripts/requirements-scan.ts. `npx tsx
// scripts/requirements.ts` prints the whole picture.

import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { exceptions } from '../conformance/catalogue/exceptions.ts';
import {
  GROUPS,
  GROUP_SIZES,
  isRequirement,
  requirement,
  requirements,
} from '../conformance/catalogue/index.ts';
import type { Group } from '../conformance/catalogue/index.ts';
import { citationsInData, citationsInTitles, idsIn } from '../scripts/requirements-scan.ts';
import { compact, examine, missingOf, renderText } from '../scripts/requirements.ts';

/**
 * Groups in which every MUST needs a test, a case or an exception; a group joins when its tests are complete.
 */
const ENFORCED: readonly Group[] = ['MPA', 'DDP', 'RDMAP', 'ENH', 'EXT', 'SEC', 'VERBS'];

const report = examine(fileURLToPath(new URL('..', import.meta.url)));

describe('the catalogue', () => {
  it.each([...GROUPS])('holds every requirement of group %s once, numbered from 1 without a gap', (group) => {
    const ids = requirements.filter((entry) => entry.group === group).map((entry) => entry.id);
    expect(ids).toEqual(
      Array.from({ length: GROUP_SIZES[group] }, (_, i) => `${group}-${String(i + 1).padStart(3, '0')}`),
    );
  });

  it('holds 601 requirements in all, every one with a clause and a text', () => {
    expect(GROUP_SIZES).toEqual({ MPA: 114, DDP: 71, RDMAP: 100, ENH: 49, EXT: 52, SEC: 38, VERBS: 177 });
    expect(requirements).toHaveLength(601);
    for (const entry of requirements) {
      expect(entry.clause, entry.id).toMatch(/^(RFC \d{4}|verbs draft) /);
      expect(entry.text.length, entry.id).toBeGreaterThan(10);
      expect(requirement(entry.id)).toBe(entry);
    }
  });

  it('excepts requirements that nothing shows, or wishes that yield to a duty, with reasons', () => {
    for (const [id, reason] of Object.entries(exceptions)) {
      expect(isRequirement(id), id).toBe(true);
      // A SHOULD may give way where another text says MUST; a MUST is excepted only where neither a peer nor
      // an interface can show it.
      expect(requirement(id)?.kind === 'local' || requirement(id)?.level.startsWith('SHOULD'), id).toBe(true);
      expect(reason.length, id).toBeGreaterThan(40);
    }
  });
});

describe('the repository', () => {
  it('names no requirement that the catalogue does not have', () => {
    expect(report.unknown).toEqual([]);
  });

  it('has no exception for a requirement that is tested', () => {
    expect(report.stale).toEqual([]);
  });

  it('proves or excepts every MUST of the enforced groups', () => {
    const missing = ENFORCED.flatMap((group) =>
      missingOf(report, group, true).map((status) => status.entry.id),
    );
    expect(compact(missing)).toBe('');
  });

  it('is reported with one row for each requirement', () => {
    const all = renderText(report, GROUPS, 'all')
      .split('\n')
      .filter((line) => /^[A-Z]+-\d{3} /.test(line));
    expect(all).toHaveLength(601);
    const lines = renderText(report, ['MPA'], 'all')
      .split('\n')
      .filter((line) => /^MPA-\d{3} /.test(line));
    expect(lines).toHaveLength(114);
  });
});

describe('the scanner', () => {
  const titles = (text: string): string[] =>
    citationsInTitles(text, 'x.test.ts').map((citation) => citation.id);

  it('reads single ids, lists, ranges and slashes', () => {
    expect(idsIn('MPA-094..097: a')).toEqual(['MPA-094', 'MPA-095', 'MPA-096', 'MPA-097']);
    expect(idsIn('DDP-001..DDP-003')).toEqual(['DDP-001', 'DDP-002', 'DDP-003']);
    expect(idsIn('MPA-066 MPA-067, RDMAP-001')).toEqual(['MPA-066', 'MPA-067', 'RDMAP-001']);
    expect(idsIn('MPA-066/067')).toEqual(['MPA-066', 'MPA-067']);
    expect(idsIn(`a sentence ends at ${'MPA'}-094..`)).toEqual(['MPA-094']);
  });

  it('keeps a backward range and an id of wrong length as they are, to count as unknown', () => {
    const backward = `${'MPA'}-097..094`;
    expect(idsIn(backward)).toEqual(['MPA-097', backward]);
    expect(idsIn(`${'MPA'}-7`).some(isRequirement)).toBe(false);
  });

  it('counts titles of tests, and of suites that hold a test', () => {
    expect(titles("it('MPA-001: a', () => {});")).toEqual(['MPA-001']);
    expect(titles("test.concurrent('MPA-001: a', f);")).toEqual(['MPA-001']);
    expect(titles("describe('MPA-001', () => { it('x', f); });")).toEqual(['MPA-001']);
    expect(titles("describe('MPA-001', () => {});")).toEqual([]);
  });

  it('does not count comments, skipped tests or bodies', () => {
    expect(titles("// MPA-001\nit('x', () => { log('MPA-002'); });")).toEqual([]);
    expect(
      titles(
        "it.skip('MPA-001', f); it.todo('MPA-002'); describe.skip('MPA-003', () => { it('MPA-004', f); });",
      ),
    ).toEqual([]);
  });

  it('follows titles to the data they are built from', () => {
    expect(titles("it.each([['MPA-001', 1], ['MPA-002', 2]])('%s works', f);")).toEqual([
      'MPA-001',
      'MPA-002',
    ]);
    expect(titles("const t = [{ id: 'MPA-001' }]; for (const { id } of t) it(`${id}: x`, f);")).toEqual([
      'MPA-001',
    ]);
    expect(titles("['MPA-001'].forEach((id) => { it(`${id}: x`, f); });")).toEqual(['MPA-001']);
    expect(
      titles("function check(a, title) { it(title, f); } check(1, 'MPA-001: x'); check(2, 'MPA-002');"),
    ).toEqual(['MPA-001', 'MPA-002']);
    expect(titles("const t = ['MPA-001']; it(`${u}: x`, f);")).toEqual([]);
  });

  it('counts ids of cases only where they are data', () => {
    const text =
      "export const c = { requirements: ['MPA-004', 'MPA-005 MPA-006', 'MPA-010..012'], why: 'see " +
      "MPA-001' }; // MPA-002";
    expect(citationsInData(text, 'c.ts').map((citation) => citation.id)).toEqual([
      'MPA-004',
      'MPA-005',
      'MPA-006',
      'MPA-010',
      'MPA-011',
      'MPA-012',
    ]);
  });

  it('writes runs of ids compactly', () => {
    expect(compact(['MPA-001', 'MPA-002', 'MPA-004', 'DDP-005'])).toBe('MPA-001..002 MPA-004 DDP-005');
  });
});
