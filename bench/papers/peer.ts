/**
 * Another process for the rows of the papers: it listens as a row needs it, and plays clients. The
 * process that measures makes it with {@link PaperPeer}.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { createServer as createNetServer, type AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { createServer } from '../../src/sockets/index.ts';
import { atExit } from '../leftovers.ts';
import { servePairs, type PairRole, type PairSpec } from './queue-pairs.ts';
import {
  NO_CRC,
  rnicOf,
  serveStreams,
  StreamClient,
  type Role,
  type SendPlan,
  type StreamSpec,
} from './stream-ends.ts';

const HOST = '127.0.0.1';

/** What the other process does; each has one number as its answer. */
type Command =
  /** Listens; the answer is the port. */
  | { readonly do: 'streams'; readonly role: Role; readonly spec: StreamSpec }
  | { readonly do: 'pairs'; readonly role: PairRole; readonly spec: PairSpec }
  | { readonly do: 'http'; readonly protocol: 'net' | 'sdp' | 'rsocket' }
  | { readonly do: 'idle'; readonly protocol: 'net' | 'sdp' | 'rsocket' }
  /** Connects, in place of the clients before. */
  | { readonly do: 'clients'; readonly spec: StreamSpec; readonly port: number; readonly count: number }
  /** Mean microseconds of a round trip of all clients, which work at once. */
  | { readonly do: 'ping'; readonly ms: number }
  /** MB/s of all clients together. */
  | { readonly do: 'send'; readonly plan: SendPlan }
  /** KiB, after a full collection. */
  | { readonly do: 'resident' }
  | { readonly do: 'address space' };

const MEGABYTE = 1e6;
let clients: StreamClient[] = [];

async function listenHttp(protocol: 'net' | 'sdp' | 'rsocket'): Promise<number> {
  const web = http.createServer((_request, response) => response.end('hello'));
  const handle = (socket: unknown): void => void web.emit('connection', socket);
  const server =
    protocol === 'net'
      ? createNetServer(handle)
      : createServer({ protocol, rnic: rnicOf(), policy: NO_CRC }, handle);
  server.listen(0, HOST);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

function kib(field: string): number {
  (globalThis as { gc?: () => void }).gc?.();
  const line = readFileSync('/proc/self/status', 'utf8').match(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm'));
  if (line === null) throw new Error('this system has no /proc/self/status');
  return Number(line[1]);
}

async function answer(command: Command): Promise<number> {
  switch (command.do) {
    case 'streams':
      return await serveStreams(command.role, command.spec);
    case 'pairs':
      return await servePairs(command.role, command.spec);
    case 'http':
      return await listenHttp(command.protocol);
    case 'idle':
      return await serveStreams('echo', { wire: command.protocol, size: 64 });
    case 'clients': {
      for (const client of clients.splice(0)) client.close();
      const { count, spec, port } = command;
      for (let i = 0; i < count; i++) clients.push(await StreamClient.connect(spec, port));
      return count;
    }
    case 'ping': {
      const times = await Promise.all(clients.map((client) => client.pingPong(command.ms)));
      return times.reduce((sum, us) => sum + us, 0) / times.length;
    }
    case 'send': {
      const { plan } = command;
      const began = performance.now();
      await Promise.all(clients.map((client) => client.send(plan)));
      const bytes = clients.reduce((sum, { spec }) => sum + spec.size * plan.count, 0);
      return bytes / MEGABYTE / ((performance.now() - began) / 1000);
    }
    case 'resident':
      return kib('VmRSS');
    case 'address space':
      return kib('VmSize');
  }
}

function serve(): void {
  process.on('message', (command: Command) => {
    answer(command).then(
      (value) => process.send!({ value }),
      (error: unknown) => process.send!({ reason: (error as Error).message }),
    );
  });
  process.on('disconnect', () => process.exit(0));
}

/** The other process, from here. */
export class PaperPeer {
  readonly #child: ChildProcess;
  readonly #kill: () => void;
  readonly #ended: Promise<{ readonly reason: string }[]>;

  constructor() {
    const program = fileURLToPath(import.meta.url);
    this.#child = fork(program, ['peer'], { execArgv: [...process.execArgv, '--expose-gc'] });
    this.#ended = once(this.#child, 'exit').then(() => [{ reason: 'the other process has ended' }]);
    this.#kill = atExit(() => this.#child.kill('SIGKILL'));
  }

  /** One command at a time. */
  async ask(command: Command): Promise<number> {
    this.#child.send(command);
    const [answered] = (await Promise.race([once(this.#child, 'message'), this.#ended])) as [
      { value?: number; reason?: string },
    ];
    if (answered.value === undefined) throw new Error(answered.reason);
    return answered.value;
  }

  end(): void {
    this.#kill();
  }
}

if (process.argv[2] === 'peer' && process.argv[1] === fileURLToPath(import.meta.url)) serve();
