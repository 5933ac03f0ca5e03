/**
 * Holds the tables of docs/architecture.md, "Who may import whom": reads every import of src/ and conformance/, refuses what the tables do not
 * allow, and asks for each entry of them that some import uses it.
 */
import { describe, expect, it } from 'vitest';
import { resolved, sourceFiles, specifiersIn, textOf } from './support/modules.ts';

const PAGE = 'docs/architecture.md';

/** A row of a table. */
interface Room {
  /** Its first cell, as it stands. */
  readonly name: string;
  /** The files that belong to it: paths from the root, with `*` for any part of a file's name and `**` for any folders. */
  readonly places: readonly string[];
  /** Rooms and files that it may import. */
  readonly imports: readonly string[];
  /** Modules from outside that it may import; `node:*` is any of Node's. */
  readonly outside: readonly string[];
}

/** The rows of the table for a folder. Names in it count from there, and from the root with `src/` in front. */
function roomsOf(folder: string): Room[] {
  const [, table] = textOf(PAGE).split(new RegExp(`^\\| \`${folder}/\` \\|.*\\n\\|[-|]+\\n`, 'm'));
  if (table === undefined) throw new Error(`${PAGE} has no table for ${folder}/`);
  const inFolder = (name: string): string => (name.startsWith('src/') ? name : `${folder}/${name}`);
  const words = (cell: string): string[] => Array.from(cell.matchAll(/`([^`]+)`/g), ([, word]) => word!);
  return table.slice(0, table.search(/\n(?!\|)/)).split('\n').map((line) => {
    const [, places, imports, outside] = line.split('|').map((cell) => cell.trim());
    return { name: places!, places: words(places!).map(inFolder), imports: words(imports!).map(inFolder), outside: words(outside!) };
  });
}

const pattern = (place: string): RegExp =>
  new RegExp(`^${place.replaceAll('.', '\\.').replaceAll('**/', '(.+/)?').replaceAll('*', '[^/]*')}${place.endsWith('.ts') ? '' : '/.*'}$`);

/** Whether a file lies in a place: a folder, or a file with or without stars. */
const liesIn = (file: string, place: string): boolean => pattern(place).test(file);

/** A place without stars that names a file is more to the point than one with stars, and that more than a folder. */
const sharpness = (place: string): number => (place.endsWith('.ts') ? (place.includes('*') ? 1 : 2) : 0);

const ROOMS: readonly Room[] = [...roomsOf('src'), ...roomsOf('conformance')];

/** The row of a file: that with the sharpest place which it lies in. */
function roomOf(file: string): Room | undefined {
  const found = ROOMS.flatMap((room) => room.places.filter((place) => liesIn(file, place)).map((place) => ({ room, sharp: sharpness(place) })));
  return found.sort((a, b) => b.sharp - a.sharp)[0]?.room;
}

/** The entry of a row that allows this import. */
function allowance(room: Room, target: string, isOutside: boolean): string | undefined {
  if (isOutside) return room.outside.find((name) => name === target || (name === 'node:*' && target.startsWith('node:')));
  // A room as a whole is named as in its own first cell; a file by its path.
  return room.imports.find((name) => (name.endsWith('.ts') && !name.includes('*') ? name === target : roomOf(target)?.places.includes(name)));
}

const FILES = [...sourceFiles('src'), ...sourceFiles('conformance')];
const IMPORTS = FILES.flatMap((file) => specifiersIn(textOf(file)).map((specifier) => ({ file, target: resolved(file, specifier), isOutside: !specifier.startsWith('.') })));

describe('the rooms', () => {
  it('have a row for every file, and a file for every row', () => {
    expect(FILES.filter((file) => roomOf(file) === undefined)).toEqual([]);
    const inUse = new Set(FILES.map(roomOf));
    expect(ROOMS.filter((room) => !inUse.has(room)).map(({ name }) => name)).toEqual([]);
    expect(FILES.length).toBeGreaterThan(250);
    expect(IMPORTS.length).toBeGreaterThan(1500);
  });

  it('import nothing that their row does not name', () => {
    const wrong = IMPORTS.filter(({ file, target, isOutside }) => {
      const room = roomOf(file)!;
      return (isOutside || roomOf(target) !== room) && allowance(room, target, isOutside) === undefined;
    });
    expect(wrong.map(({ file, target }) => `${file} -> ${target}`)).toEqual([]);
  });

  it('use everything that their row names', () => {
    const used = new Map<Room, Set<string>>(ROOMS.map((room) => [room, new Set()]));
    for (const { file, target, isOutside } of IMPORTS) {
      const room = roomOf(file)!;
      if (isOutside || roomOf(target) !== room) used.get(room)!.add(allowance(room, target, isOutside) ?? '');
    }
    expect(ROOMS.flatMap((room) => [...room.imports, ...room.outside].filter((name) => !used.get(room)!.has(name)).map((name) => `${room.name} -> ${name}`))).toEqual([]);
  });

  it('stand in order: a whole room is imported from below it only', () => {
    const place = (name: string): number => ROOMS.findIndex((room) => room.places.includes(name));
    const upwards = ROOMS.flatMap((room, at) => room.imports.filter((name) => place(name) >= at).map((name) => `${room.name} -> ${name}`));
    expect(upwards).toEqual([]);
  });
});

it('imports of every form are seen', () => {
  expect(specifiersIn(`
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
  `).sort()).toEqual([
    './again-type.ts', './again.ts', './alone.ts', './inline.ts', './later.ts', './lines.ts', './named.ts', './space.ts', './type.ts', './whole.ts',
  ]);
});
