// Both packages name the repository that scripts/repository.ts has, or none while it has none.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { MANIFESTS, REPOSITORY, withRepository } from '../../scripts/repository.ts';
import { ROOT } from '../examples/support.ts';

const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

it('the address is one, or is not known yet', () => {
  expect(REPOSITORY).toMatch(/^$|^https:\/\/[^/]+\/.*[^/]$/);
});

it.each(MANIFESTS)('$path is as `npx tsx scripts/repository.ts` writes it', ({ path, directory }) => {
  expect(textOf(path)).toBe(withRepository(textOf(path), REPOSITORY, directory));
});

it('an address is written behind the description, once, and can be taken back', () => {
  const before = textOf('conformance/package.json');
  const filled = withRepository(before, 'https://forge.example/iwarp', 'conformance');
  const manifest = JSON.parse(filled) as Record<string, unknown>;
  expect(manifest).toMatchObject({
    repository: {
      type: 'git',
      url: 'git+https://forge.example/iwarp.git',
      directory: 'conformance',
    },
    homepage: 'https://forge.example/iwarp#readme',
    bugs: 'https://forge.example/iwarp/issues',
  });
  expect(Object.keys(manifest).slice(2, 6)).toEqual(['description', 'repository', 'homepage', 'bugs']);
  expect(withRepository(filled, 'https://forge.example/iwarp', 'conformance')).toBe(filled);
  expect(withRepository(filled, '')).toBe(withRepository(before, ''));
  expect(withRepository(textOf('package.json'), 'https://forge.example/iwarp')).not.toContain('directory');
});
