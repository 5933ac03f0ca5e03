#!/usr/bin/env node
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { main, onlyPrints } from '../dist/cli/main.js';

const args = process.argv.slice(2);

/** The suite is a separate package: beside this one, or in the project that the command runs in. */
async function loadSuite() {
  const name = 'iwarp-conformance';
  const isMissing = ({ code }) => code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND';
  try {
    return (await import(name)).run;
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
  try {
    const project = createRequire(join(process.cwd(), 'package.json'));
    return (await import(pathToFileURL(project.resolve(name)).href)).run;
  } catch (error) {
    if (!isMissing(error)) throw error;
    return async () => {
      process.stderr.write(
        `iwarp: the conformance suite is the package ${name}, which is not installed here: ` +
          `npm install ${name} (in a clone: npm ci)\n`,
      );
      return 1;
    };
  }
}

// The reader of the output may have seen enough (`iwarp … | head`), and that is no failure: a command that
// only prints is done then, any other one goes on with its work.
process.stdout.on('error', (error) => {
  if (error.code === 'EPIPE') return onlyPrints(args) ? process.exit() : undefined;
  process.stderr.write(`iwarp: standard output: ${error.message}\n`);
  process.exit(1);
});
// Standard error may have no reader: the status reports the failure all the same.
process.stderr.on('error', () => undefined);

process.exitCode = await main(args, [
  ['conformance', 'the wire conformance suite, against any peer', loadSuite],
]);

// A process of Node 20 that ends by itself first waits for V8's other threads, and one of those that compiles
// may be waiting for this one (nodejs/node#54918): under load one run in some fifteen never ended. An exit
// that is asked for does not wait there.
const flushed = (stream) => new Promise((resolve) => stream.write('', resolve));
await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
process.exit();
