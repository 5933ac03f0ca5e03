#!/usr/bin/env node
import { main } from '../dist/src/tools/main.js';

process.exitCode = await main(process.argv.slice(2), [
  ['conformance', 'the wire conformance suite, against any peer', async () => (await import('../dist/conformance/cli.js')).run],
]);
