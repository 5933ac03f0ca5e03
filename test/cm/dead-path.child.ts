/**
 * Two network namespaces joined by a pair of interfaces, and idle connections with keep-alive between them:
 * how long each takes to end once the link is down. Prints one line of JSON. It starts the other side itself;
 * run it as `unshare -rn node --import tsx dead-path.child.ts client`.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as netConnect, createServer as netServer } from 'node:net';
import { connect, createServer, openRnic, type Rnic } from '../../src/index.ts';
import { connect as socketConnect, createServer as socketServer } from '../../src/sockets/index.ts';

const CLIENT = '10.9.0.1';
const SERVER = '10.9.0.2';
const PORTS = { net: 1001, cm: 1002, promises: 1003, sockets: 1004 };
const PROBES = { keepAlive: true, keepAliveInitialDelay: 1000 } as const;

const ip = (...words: string[]): void => void execFileSync('ip', words, { stdio: 'ignore' });

function up(name: string, address: string): void {
  ip('addr', 'add', `${address}/24`, 'dev', name);
  ip('link', 'set', name, 'up');
}

async function serve(): Promise<void> {
  process.stdout.write('ready\n');
  await once(process.stdin, 'data'); // the interface has been moved here
  up('iwarp-b', SERVER);
  await once(netServer().listen(PORTS.net, SERVER), 'listening');
  const rnic = openRnic({ engine: 'thread' });
  await rnic.cm.listen({ host: SERVER, port: PORTS.cm }, (request) => {
    request.setHandler(() => undefined);
    request.accept(queuePair(rnic));
  });
  await createServer({ rnic }, async (connection) => {
    await connection.closed;
  }).listen({ host: SERVER, port: PORTS.promises });
  await once(
    socketServer((socket) => void socket.on('error', () => undefined)).listen(PORTS.sockets, SERVER),
    'listening',
  );
  process.stdout.write('listening\n');
  await once(process.stdin, 'end');
  process.exit(0);
}

function queuePair(rnic: Rnic) {
  const cq = rnic.device.createCq(512);
  return rnic.device.allocatePd().createQp({ sendCq: cq, recvCq: cq });
}

interface End {
  readonly ms: number;
  readonly code: string | undefined;
}

/** The system's code of an error or of a cause of it. */
function codeOf(error: unknown): string | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    const { code } = at as NodeJS.ErrnoException;
    if (code !== undefined && !code.startsWith('ERR_')) return code;
  }
  return undefined;
}

/** A connection of the connection manager: made, and then ended. */
async function overCm(engine: 'thread' | 'worker'): Promise<() => Promise<string | undefined>> {
  const rnic = openRnic({ engine });
  const connection = rnic.cm.connect(queuePair(rnic), { host: SERVER, port: PORTS.cm, ...PROBES });
  let ended!: (code: string | undefined) => void;
  const end = new Promise<string | undefined>((resolve) => (ended = resolve));
  await new Promise<void>((resolve) => {
    connection.setHandler((event) => {
      if (event.type === 'established') resolve();
      if (event.type === 'disconnected') ended(codeOf(event.error));
    });
  });
  return () => end;
}

async function run(): Promise<void> {
  ip('link', 'set', 'lo', 'up');
  ip('link', 'add', 'iwarp-a', 'type', 'veth', 'peer', 'name', 'iwarp-b');
  const other = spawn('unshare', ['-n', process.execPath, '--import', 'tsx', process.argv[1]!, 'server'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  await once(other.stdout, 'data');
  ip('link', 'set', 'iwarp-b', 'netns', String(other.pid));
  up('iwarp-a', CLIENT);
  other.stdin.write('go\n');
  await once(other.stdout, 'data');

  const plain = netConnect({ host: SERVER, port: PORTS.net, ...PROBES });
  const plainEnd = new Promise<string | undefined>((resolve) =>
    plain.once('error', (error) => resolve(codeOf(error))),
  );
  await once(plain, 'connect');
  const cm = await overCm('thread');
  const cmWorker = await overCm('worker');
  const promises = await connect({ host: SERVER, port: PORTS.promises, ...PROBES });
  const socket = socketConnect({ host: SERVER, port: PORTS.sockets, ...PROBES });
  const socketEnd = new Promise<string | undefined>((resolve) =>
    socket.once('error', (error) => resolve(codeOf(error))),
  );
  await once(socket, 'connect');
  const promisesEnd = promises.closed.then(({ error }) => codeOf(error));

  // Keep-alive is for idle connections: while something is not acknowledged, TCP repeats that instead.
  await sleep(1000);
  const from = performance.now();
  ip('link', 'set', 'iwarp-a', 'down');
  const timed = async (end: Promise<string | undefined>): Promise<End> => {
    const code = await end;
    return { ms: Math.round(performance.now() - from), code };
  };
  const [net, one, two, three, four] = await Promise.all(
    [plainEnd, cm(), cmWorker(), promisesEnd, socketEnd].map(timed),
  );
  other.stdin.end();
  process.stdout.write(
    `${JSON.stringify({ net, cm: one, 'cm worker': two, promises: three, sockets: four })}\n`,
  );
  process.exit(0);
}

await (process.argv[2] === 'server' ? serve() : run());
