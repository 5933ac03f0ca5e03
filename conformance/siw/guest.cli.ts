/**
 * The siw guest from the command line, without our stack: build it, look into it, check that it
 * works, and record the traffic of stock tools in it.
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { kernelOf, runLab } from './kernels.ts';
import { SiwGuest } from './lab-guest.ts';
import { RECIPES, record, type Recording } from './record.ts';

const USAGE = `usage: npx tsx conformance/siw/guest.cli.ts VERB [options]
  build                 build the guest; does nothing with a warm cache
  shell-command 'CMD'   boot, run CMD in the guest, print its output, exit with its status
  smoke                 boot, two stock rpings talk to each other, with a capture
  record [--only TEXT]  record every pair of stock tools into captures/ of the cache (or those whose name
                        contains TEXT)
  up                    boot and stay until interrupted; prints how to reach it
options:
  --driver NAME=VALUE   a setting of the driver (mpa_crc_required, peer_to_peer, mpa_crc_strict, try_gso,
                        mpa_version); repeatable
  --accel kvm|tcg       use this instead of trying KVM first
  --capture FILE        write all traffic of the guest's network card to FILE
SIW_KERNEL=6.12 in the environment takes that kernel instead of 6.1; kernels.txt lists them.
`;

const captures = (): string => join(kernelOf(process.env).cache, 'captures/');
const COMMAND_LIMIT_MS = 600_000;

interface Options {
  readonly driver: Readonly<Record<string, number>>;
  readonly accelerator: 'kvm' | 'tcg' | undefined;
  readonly captureFile: string | undefined;
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      driver: { type: 'string', multiple: true },
      accel: { type: 'string' },
      capture: { type: 'string' },
      only: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    },
  });
  const [verb = '', ...words] = positionals;
  const options: Options = {
    driver: driverSettings(values.driver ?? []),
    accelerator: values.accel === 'kvm' || values.accel === 'tcg' ? values.accel : undefined,
    captureFile: values.capture,
  };
  switch (values.help === true ? 'help' : verb) {
    case 'build':
      SiwGuest.build();
      return 0;
    case 'shell-command':
      return await withGuest(options, (guest) => shellCommand(guest, words.join(' ')));
    case 'smoke':
      return await withGuest(options, smoke);
    case 'record':
      return await withGuest(options, (guest) => recordAll(guest, values.only ?? ''));
    case 'up':
      return await withGuest(options, stayUp);
    case 'help':
      process.stdout.write(USAGE);
      return 0;
    default:
      process.stderr.write(USAGE);
      return 2;
  }
}

function driverSettings(list: readonly string[]): Record<string, number> {
  return Object.fromEntries(
    list.map((text) => {
      const [name = '', value = '1'] = text.split('=');
      return [name, Number(value)];
    }),
  );
}

async function withGuest(options: Options, use: (guest: SiwGuest) => Promise<number>): Promise<number> {
  SiwGuest.build();
  const guest = await SiwGuest.boot({
    driver: options.driver,
    ...(options.accelerator === undefined ? {} : { accelerator: options.accelerator }),
    ...(options.captureFile === undefined ? {} : { captureFile: options.captureFile }),
  });
  process.stderr.write(`guest up after ${(guest.bootMs / 1000).toFixed(1)} s (${guest.accelerator})\n`);
  try {
    const status = await use(guest);
    const crash = guest.crash();
    if (crash === null) return status;
    process.stderr.write(`the guest's kernel complained:\n${crash}\n`);
    return status === 0 ? 3 : status;
  } finally {
    await guest.shutdown();
  }
}

async function shellCommand(guest: SiwGuest, command: string): Promise<number> {
  const { status, output } = await guest.run(command, { timeoutMs: COMMAND_LIMIT_MS });
  process.stdout.write(output);
  return status < 0 ? 1 : status;
}

/** Two rpings beside other commands, so that the channel's concurrency is looked at as well. */
async function smoke(guest: SiwGuest): Promise<number> {
  const link = await guest.run('uname -r; rdma link show; ibv_devinfo | grep -E "transport|state"');
  process.stdout.write(link.output);
  const recordings = await record(guest, captures(), 'rping', show);
  const { output } = await guest.run('rdma resource show');
  process.stdout.write(output);
  return recordings.every(({ ok }) => ok) ? 0 : 1;
}

async function recordAll(guest: SiwGuest, only: string): Promise<number> {
  if (!RECIPES.some(({ name }) => name.includes(only))) {
    process.stderr.write(
      `no recording has "${only}" in its name; there are: ${RECIPES.map(({ name }) => name).join(' ')}\n`,
    );
    return 2;
  }
  const recordings = await record(guest, captures(), only, show);
  return recordings.every(({ ok }) => ok) ? 0 : 1;
}

function show({ name, ok, attempts, octets, detail }: Recording): void {
  process.stdout.write(
    `${ok ? 'ok  ' : 'FAIL'} ${name.padEnd(20)} ${String(octets).padStart(8)} octets, attempt ` +
      `${attempts}  ${detail}\n`,
  );
}

async function stayUp(guest: SiwGuest): Promise<number> {
  process.stdout.write(
    `commands: 127.0.0.1:${guest.forwardedPort(2323)} (agent.sh documents the two lines to send); ` +
      `stock rping listens on 127.0.0.1:${guest.forwardedPort(7174)}, perftest on ` +
      `127.0.0.1:${guest.forwardedPort(18_515)}\n`,
  );
  const keepAlive = setInterval(() => {}, 60_000);
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
  });
  clearInterval(keepAlive);
  return 0;
}

process.exitCode = await runLab(main);
