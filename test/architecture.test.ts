/**
 * Holds the tables of docs/architecture.md, "Who may import whom": reads every import of src/ and
 * conformance/, refuses what the tables do not allow, and asks for each entry of them that some import uses
 * it. Lines of code are as wide as the formatter allows, comments and strings included.
 */
import { describe, expect, it } from 'vitest';
import { trackedFiles, WIDE, WIDTH, wideLines } from '../scripts/style.ts';
import { circlesIn, referencesIn, resolved, sourceFiles, specifiersIn, textOf } from './support/modules.ts';

const PAGE = 'docs/architecture.md';

/** A row of a table. */
interface Layer {
  /** Its first cell, as it stands. */
  readonly name: string;
  /**
   * The files that belong to it: paths from the root, with `*` for any part of a file's name and `**` for any
   * folders.
   */
  readonly places: readonly string[];
  /** Layers and files that it may import. */
  readonly imports: readonly string[];
  /** Modules from outside that it may import; `node:*` is any of Node's. */
  readonly outside: readonly string[];
}

/**
 * The rows of the table for a folder. Names in it count from there, and from the root with `src/` in front.
 */
function layersOf(folder: string): Layer[] {
  const [, table] = textOf(PAGE).split(new RegExp(`^\\| \`${folder}/\` \\|.*\\n\\|[-|]+\\n`, 'm'));
  if (table === undefined) throw new Error(`${PAGE} has no table for ${folder}/`);
  const inFolder = (name: string): string => (/^(src|cli)\//.test(name) ? name : `${folder}/${name}`);
  const words = (cell: string): string[] => Array.from(cell.matchAll(/`([^`]+)`/g), ([, word]) => word!);
  return table
    .slice(0, table.search(/\n(?!\|)/))
    .split('\n')
    .map((line) => {
      const [, places, imports, outside] = line.split('|').map((cell) => cell.trim());
      return {
        name: places!,
        places: words(places!).map(inFolder),
        imports: words(imports!).map(inFolder),
        outside: words(outside!),
      };
    });
}

const pattern = (place: string): RegExp =>
  new RegExp(
    `^${place.replaceAll('.', '\\.').replaceAll('**/', '(.+/)?').replaceAll('*', '[^/]*')}` +
      `${place.endsWith('.ts') ? '' : '/.*'}$`,
  );

/** Whether a file lies in a place: a folder, or a file with or without stars. */
const liesIn = (file: string, place: string): boolean => pattern(place).test(file);

/**
 * A place without stars that names a file is more to the point than one with stars, and that more than a
 * folder.
 */
const sharpness = (place: string): number => (place.endsWith('.ts') ? (place.includes('*') ? 1 : 2) : 0);

const LAYERS: readonly Layer[] = [...layersOf('src'), ...layersOf('cli'), ...layersOf('conformance')];

/** The row of a file: that with the sharpest place which it lies in. */
function layerOf(file: string): Layer | undefined {
  const found = LAYERS.flatMap((layer) =>
    layer.places.filter((place) => liesIn(file, place)).map((place) => ({ layer, sharp: sharpness(place) })),
  );
  return found.sort((a, b) => b.sharp - a.sharp)[0]?.layer;
}

/** The entry of a row that allows this import. */
function allowance(layer: Layer, target: string, isOutside: boolean): string | undefined {
  if (isOutside)
    return layer.outside.find((name) => name === target || (name === 'node:*' && target.startsWith('node:')));
  // A layer as a whole is named as in its own first cell; a file by its path.
  return layer.imports.find((name) =>
    name.endsWith('.ts') && !name.includes('*') ? name === target : layerOf(target)?.places.includes(name),
  );
}

const FILES = [...sourceFiles('src'), ...sourceFiles('cli'), ...sourceFiles('conformance')];
const IMPORTS = FILES.flatMap((file) =>
  specifiersIn(textOf(file)).map((specifier) => ({
    file,
    target: resolved(file, specifier),
    isOutside: !specifier.startsWith('.'),
  })),
);

describe('the layers', () => {
  it('have a row for every file, and a file for every row', () => {
    expect(FILES.filter((file) => layerOf(file) === undefined)).toEqual([]);
    const inUse = new Set(FILES.map(layerOf));
    expect(LAYERS.filter((layer) => !inUse.has(layer)).map(({ name }) => name)).toEqual([]);
    expect(FILES.length).toBeGreaterThan(250);
    expect(IMPORTS.length).toBeGreaterThan(1500);
  });

  it('import nothing that their row does not name', () => {
    const wrong = IMPORTS.filter(({ file, target, isOutside }) => {
      const layer = layerOf(file)!;
      return (isOutside || layerOf(target) !== layer) && allowance(layer, target, isOutside) === undefined;
    });
    expect(wrong.map(({ file, target }) => `${file} -> ${target}`)).toEqual([]);
  });

  it('use everything that their row names', () => {
    const used = new Map<Layer, Set<string>>(LAYERS.map((layer) => [layer, new Set()]));
    for (const { file, target, isOutside } of IMPORTS) {
      const layer = layerOf(file)!;
      if (isOutside || layerOf(target) !== layer)
        used.get(layer)!.add(allowance(layer, target, isOutside) ?? '');
    }
    expect(
      LAYERS.flatMap((layer) =>
        [...layer.imports, ...layer.outside]
          .filter((name) => !used.get(layer)!.has(name))
          .map((name) => `${layer.name} -> ${name}`),
      ),
    ).toEqual([]);
  });

  it('stand in order: a whole layer is imported from below it only', () => {
    const place = (name: string): number => LAYERS.findIndex((layer) => layer.places.includes(name));
    const upwards = LAYERS.flatMap((layer, at) =>
      layer.imports.filter((name) => place(name) >= at).map((name) => `${layer.name} -> ${name}`),
    );
    expect(upwards).toEqual([]);
  });
});

describe('circles of imports', () => {
  const OWN = [...sourceFiles('src'), ...sourceFiles('cli')];
  const graph = (withTypes: boolean): Map<string, string[]> =>
    new Map(
      OWN.map((file) => [
        file,
        referencesIn(textOf(file))
          .filter(({ specifier, typeOnly }) => specifier.startsWith('.') && (withTypes || !typeOnly))
          .map(({ specifier }) => resolved(file, specifier)),
      ]),
    );

  it('through values: there are none', () => {
    expect(circlesIn(graph(false))).toEqual([]);
    expect([...graph(false).values()].flat().length).toBeGreaterThan(500);
  });

  it('through types: each lies among files that docs/architecture.md gives a reason for', () => {
    const [, section] = textOf(PAGE).split('### Circles of types\n');
    const rows = Array.from(
      section!.split(/\n\n(?!\|)/)[0]!.matchAll(/^\| (`[^|]+`) \| ([^|]+) \|$/gm),
      ([, files, reason]) => {
        expect(reason!.length).toBeGreaterThan(40);
        return new Set(Array.from(files!.matchAll(/`([^`]+)`/g), ([, file]) => `src/${file}`));
      },
    );
    const circles = circlesIn(graph(true));
    expect(circles.filter((circle) => !rows.some((row) => circle.every((file) => row.has(file))))).toEqual(
      [],
    );
    const inCircles = new Set(circles.flat());
    expect(rows.flatMap((row) => [...row]).filter((file) => !inCircles.has(file))).toEqual([]);
  });

  it('are found, and types are distinguished from values', () => {
    expect(
      referencesIn(`
      import './effect.ts';
      import type { A } from './a.ts';
      import { type B, type C } from './b.ts';
      import { type D, e } from './d.ts';
      import all from './all.ts';
      export * from './star.ts';
      export type { F } from './f.ts';
      export { type G } from './g.ts';
      type H = import('./h.ts').H;
      const later = () => import('./later.ts');
    `).map(({ specifier, typeOnly }) => `${specifier} ${typeOnly}`),
    ).toEqual([
      './effect.ts false',
      './a.ts true',
      './b.ts true',
      './d.ts false',
      './all.ts false',
      './star.ts false',
      './f.ts true',
      './g.ts true',
      './h.ts true',
    ]);
    const edges = new Map(
      Object.entries({ a: ['b'], b: ['c', 'a'], c: ['d'], d: ['e'], e: ['d', 'f'], f: [] }),
    );
    expect(circlesIn(edges)).toEqual([
      ['d', 'e'],
      ['a', 'b'],
    ]);
  });
});

