import { readFileSync } from 'node:fs';

/** The tests that a run over one layer makes do with: those of its folder and of its neighbours. */
const layers = JSON.parse(readFileSync(new URL('layers.json', import.meta.url), 'utf8'));

/** `MUTATION_LAYER=cm npm run mutation` changes this layer alone, against its own tests. */
const layer = process.env.MUTATION_LAYER;
if (layer !== undefined && !Object.hasOwn(layers, layer))
  throw new Error(`MUTATION_LAYER must be one of ${Object.keys(layers).join(', ')}, got ${layer}`);
/** The layer with nothing but types and tables: its tables are what there is to change. */
const isTables = layer === 'llp';
// Layers may be run side by side, and each has results of earlier runs to begin with.
const home = `.cache/mutation/${layer ?? 'all'}`;

/**
 * `npm run mutation` changes the protocol layers at one place at a time and runs the tests that reach this
 * place: a change that no test notices is a survivor. `survivors.md` in this folder has those that are left.
 */
export default {
  testRunner: 'vitest',
  plugins: ['@stryker-mutator/vitest-runner'],
  vitest: { configFile: 'test/mutation/vitest.config.ts', related: false },
  mutate: [`src/${layer ?? `{${Object.keys(layers).join(',')}}`}/**/*.ts`],
  // Error texts and names of states: a state that nothing enters shows as a changed condition as well.
  mutator: { excludedMutations: isTables ? [] : ['StringLiteral'] },
  coverageAnalysis: 'perTest',
  // A table of a module is evaluated once, so each change to it would run every test.
  ignoreStatic: !isTables,
  concurrency: 1,
  timeoutFactor: 1.2,
  timeoutMS: 5000,
  // A minute where nothing else runs.
  dryRunTimeoutMinutes: 30,
  incremental: true,
  incrementalFile: `${home}/incremental.json`,
  tempDirName: `${home}/sandbox`,
  ignorePatterns: ['.cache', 'dist', 'docs', 'bench', 'examples', '*.tgz'],
  reporters: ['progress-append-only', 'clear-text', 'json', 'html'],
  clearTextReporter: { allowColor: false, logTests: false, reportTests: false },
  jsonReporter: { fileName: `${home}/report.json` },
  htmlReporter: { fileName: `${home}/report.html` },
  thresholds: { high: 95, low: 90, break: null },
  allowConsoleColors: false,
};
