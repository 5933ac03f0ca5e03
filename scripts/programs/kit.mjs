// Checks of one program, each a line; run by scripts/programs.ts in a project with the packed tarball.
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const LIMIT_MS = 30_000;
let passed = 0;
let failed = 0;

/** Run a check; it fails if it throws, or has no answer in 30 s. */
export async function check(name, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(reject, LIMIT_MS, new Error(`no answer in ${LIMIT_MS} ms`));
  });
  try {
    await Promise.race([work(), late]);
    passed++;
    console.log(`ok     ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAILED ${name}: ${error?.stack ?? error}`);
  } finally {
    clearTimeout(timer);
  }
}

/** Throw unless both are the same. */
export function same(found, expected) {
  if (!Object.is(found, expected)) throw new Error(`found ${String(found)}, not ${String(expected)}`);
}

/** Listen on a free port of 127.0.0.1, or where the arguments say; the port. */
export async function listen(server, ...where) {
  await new Promise((resolve, reject) => {
    server.once('error', reject).once('listening', resolve);
    server.listen(...(where.length === 0 ? [0, '127.0.0.1'] : where));
  });
  return server.address().port;
}

/** A path for a Unix socket of this process. */
export const socketPath = (name) => join(tmpdir(), `iwarp-${name}-${process.pid}.sock`);

/** Print the sums, and end. */
export function done() {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 && passed > 0 ? 0 : 1);
}