it('imports of every form are seen', () => {
  expect(
    specifiersIn(`
    import './alone.ts';
    import only, { type T } from './named.ts';
    import {
      a,
      b,
    } from './lines.ts';
    import * as all from './space.ts';
    import type { U } from './type.ts';
    export { c } from './again.ts';
    export * from './whole.ts';
    export type { V } from './again-type.ts';
    type W = import('./inline.ts').W;
    const later = async () => (await import('./later.ts')).run;
    // import './comment.ts';
    const text = "import './text.ts'";
  `).sort(),
  ).toEqual([
    './again-type.ts',
    './again.ts',
    './alone.ts',
    './inline.ts',
    './later.ts',
    './lines.ts',
    './named.ts',
    './space.ts',
    './type.ts',
    './whole.ts',
  ]);
});

describe('lines of code', () => {
  it(`have at most ${WIDTH} columns, comments and strings included`, () => {
    expect(wideLines().map(({ path, line }) => `${path}:${line}`)).toEqual([]);
    expect(trackedFiles(/\.ts$/).length).toBeGreaterThan(600);
  });

  it('are excepted only where the file exists and a reason is given', () => {
    const files = new Set(trackedFiles(/./));
    for (const [path, reason] of Object.entries(WIDE)) {
      expect(files).toContain(path);
      expect(reason.length).toBeGreaterThan(20);
    }
  });
});
