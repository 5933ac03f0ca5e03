#!/usr/bin/env node
import { main } from '../dist/src/tools/main.js';

// Whoever reads may have seen enough (`iwarp … | head`): there is nobody left to tell, and that is no failure.
process.stdout.on('error', (error) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit();
});

process.exitCode = await main(process.argv.slice(2), [
  ['conformance', 'the wire conformance suite, against any peer', async () => (await import('../dist/conformance/cli.js')).run],
]);
