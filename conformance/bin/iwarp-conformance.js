#!/usr/bin/env node
import { run } from '../dist/cli.js';

// A reader that has seen enough (`… list | head`) is no failure.
process.stdout.on('error', (error) => process.exit(error.code === 'EPIPE' ? 0 : 1));
process.exitCode = await run(process.argv.slice(2));
