/** Programs that a test file starts have its name in their environment: .ci/run finds leftovers by it. */
import { relative } from 'node:path';
import { expect } from 'vitest';

const { testPath } = expect.getState();
if (testPath !== undefined) process.env['IWARP_TEST_FILE'] = relative(process.cwd(), testPath);
