/**
 * A program whose client lets the process end while nothing is under way: `unref.child.ts PORT ENGINE`.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { createClient, type EngineKind } from '../../src/index.ts';

const [port, engine] = process.argv.slice(2) as [string, EngineKind];
const client = createClient({
  host: '127.0.0.1',
  port: Number(port),
  engine,
  unrefIdle: true,
  connections: 2,
});
console.log(String(await client.request('slow', { timeout: 20_000 })));
// Nothing keeps the process awake here but the timer.
await pause(100);
console.log(String(await client.request('again', { timeout: 20_000 })));
