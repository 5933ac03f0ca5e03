// A reporter for vitest that names each test which passed only when it was run again (`retry` of
// vitest.config.ts), in a line that begins with "flaky:": it is seen, and mended in the next change. Such a
// test waits for a number of turns of the event loop, say, where it should wait for what it needs. Where the
// variable FAILED_FILES names a file, the test files in which something failed are written into it, a line
// each, for one more run of those: a hook that failed is not tried again by vitest, nor is anything after an
// error that nothing handled.

import { writeFileSync } from 'node:fs';
import { stripVTControlCharacters } from 'node:util';
import type { Reporter, TestModule } from 'vitest/node';

/** What vitest adds to an error that nothing handled, where it knows which test file was running. */
interface Unhandled {
  readonly message?: string;
  readonly VITEST_TEST_PATH?: string;
}

const ENDED_WELL: ReadonlySet<string> = new Set(['passed', 'skipped']);

/** The lines that are not as expected, twenty at most: the message alone has the outermost values. */
const differences = (diff = ''): string[] =>
  stripVTControlCharacters(diff)
    .split('\n')
    .filter((line) => /^[-+]/.test(line))
    .slice(0, 20);

const firstLine = (text: string | undefined): string => (text ?? 'no message').split('\n')[0]!;

export class SecondAttempts implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly object[]): void {
    const failed = new Set<string>();
    for (const module of modules) {
      // Not ended: its process died.
      if (!ENDED_WELL.has(module.state())) failed.add(module.moduleId);
      for (const test of module.children.allTests())
        if (test.diagnostic()?.flaky === true) {
          const [error] = test.result().errors ?? [];
          const where = `${module.relativeModuleId}: ${test.fullName}`;
          console.log(`flaky: ${where}: ${firstLine(error?.message)}`);
          console.log(`  ${differences(error?.diff).join('\n  ')}`);
        }
    }
    for (const { message, VITEST_TEST_PATH: path } of unhandled as readonly Unhandled[]) {
      console.log(`nothing handled, in ${path ?? 'no test file that is known'}: ${message}`);
      if (path !== undefined) failed.add(path);
    }
    const list = process.env['FAILED_FILES'];
    if (list !== undefined) writeFileSync(list, [...failed].map((path) => `${path}\n`).join(''));
  }
}
