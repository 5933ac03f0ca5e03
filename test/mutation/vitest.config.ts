import { readFileSync } from 'node:fs';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import base from '../../vitest.config.ts';

/** A mutant dies in the first test that fails, so the files that take the shortest time go first. */
class ShortestFirst extends BaseSequencer {
  override sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const { cache, config } = this.ctx;
    const duration = (file: TestSpecification): number => {
      const key = `${file.project.name}:${file.moduleId.slice(config.root.length + 1)}`;
      return cache.getFileTestResults(key)?.duration ?? 0;
    };
    return Promise.resolve(files.toSorted((a, b) => duration(a) - duration(b)));
  }
}

/** The files that MUTATION_TESTS or the layer of MUTATION_LAYER names; undefined for all. */
function chosenTests(): string[] | undefined {
  const { MUTATION_TESTS: tests, MUTATION_LAYER: layer } = process.env;
  if (tests !== undefined) return tests.split(',');
  if (layer === undefined) return undefined;
  const layers = readFileSync(new URL('layers.json', import.meta.url), 'utf8');
  return (JSON.parse(layers) as Record<string, string[]>)[layer];
}

const { test, ...rest } = base as { test: object };

export default {
  ...rest,
  test: {
    ...test,
    // The tests of one layer alone take minutes, all of them hours.
    include: chosenTests() ?? [
      'test/{ddp,rdmap,mpa,llp,queues,stream,cm}/**/*.test.ts',
      'test/{property,fault,verbs}/**/*.test.ts',
    ],
    // Real links and engines in workers, which no mutant reaches, and long runs of random calls.
    exclude: [
      'test/cm/keep-alive.test.ts',
      'test/verbs/{fairness,libibverbs-style,spare-memory}.test.ts',
      'test/property/stream-cuts.test.ts',
    ],
    // All files in one environment are loaded once: two seconds for a mutant rather than thirty.
    isolate: false,
    sequence: { sequencer: ShortestFirst },
  },
} as object;
