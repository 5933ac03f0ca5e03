/**
 * `npm run judges [-- NAMES]`: what takes too long for every commit, and is run before an issue is called
 * resolved. Each judge installs what it needs, and ends with its sums; what it saw is kept in
 * `judges/NAME.md` with date, commit and versions, and its whole output in `.cache/judges/NAME.log`. Without
 * names all run, one after the other; `--list` says what there is, and `--fast` takes those of at most five
 * minutes.
 *
 * A judge that cannot run here says why, and counts as neither passed nor failed.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createWriteStream, mkdirSync, writeFileSync } from 'node:fs';
import { arch, cpus, platform, release } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KERNELS } from '../conformance/siw/kernels.ts';
import { NOT_RUN } from './judge.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const RESULTS = join(ROOT, 'judges');
const LOGS = join(ROOT, '.cache/judges');
const MINUTE = 60;

interface Judge {
  /** What it is, for the list. */
  readonly about: string;
  /** Commands in order: all run, whatever the others say. */
  readonly commands: readonly string[];
  /** Seconds on a slow machine; the limit is three times as much. */
  readonly seconds: number;
  /** Debian packages whose versions belong to the result. */
  readonly debian?: readonly string[];
}

/** The judges of siw in the kernels beside the default: siw-6.12, siw-suite-6.12. */
const OTHER_KERNELS: Readonly<Record<string, Judge>> = Object.fromEntries(
  KERNELS.slice(1).flatMap(({ line }): [string, Judge][] => [
    [
      `siw-${line}`,
      {
        about: `every interop case with the siw driver of Linux ${line}`,
        commands: [`env SIW_KERNEL=${line} npm run interop`],
        seconds: 30 * MINUTE,
        debian: ['qemu-system-x86', 'rdma-core', 'perftest', 'rdmacm-utils'],
      },
    ],
    [
      `siw-suite-${line}`,
      {
        about: `the conformance suite against the siw driver of Linux ${line}, both roles`,
        commands: [`env SIW_KERNEL=${line} npm run conformance:siw`],
        seconds: 30 * MINUTE,
        debian: ['qemu-system-x86'],
      },
    ],
  ]),
);

