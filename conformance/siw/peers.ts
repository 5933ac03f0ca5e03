/**
 * The two kinds of peer with siw that the interop runner knows: the guest, and a machine that `ssh` reaches.
 */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { fileURLToPath } from 'node:url';
import { within, type PeerProcess } from './bench.ts';
import { overChild, runOver } from './lab-channel.ts';
import { SiwGuest } from './lab-guest.ts';
import type { OpenPeer } from './interop-types.ts';
import { resetsAtClose } from './lost-tail.ts';

/**
 * Milliseconds that an emulated boot takes on two idle cores, and the factor beyond which a longer wait does
 * not help.
 */
const IDLE_BOOT_MS = 10_000;
const SLOWEST = 4;
/** A guest that says nothing for so long is gone, even on a machine that stands still for a while. */
const ANSWER_LIMIT_MS = 60_000;

/** Build and boot the guest with these driver settings. */
export async function openGuest(driver: Readonly<Record<string, number>>): Promise<OpenPeer> {
  SiwGuest.build();
  const guest = await SiwGuest.boot({ driver });
  const link = await guest.run('rdma link show; uname -r');
  return {
    description:
      `guest up after ${(guest.bootMs / 1000).toFixed(1)} s (${guest.accelerator}): ` +
      `${link.output.trim().replaceAll(/\s+/g, ' ')}`,
    address: guest.address,
    hostAddress: guest.hostAddress,
    bindAddress: '127.0.0.1',
    slowness: Math.min(SLOWEST, Math.max(1, guest.bootMs / IDLE_BOOT_MS)),
    run: (command, options) => guest.run(command, options),
    spawn: (command) => guest.spawn(command),
    reach: (port) => ({ host: '127.0.0.1', port: guest.forwardedPort(port) }),
    crash: () => Promise.resolve(guest.crash()),
    kernelLog: () => Promise.resolve(guest.serialLog),
    resetsAtClose: async () => resetsAtClose((await guest.run('cat /proc/net/netstat')).output),
    dead: () => isLost(guest),
    close: () => guest.shutdown(),
  };
}

/**
 * Whether a guest can't serve another case. One whose kernel has fallen over may go on to answer commands,
 * but connections wait for ever behind the work that fell.
 */
export async function isLost(guest: Pick<SiwGuest, 'ended' | 'crash' | 'run'>): Promise<boolean> {
  if (guest.ended || guest.crash() !== null) return true;
  return (await guest.run('true', { timeoutMs: ANSWER_LIMIT_MS })).status !== 0;
}

/** A machine with siw, reached by `ssh HOST`; our tools reach it, and it us, over the network between. */
export async function openRemote(host: string): Promise<OpenPeer> {
  const agent = readFileSync(fileURLToPath(new URL('agent.sh', import.meta.url)), 'utf8');
  const start = (command: string): PeerProcess => {
    const child = spawn(
      'ssh',
      ['-o', 'BatchMode=yes', host, `sh -c '${agent.replaceAll("'", String.raw`'\''`)}'`],
      { stdio: ['pipe', 'pipe', 'inherit'] },
    );
    return runOver(overChild(child), command, (other) => void start(other));
  };
  const run: OpenPeer['run'] = async (command, options = {}) => {
    const process = start(command);
    return await within(process.ended, options.timeoutMs ?? 60_000, () => command);
  };
  const [link, from] = await Promise.all([
    run('rdma link show; uname -r'),
    run('echo ${SSH_CONNECTION%% *}'),
  ]);
  const address = host.replace(/^.*@/, '');
  return {
    description: `${host}: ${link.output.trim().replaceAll(/\s+/g, ' ')}`,
    address,
    bindAddress: '0.0.0.0',
    slowness: 1,
    hostAddress: from.output.trim() || firstAddress(),
    run,
    spawn: start,
    reach: (port) => ({ host: address, port }),
    crash: async () => {
      const { output } = await run('dmesg | grep -E "Oops|BUG:|panic" | tail -3; true');
      return output.trim() === '' ? null : output;
    },
    kernelLog: async () => (await run('dmesg')).output,
    resetsAtClose: () => Promise.resolve(null),
    dead: () => Promise.resolve(false), // it is not ours to restart
    close: () => Promise.resolve(),
  };
}

function firstAddress(): string {
  for (const list of Object.values(networkInterfaces())) {
    for (const { internal, family, address } of list ?? [])
      if (!internal && family === 'IPv4') return address;
  }
  throw new Error('this machine has no address but loopback');
}
