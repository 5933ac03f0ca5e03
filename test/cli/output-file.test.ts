// Files that are written at the end of a program: checked at its beginning, and not created before.
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { OutputFile } from '../../cli/support/output-file.ts';

let folder = '';
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'iwarp-output-'))));
afterEach(() => rmSync(folder, { recursive: true }));

it('there is no file until it is written, and none if it is not', () => {
  const path = join(folder, 'new');
  const file = new OutputFile(path);
  expect(existsSync(path)).toBe(false);
  file.discard();
  expect(existsSync(path)).toBe(false);
  new OutputFile(path).write('text');
  expect(readFileSync(path, 'utf8')).toBe('text');
});

it('a file that is there keeps what it holds until it is written', () => {
  const path = join(folder, 'old');
  writeFileSync(path, 'what it held, at length');
  new OutputFile(path).discard();
  const file = new OutputFile(path);
  expect(readFileSync(path, 'utf8')).toBe('what it held, at length');
  file.write('new');
  file.discard();
  expect(readFileSync(path, 'utf8')).toBe('new');
});

it('a link to nowhere stays a link, and is written through', () => {
  const [link, path] = [join(folder, 'link'), join(folder, 'target')];
  symlinkSync(path, link);
  const file = new OutputFile(link);
  expect([readlinkSync(link), existsSync(path)]).toEqual([path, false]);
  file.write('text');
  expect([readlinkSync(link), readFileSync(path, 'utf8')]).toEqual([path, 'text']);
});

it('a name that cannot be had is refused at once', () => {
  expect(() => new OutputFile(join(folder, 'none', 'file'))).toThrow(/ENOENT/);
  expect(() => new OutputFile(folder)).toThrow(/EISDIR/);
});
