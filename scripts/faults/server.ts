/**
 * The server of a run: `tsx scripts/faults/server.ts SUBJECT HOST PORT LEDGER`. It writes the id of each
 * request that it carries out into the file LEDGER before it answers, so that what it did is known when it
 * has been killed. A request that may be repeated and has been carried out is only answered again.
 */
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { idOf, serve, type Subject } from './subjects.ts';

const [subject, host, port, ledger] = process.argv.slice(2) as [Subject, string, string, string];
const done = new Set(existsSync(ledger) ? readFileSync(ledger, 'latin1').split('\n') : []);

const bound = await serve(subject, host, Number(port), (data) => {
  const id = idOf(data);
  if (!id.endsWith('r') || !done.has(id)) appendFileSync(ledger, `${id}\n`);
  done.add(id);
  return data;
});
process.stdout.write(`listening ${bound}\n`);
process.stdin.on('end', () => process.exit(0)).resume();
