/** `iwarp bench` from its source as a program: its processes are programs too, which a test runner is not. */
import { run } from '../../bench/main.ts';

process.exit(await run(process.argv.slice(2)));