/** Judges by name, the fast ones first. */
const JUDGES: Readonly<Record<string, Judge>> = {
  upgrade: {
    about: 'HTTP upgrade and TLS before curl and OpenSSL',
    commands: ['npx tsx scripts/judges-upgrade.ts'],
    seconds: MINUTE,
    debian: ['curl', 'openssl'],
  },
  redis: {
    about: 'the key-value store before redis-cli, redis-benchmark, memccapable, ioredis, redis and memjs',
    commands: ['npx tsx scripts/judges-kv.ts'],
    seconds: 2 * MINUTE,
    debian: ['redis-server', 'redis-tools', 'libmemcached-tools'],
  },
  qpip: {
    about: 'queue pairs over plain TCP and UDP before socat, nc, Python, redis-server and libnbd',
    commands: ['npx tsx scripts/judges-qpip.ts'],
    seconds: 2 * MINUTE,
    debian: ['socat', 'netcat-openbsd', 'redis-server', 'libnbd-bin', 'nbdkit'],
  },
  nbd: {
    about: 'the block device before libnbd, QEMU, fio and nbdkit',
    commands: ['npx tsx scripts/judges-nbd.ts'],
    seconds: 4 * MINUTE,
    debian: ['libnbd-bin', 'nbdkit', 'qemu-utils', 'fio'],
  },
  tshark: {
    about: 'captures of each operation, over TCP, UDP and SDP, before tshark',
    commands: ['./scripts/apt-install.sh tshark', 'npm run tshark'],
    seconds: 2 * MINUTE,
    debian: ['tshark'],
  },
  netem: {
    about: 'iWARP over UDP between two network namespaces with a link that loses',
    commands: ['npx tsx scripts/netem-trp.ts'],
    seconds: 3 * MINUTE,
    debian: ['iproute2'],
  },
  recipes: {
    about: 'every program of docs/recipes.md, production.md, streams.md and upgrade.md, in a fresh project',
    commands: ['npm run recipes -- --built'],
    seconds: 2 * MINUTE,
  },
  programs: {
    about:
      'express, fastify, undici, ws, grpc-js, ioredis, redis and pg over byte streams, with real servers',
    commands: ['npm run programs -- --built'],
    seconds: 3 * MINUTE,
    debian: ['redis-server', 'postgresql'],
  },
  bun: {
    about: 'tutorial, engines, streams and demo in Bun',
    commands: ['npm run runtimes -- --built bun'],
    seconds: 2 * MINUTE,
  },
  deno: {
    about: 'the same in Deno, and the package before its registry',
    commands: ['npm run runtimes -- --built deno'],
    seconds: 3 * MINUTE,
  },
  nodes: {
    about: 'the tests nearest to Node itself, in newer Nodes',
    commands: ['./.ci/newer-node'],
    seconds: 10 * MINUTE,
  },
  depth: {
    about: 'the whole test suite with its long searches at full depth, and the tests in quarantine',
    commands: ['env IWARP_DEPTH=full ./.ci/tests --project=*'],
    seconds: 20 * MINUTE,
  },
  worker: {
    about: 'the test suite with the engine in a worker thread',
    commands: ['npm run matrix -- --suite --only worker'],
    seconds: 15 * MINUTE,
  },
  fuzz: {
    about: 'a million inputs for each parser of a peer, ten million records between threads',
    commands: [
      'npx tsx test/kv/fuzz.ts 1000000',
      'npx tsx test/sdp/fuzz.ts 1000000',
      'npx tsx test/trp/fuzz.ts 1000000',
      // An input of queue pairs is a connection each, ten thousand a minute.
      'npx tsx test/nbd/fuzz.ts 1000000 1 server-handshake server-transmission',
      'npx tsx test/nbd/fuzz.ts 1000000 1 client-handshake client-transmission messages',
      'npx tsx test/nbd/fuzz.ts 50000 1 queue-pair-server queue-pair-client',
      'npx tsx test/shm/fuzz.ts 10000000',
    ],
    seconds: 30 * MINUTE,
  },
  cases: {
    about: 'programs from outside that check themselves, with both engines (IWARP_CASES names their folders)',
    commands: ['npx tsx scripts/judges-cases.ts'],
    seconds: 5 * MINUTE,
  },
  faults: {
    about: 'a program through every fault of its path, in both engines and beside ws',
    commands: ['npx tsx scripts/faults.ts'],
    seconds: 15 * MINUTE,
  },
  endurance: {
    about:
      'a million requests with aborts, messages up to 1 GiB to slow readers, a thousand reconnects a second',
    commands: [
      'npx tsx scripts/endure-requests.ts',
      'npx tsx scripts/endure-messages.ts',
      'npx tsx scripts/endure-reconnects.ts',
    ],
    seconds: 15 * MINUTE,
  },
  mutants: {
    about: 'the conformance suite catches every mutant of the stack',
    commands: ['npx tsx conformance/mutation/mutate.ts'],
    seconds: 30 * MINUTE,
  },
  siw: {
    about: 'every interop case with the Linux siw driver and the stock tools',
    commands: ['npm run interop'],
    seconds: 30 * MINUTE,
    debian: ['qemu-system-x86', 'rdma-core', 'perftest', 'rdmacm-utils'],
  },
  'siw-suite': {
    about: 'the conformance suite against the Linux siw driver, both roles',
    commands: ['npm run conformance:siw'],
    seconds: 30 * MINUTE,
    debian: ['qemu-system-x86'],
  },
  ...OTHER_KERNELS,
  mutation: {
    about: 'single changes of each protocol layer that its tests do not notice',
    commands: ['mpa', 'llp', 'ddp', 'rdmap', 'queues', 'stream', 'cm'].map(
      (layer) => `env MUTATION_LAYER=${layer} npm run mutation`,
    ),
    seconds: 8 * 60 * MINUTE,
  },
};

/** How a command has ended. */
interface Outcome {
  readonly command: string;
  readonly status: number | null;
  readonly seconds: number;
  readonly output: string;
}

type Verdict = 'passed' | 'failed' | 'not run';

