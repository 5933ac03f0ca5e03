/**
 * The guest: builds it (build-guest.sh), boots it under qemu with user-mode networking, and hands out a
 * command channel and forwarded ports. See README.md beside this file.
 */
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { accessSync, constants, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { within, type PeerProcess } from './bench.ts';
import { kernelOf, LabProblem } from './kernels.ts';
import { runOver } from './lab-channel.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));
/** Everything that is built for the kernel that this run asks for. */
const cache = (): string => kernelOf(process.env).cache;
const COMMAND_PORT = 2323;
/** Ports on which stock tools listen in the guest. */
const GUEST_PORTS: readonly number[] = [
  7174, 7175, 7176, 7427, 7471, 7472, 18_515, 18_516, 19_765, 5001, 4000, 4001,
];
const BUILD_LIMIT = 1_200_000;
/**
 * Emulated, the guest is up in about ten seconds; a machine that loses its processor for a while takes
 * minutes.
 */
const BOOT_LIMIT = 180_000;
const KVM_TRIAL = 30_000;
const BOOT_TRIES = 2;
/**
 * Stalls and lockups are left out: a machine that withholds its processor makes the kernel report those, with
 * a call trace.
 */
const CRASH = new RegExp(
  '(Kernel panic|kernel BUG at|BUG: (?!soft lockup|workqueue lockup)|Oops: |general protection fault|' +
    'WARNING: CPU|KASAN|blocked for more than).*',
);

type Accelerator = 'kvm' | 'tcg';

interface GuestOptions {
  /** Settings of the driver; any makes the tunable build serve. */
  readonly driver?: Readonly<Record<string, number>>;
  /** Default: KVM where it works, emulation elsewhere. */
  readonly accelerator?: Accelerator;
  /** Write everything that crosses the guest's card into this file. */
  readonly captureFile?: string;
}

export class SiwGuest {
  readonly accelerator: Accelerator;
  readonly bootMs: number;
  /** The guest's own address, and how it reaches this machine's loopback. */
  readonly address = '10.0.2.15';
  readonly hostAddress = '10.0.2.2';
  readonly #qemu: ChildProcess;
  readonly #serial: string;
  readonly #folder: string;
  readonly #ports: ReadonlyMap<number, number>;

  private constructor(
    qemu: ChildProcess,
    folder: string,
    ports: ReadonlyMap<number, number>,
    accelerator: Accelerator,
    bootMs: number,
  ) {
    this.#qemu = qemu;
    this.#folder = folder;
    this.#serial = join(folder, 'serial.log');
    this.#ports = ports;
    this.accelerator = accelerator;
    this.bootMs = bootMs;
  }

  /** Build missing parts; takes seconds with a warm cache. */
  static build(): void {
    const { line } = kernelOf(process.env);
    const { status, signal } = spawnSync('bash', [join(HERE, 'build-guest.sh')], {
      env: { ...process.env, SIW_KERNEL: line },
      stdio: ['ignore', 'inherit', 'inherit'],
      timeout: BUILD_LIMIT,
    });
    if (status !== 0)
      throw new LabProblem(`no guest with a kernel ${line}: its build ended with ${signal ?? status}`);
  }

  /** Boot, twice if need be. */
  static async boot(options: GuestOptions = {}): Promise<SiwGuest> {
    const accelerators = options.accelerator === undefined ? candidates() : [options.accelerator];
    let problem: unknown;
    for (const accelerator of accelerators) {
      for (let attempt = 0; attempt < BOOT_TRIES; attempt++) {
        try {
          const guest = await start(options, accelerator, accelerator === 'kvm' ? KVM_TRIAL : BOOT_LIMIT);
          return guest;
        } catch (error) {
          problem = error;
          if (accelerator === 'kvm') break; // it does not really work here
        }
      }
    }
    throw problem;
  }

  /** @internal */
  static make(
    qemu: ChildProcess,
    folder: string,
    ports: ReadonlyMap<number, number>,
    accelerator: Accelerator,
    bootMs: number,
  ): SiwGuest {
    return new SiwGuest(qemu, folder, ports, accelerator, bootMs);
  }

  /** The port of 127.0.0.1 that leads to this port of the guest. */
  forwardedPort(guestPort: number): number {
    const port = this.#ports.get(guestPort);
    if (port === undefined)
      throw new Error(`port ${guestPort} of the guest is not forwarded: add it to GUEST_PORTS`);
    return port;
  }

  spawn(command: string): PeerProcess {
    const stream = connect({ host: '127.0.0.1', port: this.forwardedPort(COMMAND_PORT) });
    return runOver(stream, command, (other) => void this.spawn(other));
  }

  /** Run to the end; the command is killed after `timeoutMs`, with status -2. */
  async run(
    command: string,
    options: { readonly timeoutMs?: number } = {},
  ): Promise<{ readonly status: number; readonly output: string }> {
    const { timeoutMs = 60_000 } = options;
    const process = this.spawn(command);
    try {
      return await within(process.ended, timeoutMs, () => command);
    } catch {
      void process.kill();
      return { status: -2, output: `${process.output}\n(stopped after ${timeoutMs / 1000} s)` };
    }
  }

  /** The messages about a crash of the guest's kernel, from the first such line on; null if all is well. */
  crash(): string | null {
    const log = readFileSync(this.#serial, 'latin1');
    const match = CRASH.exec(log);
    return match === null ? null : log.slice(match.index, match.index + 4000);
  }

  get serialLog(): string {
    return readFileSync(this.#serial, 'latin1');
  }

  /** Whether qemu has ended, as it does when the guest's kernel gives up. */
  get ended(): boolean {
    return this.#qemu.exitCode !== null || this.#qemu.signalCode !== null;
  }

  async shutdown(): Promise<void> {
    const gone = new Promise<void>((resolve) => this.#qemu.once('close', () => resolve()));
    if (!this.ended) {
      this.#qemu.kill('SIGTERM');
      await within(gone, 10_000, () => 'qemu').catch(() => this.#qemu.kill('SIGKILL'));
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/**
 * KVM first where its device can be opened and the processor has the extension: whether it works shows only
 * when booting. The result of a failed try is remembered. (There are machines whose /dev/kvm opens and runs
 * nothing but specially built kernels.)
 */
function candidates(): Accelerator[] {
  const verdict = join(cache(), 'no-kvm');
  try {
    accessSync('/dev/kvm', constants.R_OK | constants.W_OK);
    if (!/^flags.*\b(vmx|svm)\b/m.test(readFileSync('/proc/cpuinfo', 'latin1'))) return ['tcg'];
    return existsSync(verdict) ? ['tcg'] : ['kvm', 'tcg'];
  } catch {
    return ['tcg'];
  }
}

async function start(options: GuestOptions, accelerator: Accelerator, limit: number): Promise<SiwGuest> {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-siw-'));
  const serial = join(folder, 'serial.log');
  const ports = new Map<number, number>();
  for (const port of [...GUEST_PORTS, COMMAND_PORT]) ports.set(port, await freePort());
  // The guest must not outlive us, however we end: the kernel ends it with its parent.
  const qemu = spawn(
    'setpriv',
    ['--pdeathsig', 'KILL', 'qemu-system-x86_64', ...qemuArguments(options, accelerator, serial, ports)],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  );
  let complaint = '';
  qemu.stderr!.on('data', (chunk: Buffer) => (complaint += chunk.toString()));
  const begin = performance.now();
  const fail = (why: string): never => {
    qemu.kill('SIGKILL');
    const tail = existsSync(serial) ? readFileSync(serial, 'latin1').slice(-1000) : '';
    rmSync(folder, { recursive: true, force: true });
    if (accelerator === 'kvm') rememberNoKvm();
    throw new Error(`the guest did not boot (${accelerator}): ${why}\n${complaint}${tail}`);
  };
  while (performance.now() - begin < limit) {
    if (qemu.exitCode !== null) fail(`qemu ended with status ${qemu.exitCode}`);
    const log = existsSync(serial) ? readFileSync(serial, 'latin1') : '';
    if (/^LAB PROBLEM .*/m.test(log)) fail(/^LAB PROBLEM .*/m.exec(log)![0]);
    if (/^LAB READY/m.test(log))
      return SiwGuest.make(qemu, folder, ports, accelerator, performance.now() - begin);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return fail(`not ready after ${limit / 1000} s`);
}

function rememberNoKvm(): void {
  execFileSync('touch', [join(cache(), 'no-kvm')]);
}

function qemuArguments(
  options: GuestOptions,
  accelerator: Accelerator,
  serial: string,
  ports: ReadonlyMap<number, number>,
): string[] {
  const settings = Object.entries(options.driver ?? {}).map(([name, value]) => `${name}=${value}`);
  const driver = settings.length === 0 ? 'stock' : 'tunable';
  const forward = (address: string, list: readonly number[]): string =>
    list.map((port) => `,hostfwd=tcp:127.0.0.1:${ports.get(port)}-${address}:${port}`).join('');
  return [
    '-M',
    'q35',
    '-display',
    'none',
    '-cpu',
    accelerator === 'kvm' ? 'host' : 'max',
    '-m',
    '1536',
    '-smp',
    '2',
    '-accel',
    accelerator === 'kvm' ? 'kvm' : 'tcg,thread=multi',
    '-kernel',
    join(cache(), 'vmlinuz'),
    '-initrd',
    join(cache(), 'initramfs.gz'),
    '-no-reboot',
    '-nodefaults',
    '-append',
    `console=ttyS0 panic=-1 lab.driver=${driver}` +
      `${settings.length === 0 ? '' : ` lab.parameters=${settings.join(',')}`}`,
    '-serial',
    `file:${serial}`,
    '-netdev',
    `user,id=n0,ipv4=on,net=10.0.2.0/24,ipv6=on,ipv6-net=fec0::/64${forward('10.0.2.15', GUEST_PORTS)}`,
    '-device',
    'e1000,netdev=n0',
    // The command channel has a separate card, without IPv6: a second route there would draw RDMA
    // connections away from siw.
    '-netdev',
    `user,id=n1,ipv4=on,ipv6=off,net=10.0.3.0/24${forward('10.0.3.15', [COMMAND_PORT])}`,
    '-device',
    'e1000,netdev=n1',
    ...(options.captureFile === undefined
      ? []
      : ['-object', `filter-dump,id=f0,netdev=n0,file=${options.captureFile}`]),
  ];
}

/** A port of 127.0.0.1 that nobody uses now. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
