/**
 * Captures of stock tools talking to each other over siw inside the guest: what a decoder has to read, made
 * by an implementation that is not ours. Files go to `.cache/captures/` and are never committed.
 *
 * Each recipe runs once with the loopback at 1500 octets, the size of an Ethernet frame, where FPDUs are as
 * on a real network; those marked `jumbo` once more at 65 536, where siw makes FPDUs beyond the 64 768 octets
 * of RFC 5044.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pause } from './bench.ts';
import type { SiwGuest } from './lab-guest.ts';

/** Two tools and the capture of what they say. */
interface Recipe {
  readonly name: string;
  readonly server: string;
  readonly client: string;
  /** TCP port the server listens on. */
  readonly port: number;
  readonly jumbo?: true;
  /** Before and after, inside the guest. */
  readonly prepare?: string;
  readonly verify?: string;
}

/** The result of one recipe. */
export interface Recording {
  readonly name: string;
  readonly ok: boolean;
  /** How often the tools had to be run. */
  readonly attempts: number;
  readonly file: string;
  readonly octets: number;
  readonly detail: string;
}

const HERE = '10.0.2.15';
const PERFTEST_PORT = 18_515;

export const RECIPES: readonly Recipe[] = [
  rping('rping', '-C 2 -S 64 -V'),
  rping('rping-65535', '-C 2 -S 65535 -V', true),
  {
    ...rping('rping-ipv6', '-C 2 -S 64 -V'),
    server: 'rping -s -a fec0::15 -C 2 -V',
    client: 'rping -c -a fec0::15 -C 2 -S 64 -V',
  },
  perftest('ib_write_bw', '-s 4096 -n 20', true),
  perftest('ib_read_bw', '-s 4096 -n 20', true),
  perftest('ib_send_bw', '-s 4096 -n 20', true),
  perftest('ib_write_lat', '-s 64 -n 10'),
  perftest('ib_read_lat', '-s 64 -n 10'),
  perftest('ib_send_lat', '-s 64 -n 10'),
  {
    name: 'rstream',
    port: 7471,
    server: `rstream -b ${HERE} -S 4096 -I 10 -C 2 -T v`,
    client: `rstream -s ${HERE} -S 4096 -I 10 -C 2 -T v`,
  },
  {
    name: 'riostream',
    port: 7471,
    server: `riostream -b ${HERE} -S 4096 -I 10 -C 2`,
    client: `riostream -s ${HERE} -S 4096 -I 10 -C 2`,
  },
  {
    name: 'ucmatose',
    port: 7471,
    server: `ucmatose -b ${HERE} -C 10 -S 100`,
    client: `ucmatose -s ${HERE} -C 10 -S 100`,
  },
  { name: 'rdma_client', port: 7471, server: 'rdma_server', client: `rdma_client -s ${HERE}` },
  {
    name: 'rcopy',
    port: 7427,
    server: 'exec rcopy -p 7427',
    client: `rcopy /tmp/lab-source ${HERE}:/tmp/lab-copy`,
    prepare: 'rm -f /tmp/lab-copy; head -c 100000 /usr/bin/rping > /tmp/lab-source',
    verify: 'cmp /tmp/lab-source /tmp/lab-copy',
  },
];

function rping(name: string, options: string, jumbo?: true): Recipe {
  return {
    name,
    port: 7174,
    ...(jumbo === undefined ? {} : { jumbo }),
    server: `rping -s -a ${HERE} ${options}`,
    client: `rping -c -a ${HERE} ${options}`,
  };
}

function perftest(name: string, options: string, jumbo?: true): Recipe {
  return {
    name,
    port: PERFTEST_PORT,
    ...(jumbo === undefined ? {} : { jumbo }),
    server: `${name} -R -F -d siw0 ${options}`,
    client: `${name} -R -F -d siw0 ${options} ${HERE}`,
  };
}

/** Stock perftest fails now and then between two siw ends as well. */
const ATTEMPTS = 4;
const TOOL_LIMIT_MS = 60_000;
const START_LIMIT_MS = 30_000;

