/**
 * A run whose path dies: client and server in two network namespaces, joined by a pair of interfaces, one of
 * which goes down for a time. Prints the outcome as a line of JSON. Run it as
 * `unshare -rn node --import tsx scripts/faults/dead-path.ts SUBJECT SEED`.
 */
import { execFileSync } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { seededRandom } from '../../src/base/random.ts';
import { conclude, ledgerFile, Program, startServer } from './run.ts';
import { clientOf, type Subject } from './subjects.ts';

const CLIENT = '10.9.0.1';
const SERVER = '10.9.0.2';

const ip = (...words: string[]): void => void execFileSync('ip', words, { stdio: 'ignore' });

const [subject, seed] = process.argv.slice(2) as [Subject, string];
const random = seededRandom(Number(seed));
const { ledger, remove } = ledgerFile();
ip('link', 'set', 'lo', 'up');
ip('link', 'add', 'iwarp-a', 'type', 'veth', 'peer', 'name', 'iwarp-b');
// Every address: the interface comes later.
const { child, port } = await startServer(subject, '0.0.0.0', 0, ledger, ['unshare', '-n']);
const there = ['-t', String(child.pid), '-n', 'ip'];
ip('link', 'set', 'iwarp-b', 'netns', String(child.pid));
execFileSync('nsenter', [...there, 'addr', 'add', `${SERVER}/24`, 'dev', 'iwarp-b']);
execFileSync('nsenter', [...there, 'link', 'set', 'iwarp-b', 'up']);
ip('addr', 'add', `${CLIENT}/24`, 'dev', 'iwarp-a');
ip('link', 'set', 'iwarp-a', 'up');

const app = clientOf(subject, SERVER, port);
const program = new Program(app, random, 'dead');
program.start();
await program.again(performance.now());
// The server's end: on the client's, the system would end connections whose route is gone.
execFileSync('nsenter', [...there, 'link', 'set', 'iwarp-b', 'down']);
await pause(300 + (random() % 3000));
execFileSync('nsenter', [...there, 'link', 'set', 'iwarp-b', 'up']);
const again = await program.again(performance.now());
const about = { subject, scenario: 'dead path', seed: Number(seed), again };
process.stdout.write(`${JSON.stringify(await conclude({ program, app }, ledger, about))}\n`);
child.kill('SIGKILL');
remove();
process.exit(0);
