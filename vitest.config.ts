import { availableParallelism } from 'node:os';
import { relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { configDefaults, defineConfig, type Plugin } from 'vitest/config';
import { packageSources } from './scripts/package-sources.ts';
import { SecondAttempts } from './scripts/second-attempts.ts';
import { sourceFiles, textOf } from './test/support/modules.ts';
import { plain } from './test/support/plain.ts';

/** Whether `npm run judges depth` asks: long searches whole, and what is in quarantine. */
const full = process.env['IWARP_DEPTH'] === 'full';

/** Modules that start a program or a thread, which lies beside them: while tests run, in `.cache/plain/`. */
const STARTERS = [
  'bench/peer-process.ts',
  'bench/peers/cost-client.ts',
  'bench/probes/micro.ts',
  'bench/probes/probe.ts',
  'bench/probes/unix.ts',
  'bench/trp/main.ts',
  'src/engine/proxy/spawn.ts',
].map((path) => [fileURLToPath(new URL(path, import.meta.url)), plain(path)] as const);

const ROOT = fileURLToPath(new URL('.', import.meta.url));
const TESTS = ['test/**/*.test.ts', 'conformance/**/*.test.ts'];

const testFiles = ['test', 'conformance'].flatMap(sourceFiles).filter((path) => path.endsWith('.test.ts'));
const withText = (pattern: RegExp): string[] => testFiles.filter((path) => pattern.test(textOf(path)));

/** The test files that replace modules or load them again, which Vitest's own loader alone can do. */
const replacing = withText(/\bvi\.(mock|doMock|resetModules)\(/);

/** Those that look at the process as a whole (its devices, its memory, its warnings), or hold other files. */
const alone = withText(/\b(serveControl|memoryUsage|emitWarning|setPairWire)\b/).filter(
  (path) => !replacing.includes(path),
);

/** Those that start programs: two fifths of the processor time, in another run (test:programs). */
const programs = withText(
  /'node:child_process'|\/(examples\/support|python-peer|endure-\w+|cost-client|cli\/kv|support\/bundle)\.ts/,
)
  .concat(testFiles.filter((path) => path.startsWith('test/examples/')))
  .filter((path) => !replacing.includes(path) && !alone.includes(path));

/** Whether a run names what it wants, files or a project; one that does not leaves the programs out. */
const named = process.argv
  .slice(process.argv.indexOf('run') + 1)
  .some((word) => !word.startsWith('-') || word.startsWith('--project'));

/** The rest have the sources from `.cache/plain/` by Node's own loader, in a third of the time. */
const plainSources: Plugin = {
  name: 'sources in plain JavaScript',
  enforce: 'pre',
  async resolveId(source, importer, options) {
    const found = await this.resolve(source, importer, { ...options, skipSelf: true });
    const path = relative(ROOT, found?.id ?? '');
    return /^src\/.*\.ts$/.test(path) ? { id: plain(path), external: true } : found;
  },
};

const plainTests = (name: string, isolate: boolean, include: string[], exclude: string[]): object => ({
  extends: true,
  plugins: [plainSources],
  test: { name, isolate, include, exclude: [...configDefaults.exclude, ...replacing, ...exclude] },
});

/** Vitest does not see what plain sources import, which it needs to say what a change touches. */
const files =
  process.argv.includes('run') && !process.argv.some((arg) => arg.startsWith('--changed'))
    ? {
        projects: [
          // In one process after the other sources are loaded once for all, and stay compiled.
          plainTests('plain', false, TESTS, [...alone, ...programs]),
          plainTests('alone', true, alone, []),
          ...(named ? [plainTests('programs', false, programs, [])] : []),
          { extends: true as const, test: { name: 'replacing', include: replacing } },
        ],
      }
    : { include: TESTS };

export default defineConfig({
  plugins: [
    {
      name: 'programs in plain JavaScript',
      enforce: 'pre',
      transform(code, id) {
        const [, place] = STARTERS.find(([path]) => path === id) ?? [];
        return place && code.replaceAll('import.meta.url', JSON.stringify(pathToFileURL(place).href));
      },
    },
  ],
  // A test of what imports the package by its name is a test of the sources.
  resolve: {
    alias: Object.entries(packageSources()).map(([name, path]) => ({
      find: new RegExp(`^${name}$`),
      replacement: fileURLToPath(new URL(path, import.meta.url)),
    })),
  },
  test: {
    // Two files more than there are processors, since many tests wait for something most of their time. Files
    // that start programs one at a time, behind all others, was tried: it took a third longer.
    maxWorkers: availableParallelism() + 2,
    ...files,
    server: { deps: { external: [/\/\.cache\/plain\//] } },
    // test/quarantine.md lists them.
    ...(full ? {} : { testNamePattern: /^(?!.*\(quarantined\))/ }),
    // Property and model tests are long on a two-core machine that loses its CPU for seconds at a time.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Where many commits are judged, a machine that stands still must not fail one: what passes only then is
    // named (`SecondAttempts`).
    retry: process.env['CI'] === undefined ? 0 : 2,
    // Programs that a test starts carry its name, for whoever finds them left behind (.ci/run).
    globalSetup: ['test/support/plain-setup.ts'],
    setupFiles: ['fresh-modules', 'name-of-file', 'equal-bytes'].map((name) => `test/support/${name}.ts`),
    reporters: ['default', new SecondAttempts()],
  },
}) as object;