/** Run a command in a new process group, which ends at the limit. */
function run(command: string, limit: number, log: NodeJS.WritableStream): Promise<Outcome> {
  return new Promise((resolve) => {
    const began = performance.now();
    const child = spawn('sh', ['-c', `exec ${command}`], {
      cwd: ROOT,
      detached: true,
      env: { ...process.env, NO_COLOR: '1', CI: 'true' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    const hear = (data: Buffer): void => {
      process.stdout.write(data);
      log.write(data);
      output = (output + data.toString()).slice(-1_000_000);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    const late = setTimeout(() => {
      hear(Buffer.from(`\nended at its limit of ${limit} s; the lines above are the last that it printed\n`));
      process.kill(-child.pid!, 'SIGKILL');
    }, limit * 1000);
    child.once('exit', (status) => {
      clearTimeout(late);
      const seconds = Math.round((performance.now() - began) / 1000);
      // The last lines are still on their way in.
      setTimeout(() => resolve({ command, status, seconds, output }), 200);
    });
  });
}

/** The lines of an output that a closing note quotes: sums or the last lines, failures, second tries. */
function tellingLines(output: string): string[] {
  // oxlint-disable-next-line no-control-regex -- colours
  const lines = output.replaceAll(/\u001B\[[0-9;]*m/g, '').split('\n');
  const sums = /\d+ (passed|failed|caught)\b|Mutation score/;
  const trouble = /^ *(FAILED|FAIL|not ok|flaky:|not run:|ended at its limit)|second try/;
  const told = lines.filter((line) => sums.test(line) || trouble.test(line));
  if (!told.some((line) => sums.test(line)))
    told.push(...lines.filter((line) => line.trim() !== '').slice(-3));
  return told.slice(-40).map((line) => line.trim());
}

function versionsOf(packages: readonly string[]): string[] {
  if (packages.length === 0) return [];
  try {
    const format = '-f=${Package} ${Version}\n';
    const known = execFileSync('dpkg-query', ['-W', format, ...packages], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    return known.trim().split('\n');
  } catch (error) {
    // Of packages that are not installed it has nothing to say, and still prints the others.
    const { stdout } = error as { stdout?: string };
    return stdout === undefined || stdout === '' ? [] : stdout.trim().split('\n');
  }
}

function commit(): string {
  const git = (...args: string[]): string =>
    execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
  const changed = git('status', '--porcelain', '--', 'src', 'cli', 'conformance', 'scripts', 'test');
  return `${git('log', '-1', '--format=%h %s')}${changed === '' ? '' : ', with changes'}`;
}

async function judge(name: string): Promise<Verdict> {
  const { about, commands, seconds, debian = [] } = JUDGES[name]!;
  process.stdout.write(`\n=== ${name}: ${about}\n`);
  const began = new Date();
  const log = createWriteStream(join(LOGS, `${name}.log`));
  const outcomes: Outcome[] = [];
  for (const command of commands) outcomes.push(await run(command, seconds * 3, log));
  log.end();
  const verdict = outcomes.some(({ status }) => status !== 0 && status !== NOT_RUN)
    ? 'failed'
    : outcomes.some(({ status }) => status === NOT_RUN)
      ? 'not run'
      : 'passed';
  const versions = [`Node ${process.versions.node}`, ...versionsOf(debian)];
  const processors = `${cpus().length} processors (${cpus()[0]?.model.trim()})`;
  const page = [
    `# ${name}: ${verdict}`,
    '',
    `${about}.`,
    '',
    `- ${began.toISOString().slice(0, 16).replace('T', ' ')} UTC, commit ${commit()}`,
    `- ${platform()} ${release()} ${arch()}, ${processors}`,
    `- ${versions.join(', ')}`,
    ...outcomes.flatMap(({ command, status, seconds: took, output }) => [
      '',
      `\`${command}\`: status ${status}, ${took} s`,
      '',
      '```',
      ...tellingLines(output),
      '```',
    ]),
    '',
  ];
  writeFileSync(join(RESULTS, `${name}.md`), page.join('\n'));
  process.stdout.write(`--- ${name}: ${verdict}\n`);
  return verdict;
}

async function main(args: readonly string[]): Promise<number> {
  const known = Object.keys(JUDGES);
  const names = args.filter((arg) => !arg.startsWith('--'));
  const unknown = names.filter((name) => !known.includes(name));
  if (args.includes('--list') || args.includes('--help') || unknown.length > 0) {
    for (const name of unknown) process.stdout.write(`no judge is named ${name}\n`);
    for (const [name, { about, seconds }] of Object.entries(JUDGES))
      process.stdout.write(`${name.padEnd(14)} ${about} (up to ${Math.round(seconds / MINUTE)} min)\n`);
    return unknown.length > 0 ? 2 : 0;
  }
  const chosen = args.includes('--fast')
    ? known.filter((name) => JUDGES[name]!.seconds <= 5 * MINUTE)
    : names.length > 0
      ? names
      : known;
  mkdirSync(RESULTS, { recursive: true });
  mkdirSync(LOGS, { recursive: true });
  const verdicts = new Map<string, Verdict>();
  for (const name of chosen) verdicts.set(name, await judge(name));
  const of = (wanted: Verdict): string[] => chosen.filter((name) => verdicts.get(name) === wanted);
  process.stdout.write('\n');
  for (const name of of('not run')) process.stdout.write(`not run: ${name}\n`);
  for (const name of of('failed')) process.stdout.write(`failed: ${name} (.cache/judges/${name}.log)\n`);
  process.stdout.write(`${of('passed').length} passed, ${of('failed').length} failed\n`);
  return of('failed').length === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
