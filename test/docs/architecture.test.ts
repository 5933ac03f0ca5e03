// docs/architecture.md names files: each of them is there, and where pools are listed, each is.
import { expect, it } from 'vitest';
import { sourceFiles, specifiersIn, textOf } from '../support/modules.ts';

const page = textOf('docs/architecture.md');
const files = ['src', 'cli', 'conformance', 'bench', 'test', 'scripts'].flatMap(sourceFiles);

/** Whether a name of the page, in which stars may stand, means a file: from the root, or from a package. */
function isThere(name: string): boolean {
  const pattern = name
    .replaceAll('.', '\\.')
    .replaceAll('**/', '(.+/)?')
    .replaceAll(/(?<!\.)\*/g, '[^/]*');
  const path = new RegExp(`^((src|conformance|cli)/)?${pattern}$`);
  return files.some((file) => path.test(file));
}

it('each path of a file that the page names exists', () => {
  const names = [...page.matchAll(/[\w*-]+(?:\/[\w*-]+)+\.ts\b/g)].map(([name]) => name);
  expect(names.length).toBeGreaterThan(150);
  expect(names.filter((name) => !isThere(name))).toEqual([]);
});

it('each file that the list of layers names lies in its layer', () => {
  const list = /^## Layers\n+```\n([^]*?)\n```/m.exec(page)![1]!;
  const lines = [...list.matchAll(/^(src\/\w+) +(.*)$/gm)];
  expect(lines.length).toBeGreaterThan(25);
  for (const [, layer, words] of lines)
    for (const [name] of words!.matchAll(/(?<![\w/])[\w-]+\.ts\b/g))
      expect(
        files.filter((file) => file.startsWith(`${layer}/`) && file.endsWith(`/${name}`)),
        `${layer}: ${name}`,
      ).not.toEqual([]);
});

it('each interface for calls upward is declared in the layer that the page says', () => {
  const [, sentence] = /^Calls upward go through interfaces[^:]*: ([^]*?)\. Only/m.exec(page)!;
  const groups = [...sentence!.matchAll(/((?:`\w+`(?: and |, |,\n)?)+) ?\(([\w./-]+)\)/g)];
  expect(groups.length).toBeGreaterThan(4);
  for (const [, names, place] of groups)
    for (const [, name] of names!.matchAll(/`(\w+)`/g)) {
      const inPlace = files.filter((file) => file === `src/${place}` || file.startsWith(`src/${place}/`));
      const declares = new RegExp(`^export (?:interface|type) ${name}\\b`, 'm');
      expect(
        inPlace.some((file) => declares.test(textOf(file))),
        `${name} in ${place}`,
      ).toBe(true);
    }
});

it('each file that has a pool stands in "Memory that is kept"', () => {
  const section = page.split('\n## Memory that is kept\n')[1]!.split('\n## ')[0]!;
  const users = sourceFiles('src').filter((file) =>
    specifiersIn(textOf(file)).some((specifier) => specifier.endsWith('/base/pool.ts')),
  );
  expect(users.length).toBeGreaterThan(5);
  for (const file of users) expect(section).toContain(`\`${file.slice('src/'.length)}\``);
});
