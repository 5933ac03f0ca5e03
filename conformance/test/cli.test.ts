// The command line, the tester protocol over TCP, and the profiles that know less of their peer.

import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { run } from '../cli.ts';
import { openSelf } from '../profiles/self.ts';
import { openCommand } from '../profiles/command.ts';
import { SelfTarget, serveTester } from '../profiles/self-target.ts';
import { caseNamed, faults, fastCases, runAgainstSelf } from './support.ts';

interface Outcome {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

/** Run a command line and keep what it prints. */
async function command(...args: string[]): Promise<Outcome> {
  let out = '';
  let err = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    out += String(text);
    return true;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    err += String(text);
    return true;
  });
  const status = await run(args);
  vi.restoreAllMocks();
  return { status, out, err };
}

afterEach(() => {
  vi.restoreAllMocks();
});

describe('the command line', () => {
  it('lists cases by name, requirement and section', async () => {
    expect((await command('list', 'ddp.msn')).out).toMatch(/^ddp\.msn\.first-send-0 .*DDP-043/m);
    expect((await command('list', '--by', 'requirement', 'mpa')).out).toContain('MPA-004 (RFC 5044 7.1.1');
    expect((await command('list', '--by', 'section')).out).toMatch(/^RFC 5041 7\.1$/m);
    expect(await command('list', '--by', 'colour')).toMatchObject({ status: 2 });
  });

  it('runs chosen cases and exits with 0, writes reports into files', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-conformance-'));
    const { status, out } = await command('run', 'ddp.empty-write', 'mpa.request.revision-0', '--strict', '--report', `json:${folder}/r.json`, '--report', `html:${folder}/r.html`, '--captures', join(folder, 'captures'));
    expect(status).toBe(0);
    expect(out).toMatch(/^13 run: 13 passed/);
    const report = JSON.parse(readFileSync(join(folder, 'r.json'), 'utf8')) as { totals: { run: number } };
    expect(report.totals.run).toBe(13);
    expect(readFileSync(join(folder, 'r.html'), 'utf8')).toContain('<title>iWARP conformance');
    expect(readdirSync(join(folder, 'captures'))).toEqual([]);
    rmSync(folder, { recursive: true });
  });

  it('covers the catalogue and checks the vectors', async () => {
    expect(await command('coverage')).toMatchObject({ status: 0 });
    expect(await command('vectors', '--check')).toMatchObject({ status: 0 });
    expect((await command('vectors', '--print')).out).toContain('ULPDU_Length');
  });

  it('refuses what it does not understand with 2', async () => {
    for (const args of [['fly'], ['run', 'no.such.case'], ['run', '--report', 'pdf'], ['run', '--target', 'nowhere'], ['run', '--profile', 'rping'], ['run', '--quirk', 'x'], ['run', '--unknown']]) {
      expect((await command(...args)).status, args.join(' ')).toBe(2);
    }
    expect((await command('--help')).status).toBe(0);
  });
});

describe('the tester protocol over TCP', () => {
  it('serves every operation that the cases use', async () => {
    const server = await serveTester('127.0.0.1', 0);
    const profile = await openSelf({ control: { host: '127.0.0.1', port: server.port } });
    const chosen = ['ddp.write.other-pd', 'rdmap.send-inv.shared', 'ext.atomic.two-streams', 'ddp.msn.wrap-sent', 'mpa.reply.private-data-3', 'rdmap.terminate.reported', 'mpa.close.by-the-peer'].map(caseNamed);
    const results = await runAgainstSelf(chosen, ['initiator', 'responder'], {}, profile);
    expect(faults(results)).toEqual([]);
    await profile.close();
    server.close();
  });
});

describe('profile command', () => {
  it('examines a peer of which nothing is known, and leaves out what needs more', async () => {
    const target = new SelfTarget();
    const { port } = await target.call('listen', { host: '127.0.0.1', options: {} });
    const profile = openCommand({ target: { host: '127.0.0.1', port }, listen: { host: '127.0.0.1', port: 0 } });
    const chosen = fastCases.filter((entry) => entry.id.startsWith('mpa.request.key') || entry.id === 'ddp.write.other-pd');
    const results = await runAgainstSelf(chosen, ['initiator'], {}, profile);
    expect(results.filter((r) => r.verdict === 'pass')).toHaveLength(18);
    expect(results.filter((r) => r.verdict === 'skip').map((r) => r.reason)).toEqual(['profile command has no tester']);
    target.close();
  });
});
