// A reporter for vitest that names each test which passed at its second attempt (`--retry=1`), so that it is
// seen and mended: a test that waits for a number of turns of the event loop, say, where it should wait for
// what it needs. Where the variable FAILED_FILES names a file, the test files in which something failed are
// written into it, a line each, for a second attempt of those: a hook that failed is not tried again by
// vitest, nor is anything after an error that nothing handled.

import { writeFileSync } from 'node:fs';
import type { Reporter, TestModule } from 'vitest/node';

/** What vitest adds to an error that nothing handled, where it knows which test file was running. */
interface Unhandled {
  readonly message?: string;
  readonly VITEST_TEST_PATH?: string;
}

const ENDED_WELL: ReadonlySet<string> = new Set(['passed', 'skipped']);

export class SecondAttempts implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly object[]): void {
    const failed = new Set<string>();
    for (const module of modules) {
      // Not ended: its process died.
      if (!ENDED_WELL.has(module.state())) failed.add(module.moduleId);
      for (const test of module.children.allTests())
        if (test.diagnostic()?.flaky === true) {
          const errors = test.result().errors ?? [];
          console.log(`second attempt: ${module.relativeModuleId}: ${test.fullName}: ${errors[0]?.message}`);
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