/** Makes every recording whose name contains `only`, one after the other, and reports each as it is done. */
export async function record(
  guest: SiwGuest,
  folder: string,
  only: string,
  done: (recording: Recording) => void,
): Promise<Recording[]> {
  mkdirSync(folder, { recursive: true });
  const recordings: Recording[] = [];
  for (const recipe of RECIPES.filter(({ name }) => name.includes(only))) {
    for (const mtu of recipe.jumbo === true ? [1500, 65_536] : [1500]) {
      const recording = await recordOne(guest, folder, recipe, mtu);
      recordings.push(recording);
      done(recording);
    }
  }
  return recordings;
}

async function recordOne(guest: SiwGuest, folder: string, recipe: Recipe, mtu: number): Promise<Recording> {
  const name = mtu === 1500 ? recipe.name : `${recipe.name}-jumbo`;
  const file = join(folder, `${name}.pcap`);
  await guest.run(`ip link set lo mtu ${mtu}`);
  let detail = '';
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    const outcome = await capturePair(guest, recipe);
    detail = outcome.detail;
    if (!outcome.ok) continue;
    writeFileSync(file, outcome.capture);
    return { name, ok: true, attempts: attempt, file, octets: outcome.capture.length, detail };
  }
  return { name, ok: false, attempts: ATTEMPTS, file, octets: 0, detail };
}

interface PairOutcome {
  readonly ok: boolean;
  readonly capture: Buffer;
  readonly detail: string;
}

/** Runs the two tools of a recipe under tcpdump. */
async function capturePair(guest: SiwGuest, recipe: Recipe): Promise<PairOutcome> {
  const path = '/tmp/lab-record.pcap';
  await guest.run(`rm -f ${path}; ${recipe.prepare ?? 'true'}`);
  // tcpdump's default buffer loses packets of the loopback, and without immediate mode the last ones come too
  // late.
  const dump = guest.spawn(`exec tcpdump -i lo --immediate-mode -B 65536 -Z root -s 0 -U -w ${path} tcp`);
  await until(() => /listening on/.test(dump.output), 'tcpdump to begin');
  const server = guest.spawn(recipe.server);
  try {
    await listening(guest, recipe.port, () => server.output);
    const client = await guest.run(recipe.client, { timeoutMs: TOOL_LIMIT_MS });
    const check = recipe.verify === undefined ? { status: 0, output: '' } : await guest.run(recipe.verify);
    // The server's own end belongs into the capture; those that serve for ever are ended below.
    await Promise.race([server.ended, pause(1000)]);
    await dump.kill('INT');
    const capture = Buffer.from(
      (await guest.run(`base64 < ${path}`, { timeoutMs: TOOL_LIMIT_MS })).output,
      'base64',
    );
    const ok = client.status === 0 && check.status === 0 && capture.length > 24;
    return { ok, capture, detail: `${lastLine(client.output)}${check.output}` };
  } catch (error) {
    return { ok: false, capture: Buffer.alloc(0), detail: (error as Error).message };
  } finally {
    await dump.kill();
    await server.kill();
  }
}

/**
 * Resolves when something listens: siw listens in the kernel, and the socket is shown in the ordinary table.
 */
async function listening(guest: SiwGuest, port: number, output: () => string): Promise<void> {
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  const until = Date.now() + START_LIMIT_MS;
  while (Date.now() < until) {
    const { status } = await guest.run(`grep -qE ':${hex} [0-9A-F:]+ 0A' /proc/net/tcp /proc/net/tcp6`);
    if (status === 0) return;
    await pause(100);
  }
  throw new Error(`nothing listens on port ${port}: ${output()}`);
}

async function until(holds: () => boolean, what: string): Promise<void> {
  const end = Date.now() + START_LIMIT_MS;
  while (!holds()) {
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await pause(50);
  }
}

/** The last line that says something: perftest ends with a rule. */
function lastLine(text: string): string {
  return (
    text
      .split('\n')
      .findLast((line) => /[a-z0-9]/i.test(line))
      ?.trim() ?? ''
  );
}
