#!/usr/bin/env node
import { main, onlyPrints } from '../dist/src/tools/main.js';

const args = process.argv.slice(2);

// Whoever reads may have seen enough (`iwarp … | head`), and that is no failure: a command whose text is all that it makes is done then, any other
// one goes on with its work.
process.stdout.on('error', (error) => {
  if (error.code === 'EPIPE') return onlyPrints(args) ? process.exit() : undefined;
  process.stderr.write(`iwarp: standard output: ${error.message}\n`);
  process.exit(1);
});
// What went wrong may have nobody who reads it: the status tells it all the same.
process.stderr.on('error', () => undefined);

process.exitCode = await main(args, [
  ['conformance', 'the wire conformance suite, against any peer', async () => (await import('../dist/conformance/cli.js')).run],
]);

// A process of Node 20 that ends by itself first waits for V8's other threads, and one of those that compiles may be waiting for this one
// (nodejs/node#54918): under load one run in some fifteen never ended. An exit that is asked for does not wait there.
const flushed = (stream) => new Promise((resolve) => stream.write('', resolve));
await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
process.exit();
