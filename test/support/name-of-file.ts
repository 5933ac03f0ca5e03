/** Gives the programs that a test file starts its name in their environment, by which .ci/run finds leftovers. */
import { relative } from 'node:path';
import { expect } from 'vitest';

const { testPath } = expect.getState();
if (testPath !== undefined) process.env['IWARP_TEST_FILE'] = relative(process.cwd(), testPath);
