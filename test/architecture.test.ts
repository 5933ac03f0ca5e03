/**
 * Holds the table of rooms (docs/architecture.md): reads every import line of src/ and conformance/ and refuses what the table does not
 * allow.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SRC = join(ROOT, 'src');

/** What each room may import, besides itself. A trailing file name allows just that file. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  base: [],
  crc32c: ['base'],
  mpa: ['base', 'crc32c'],
  ddp: ['base', 'crc32c', 'mpa'],
  rdmap: ['base', 'crc32c', 'mpa', 'ddp'],
  verbs: ['base', 'crc32c', 'mpa', 'ddp', 'rdmap'],
  transport: ['base'],
  cm: ['base', 'crc32c', 'mpa', 'ddp', 'rdmap', 'verbs', 'transport/port.ts', 'transport/ip-address.ts'],
  // What a process shows of itself: below the promise layer, whose devices it is told of when they are opened.
  observe: ['base', 'mpa', 'ddp', 'rdmap', 'verbs', 'cm', 'inspect', 'transport'],
  // The promise layer is where the stack meets the machine, in the one file environment.ts.
  api: ['base', 'crc32c', 'mpa', 'ddp', 'rdmap', 'verbs', 'cm', 'observe', 'engine/progress.ts', 'transport/port.ts', 'transport/tcp.ts', 'transport/busy-poll.ts', 'transport/scheduler.ts'],
  engine: ['base', 'crc32c', 'mpa', 'ddp', 'rdmap', 'verbs', 'cm', 'transport'],
  sockets: ['base', 'crc32c', 'mpa', 'ddp', 'rdmap', 'verbs', 'cm', 'api', 'transport'],
  inspect: ['base', 'crc32c', 'mpa/wire.ts', 'mpa/deframer.ts', 'ddp/wire.ts', 'rdmap/wire.ts', 'rdmap/terminate.ts'],
  tools: ['base', 'crc32c', 'mpa', 'ddp', 'rdmap', 'verbs', 'cm', 'observe', 'api', 'transport', 'inspect', 'sockets', 'engine'],
};

/** Rooms that may touch Node's modules, and what the others may: nothing. */
const NODE_ROOMS = new Set(['transport', 'engine', 'observe', 'sockets', 'inspect', 'tools']);
/** Modules without I/O that the promise layer may use. */
const API_NODE_MODULES = new Set(['node:diagnostics_channel', 'node:perf_hooks', 'node:os']);

function files(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name));
}

function imports(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  return [...text.matchAll(/^(?:import|export)\b[^'"]*?from\s+['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]\s*\)/gm)].map((m) => (m[1] ?? m[2])!);
}

const room = (file: string): string => relative(SRC, file).split(sep)[0]!;

describe('the rooms of src/', () => {
  const sources = files(SRC).filter((file) => room(file) !== relative(SRC, file));

  it('finds the sources', () => {
    expect(sources.length).toBeGreaterThan(40);
  });

  it('every room is in the table', () => {
    expect([...new Set(sources.map(room))].filter((name) => !(name in ALLOWED))).toEqual([]);
  });

  it('arrows go one way', () => {
    const wrong: string[] = [];
    for (const file of sources) {
      for (const specifier of imports(file).filter((s) => s.startsWith('.'))) {
        const target = relative(SRC, resolve(dirname(file), specifier)).split(sep).join('/');
        const [to] = target.split('/');
        if (to === room(file)) continue;
        if (!ALLOWED[room(file)]!.some((allowed) => allowed === to || allowed === target)) wrong.push(`${relative(SRC, file)} -> ${target}`);
      }
    }
    expect(wrong).toEqual([]);
  });

  it('only the outer rooms touch node: modules, and packages are crc-32 alone', () => {
    const wrong: string[] = [];
    for (const file of sources) {
      for (const specifier of imports(file).filter((s) => !s.startsWith('.'))) {
        const allowed = specifier.startsWith('node:')
          ? NODE_ROOMS.has(room(file)) || (room(file) === 'api' && API_NODE_MODULES.has(specifier))
          : room(file) === 'crc32c' && specifier === 'crc-32/crc32c.js';
        if (!allowed) wrong.push(`${relative(SRC, file)} -> ${specifier}`);
      }
    }
    expect(wrong).toEqual([]);
  });
});
