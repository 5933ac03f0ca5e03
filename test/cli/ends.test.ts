/**
 * The side that ends each connection first, flag by flag, as docs/tools.md has it from the stock sources. A
 * relay of node:net between the two sides sees whose FIN comes first. On byte streams both sides send a
 * farewell message before that, so either FIN may be the first there.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { afterAll, describe, expect, it } from 'vitest';
import { perftest } from '../../cli/perftest.ts';
import { run as cmtime } from '../../cli/cmtime.ts';
import { run as rcopy } from '../../cli/rcopy.ts';
import { run as rdmaClient } from '../../cli/rdma-client.ts';
import { run as rdmaServer } from '../../cli/rdma-server.ts';
import { run as riostream } from '../../cli/riostream.ts';
import { run as rping } from '../../cli/rping.ts';
import { run as rstream } from '../../cli/rstream.ts';
import { run as ucmatose } from '../../cli/ucmatose.ts';
import { tcpPath } from '../support/tcp-path.ts';
import { Side, type ToolRun } from './pair.ts';

type End = 'client' | 'server';

/** Passes the first piece on; what follows it, when its source has ended. */
function holding(): Transform {
  const kept: Buffer[] = [];
  let first = true;
  return new Transform({
    transform(piece: Buffer, _encoding, done) {
      if (first) this.push(piece);
      else kept.push(piece);
      first = false;
      done();
    },
    flush(done) {
      done(null, Buffer.concat(kept));
    },
  });
}

/**
 * The port of a path to `port` on which `first` gets the side whose FIN came first, by connections. With
 * `held`, what the server sends behind its MPA reply comes to the client with the server's end only.
 */
function watchedPath(port: number, first: End[], held: boolean): Promise<number> {
  let count = 0;
  return tcpPath(port, (near, far) => {
    const number = count++;
    for (const [from, to, side] of [
      [near, far, 'client'],
      [far, near, 'server'],
    ] as const) {
      from.on('error', () => to.destroy());
      from.on('end', () => (first[number] ??= side));
      (held && side === 'server' ? from.pipe(holding()) : from).pipe(to);
    }
  });
}

const folder = mkdtempSync(join(tmpdir(), 'ends-'));
const file = join(folder, 'file');
writeFileSync(file, 'data');
afterAll(() => rmSync(folder, { recursive: true }));

interface Row {
  readonly what: string;
  readonly server: readonly [ToolRun, readonly string[]];
  readonly client: readonly [ToolRun, (port: string) => string[]];
  /** The side that ends each connection, in the order in which they were made; `either` where both may. */
  readonly first: readonly (End | 'either')[];
  /** The server goes on after its client. */
  readonly persistent?: boolean;
  /** Both end it when they have what they wait for: the client gets it when the server has ended. */
  readonly held?: boolean;
}

const at =
  (...flags: string[]) =>
  (port: string): string[] => ['-s', '127.0.0.1', '-p', port, ...flags];

const ping = (server: readonly string[], client: readonly string[], persistent = false): Row => ({
  what: `rping -s ${server.join(' ')} and -c ${client.join(' ')}`,
  server: [rping, ['-s', ...server]],
  client: [rping, (port) => ['-c', '-a', '127.0.0.1', '-p', port, ...client]],
  first: ['client'],
  persistent,
});

const cm = (server: readonly string[], client: readonly string[], connections = 1): Row => ({
  what: `ucmatose ${server.join(' ')} and ${client.join(' ')}`,
  server: [ucmatose, server],
  client: [ucmatose, at(...client)],
  first: Array<End>(connections).fill('server'),
});

/** The control connection, which both sides end, and those of the test. */
const perf = (verb: 'write' | 'read' | 'send' | 'atomic', kind: 'bw' | 'lat', ...flags: string[]): Row => ({
  what: `${verb}_${kind} ${flags.join(' ')}`,
  server: [perftest(verb, kind), flags],
  client: [perftest(verb, kind), (port) => ['-p', port, ...flags, '127.0.0.1']],
  first: ['either', ...Array<End>(flags.includes('-q') ? 3 : 1).fill('server')],
});

const ROWS: readonly Row[] = [
  ping([], ['-C', '3']),
  ping(['-C', '2'], ['-C', '3']),
  ping(['-C', '2'], ['-C', '2', '-V']),
  ping(['-P', '-C', '1'], ['-C', '2'], true),
  cm([], []),
  cm(['-C', '0'], ['-C', '0']),
  cm(['-c', '3', '-m'], ['-c', '3', '-m'], 3),
  cm(['-S', '0'], ['-S', '0']),
  {
    what: 'rdma_server and rdma_client',
    server: [rdmaServer, []],
    client: [rdmaClient, at()],
    first: ['server'],
    held: true,
  },
  {
    what: 'cmtime -c 3',
    server: [cmtime, []],
    client: [cmtime, at('-c', '3')],
    first: ['client', 'client', 'client'],
    persistent: true,
  },
  perf('write', 'bw', '-n', '20'),
  perf('write', 'bw', '-n', '20', '-b'),
  perf('write', 'bw', '-n', '20', '-q', '3'),
  perf('write', 'lat', '-n', '20'),
  perf('write', 'lat', '-D', '1'),
  perf('read', 'bw', '-n', '20'),
  perf('read', 'lat', '-n', '20'),
  perf('send', 'bw', '-n', '20'),
  perf('send', 'bw', '-n', '20', '-b'),
  perf('send', 'lat', '-n', '20'),
  perf('write', 'lat', '-n', '20', '--write_with_imm'),
  perf('read', 'bw', '-n', '20', '--reversed'),
  perf('atomic', 'bw', '-n', '20'),
  perf('atomic', 'lat', '-n', '20'),
  {
    what: 'rstream -S -C -I',
    server: [rstream, ['-S', '64', '-C', '1', '-I', '10']],
    client: [rstream, at('-S', '64', '-C', '1', '-I', '10')],
    first: ['either'],
  },
  {
    what: 'riostream -S -C -I',
    server: [riostream, ['-S', '64', '-C', '1', '-I', '10']],
    client: [riostream, at('-S', '64', '-C', '1', '-I', '10')],
    first: ['either'],
  },
  {
    what: 'rcopy',
    server: [rcopy, ['--dir', folder]],
    client: [rcopy, (port) => [file, '127.0.0.1:copy', '-p', port]],
    first: ['either'],
    persistent: true,
  },
];

describe('the first to end a connection', () => {
  it.each(ROWS)('$what: $first', async ({ server, client, first, persistent, held }) => {
    const left = new Side(server[0], ['-p', '0', ...server[1]]);
    const ended: End[] = [];
    const port = await watchedPath(await left.port, ended, held === true);
    const right = new Side(client[0], client[1](String(port)));
    try {
      expect(await right.status, right.err).toBe(0);
      if (persistent === true) left.kill();
      const status = await left.status;
      if (persistent !== true) expect(status, left.err).toBe(0);
      expect(ended.map((end, i) => (first[i] === 'either' ? 'either' : end))).toEqual(first);
    } finally {
      left.kill();
    }
  });
});
