/** The command line `iwarp`: picks the subcommand, one file each. */

import { nearest } from './support/nearest.ts';

type Run = (args: string[]) => Promise<number>;

/** Name, one line of help, and how to load it. */
type Command = readonly [name: string, what: string, load: () => Promise<Run>];

/** Name, what it does, and where it is. Loaded when called, so that a small tool starts quickly. */
const COMMANDS: readonly Command[] = [
  [
    'rping',
    'RDMA ping-pong, client and server, with stock rping',
    async () => (await import('./rping.ts')).run,
  ],
  [
    'ucmatose',
    'connections and messages, with stock ucmatose',
    async () => (await import('./ucmatose.ts')).run,
  ],
  [
    'rdma_client',
    'the smallest client, with stock rdma_server',
    async () => (await import('./rdma-client.ts')).run,
  ],
  [
    'rdma_server',
    'the smallest server, with stock rdma_client',
    async () => (await import('./rdma-server.ts')).run,
  ],
  [
    'cmtime',
    'times of many connections, with stock cmtime of rdma-core 44',
    async () => (await import('./cmtime.ts')).run,
  ],
  [
    'write_bw',
    'bandwidth of RDMA Writes, with perftest over rdma_cm',
    async () => (await import('./perftest.ts')).perftest('write', 'bw'),
  ],
  [
    'write_lat',
    'latency of RDMA Writes, with perftest over rdma_cm',
    async () => (await import('./perftest.ts')).perftest('write', 'lat'),
  ],
  [
    'read_bw',
    'bandwidth of RDMA Reads, with perftest over rdma_cm',
    async () => (await import('./perftest.ts')).perftest('read', 'bw'),
  ],
  [
    'read_lat',
    'latency of RDMA Reads, with perftest over rdma_cm',
    async () => (await import('./perftest.ts')).perftest('read', 'lat'),
  ],
  [
    'send_bw',
    'bandwidth of Sends, with perftest over rdma_cm',
    async () => (await import('./perftest.ts')).perftest('send', 'bw'),
  ],
  [
    'send_lat',
    'latency of Sends, with perftest over rdma_cm',
    async () => (await import('./perftest.ts')).perftest('send', 'lat'),
  ],
  [
    'atomic_bw',
    'bandwidth of atomics (RFC 7306), with perftest over rdma_cm',
    async () => (await import('./perftest.ts')).perftest('atomic', 'bw'),
  ],
  [
    'atomic_lat',
    'latency of atomics (RFC 7306), with perftest over rdma_cm',
    async () => (await import('./perftest.ts')).perftest('atomic', 'lat'),
  ],
  [
    'rstream',
    'byte streams over rsockets, with stock rstream',
    async () => (await import('./rstream.ts')).run,
  ],
  [
    'riostream',
    'direct writes over rsockets, with stock riostream',
    async () => (await import('./riostream.ts')).run,
  ],
  ['rcopy', 'copy a file over rsockets, with stock rcopy', async () => (await import('./rcopy.ts')).run],
  [
    'stream',
    'netcat for RDMA: standard input to the peer, its bytes to standard output',
    async () => (await import('./stream.ts')).run,
  ],
  ['nbd', 'block devices: serve, attach, copy, info', async () => (await import('./nbd.ts')).run],
  [
    'shared',
    'a region of memory at each end that both read and write',
    async () => (await import('./shared.ts')).run,
  ],
  [
    'kv',
    'key-value store: serve, get, set, del, incr, top, bench',
    async () => (await import('./kv.ts')).run,
  ],
  ['qpip', 'queue pairs over plain TCP and UDP: echo, send', async () => (await import('./qpip.ts')).run],
  ['dissect', 'decode the FPDUs of a capture file', async () => (await import('./dissect.ts')).run],
  [
    'proxy',
    'stand between two peers: decode live, record, inject faults',
    async () => (await import('./proxy.ts')).run,
  ],
  [
    'bench',
    'benchmark, compared with TCP, ws and grpc-js (in a clone)',
    async () => (await import('./bench.ts')).run,
  ],
  [
    'stat',
    'counters and objects of running processes, as rdma statistic and rdma resource',
    async () => (await import('./stat.ts')).run,
  ],
  [
    'top',
    'live view of what running processes do, a line for each device or connection',
    async () => (await import('./top.ts')).run,
  ],
  [
    'doctor',
    'look at a server step by step, with a hint for each failure',
    async () => (await import('./doctor.ts')).run,
  ],
  ['devinfo', 'devices of running processes, as ibv_devinfo', async () => (await import('./devinfo.ts')).run],
  [
    'demo',
    'two processes over 127.0.0.1: Send, Write, Read, every byte checked',
    async () => (await import('./demo.ts')).run,
  ],
];

function usage(commands: readonly Command[]): string {
  const lines = commands.map(([name, what]) => `  ${name.padEnd(12)} ${what}`);
  return `usage: iwarp COMMAND [options]

${lines.join('\n')}

"iwarp help COMMAND" lists its options, "iwarp --version" prints the version.
`;
}

/** Commands whose only work is their output. */
const PRINTING: readonly string[] = ['dissect', 'stat', 'devinfo'];

/** Whether the command of `args` has nothing left to do once its output has no reader. */
export function onlyPrints([name = '']: readonly string[]): boolean {
  return PRINTING.includes(name);
}

/**
 * Run `args`; the result is the exit status. `more` are the commands that live outside of src/: the program
 * adds them.
 */
export async function main(args: string[], more: readonly Command[] = []): Promise<number> {
  const commands = [...COMMANDS, ...more];
  const [first, second] = args;
  const helped = first === 'help' && second !== undefined && !second.startsWith('-') ? second : undefined;
  const [name, ...rest] = helped === undefined ? args : [helped, '--help'];
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(usage(commands));
    return name === undefined ? 2 : 0;
  }
  if (name === '--version' || name === '-V') {
    const { packageVersion } = await import('../src/observe/snapshot.ts');
    process.stdout.write(`iwarp ${packageVersion()}\n`);
    return 0;
  }
  const command = commands.find(([known]) => known === name);
  if (command === undefined) {
    const near = nearest(
      name,
      commands.map(([known]) => known),
    );
    const hint = near === undefined ? '' : `; did you mean ${near}?`;
    process.stderr.write(`iwarp: unknown command ${JSON.stringify(name)}${hint}\n\n${usage(commands)}`);
    return 2;
  }
  const run = await command[2]();
  return await run(rest);
}
