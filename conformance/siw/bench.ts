/**
 * The tools that an interop case works with: our command line as a child process on one side, stock tools on
 * a Linux siw peer on the other.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { kernelOf } from './kernels.ts';

/** A command under way on the peer. */
export interface PeerProcess {
  /** The text that the program has printed so far, both streams. */
  readonly output: string;
  /** Settles when it has ended. */
  readonly ended: Promise<{ readonly status: number; readonly output: string }>;
  /** End it and all that it started (KILL by default); resolves when it has ended. */
  kill(signal?: string): void | Promise<void>;
}

/** The machine with siw. */
export interface Peer {
  run(
    command: string,
    options?: { readonly timeoutMs?: number },
  ): Promise<{ readonly status: number; readonly output: string }>;
  spawn(command: string): PeerProcess;
  /** Where our side reaches a port on which the peer listens. */
  reach(port: number): { readonly host: string; readonly port: number };
  /** The peer's own address, on which its tools listen. */
  readonly address: string;
  /** How the peer reaches our side. */
  readonly hostAddress: string;
  /** Where our side listens so that the peer reaches it. */
  readonly bindAddress: string;
  /**
   * How many times slower than an idle one this machine is, as far as the peer's boot shows: 1 or more.
   * Time-outs grow with it.
   */
  readonly slowness: number;
}

/**
 * Our part in a case: one of its sides, what stands between two stock ones, or nothing. A case with nothing
 * of ours shows what siw cannot do for two stock tools either.
 */
export type Part = 'client' | 'server' | 'proxy' | 'nothing';

/** The sides of a case in words, by our part in it. */
export const SIDES: Readonly<Record<Part, string>> = {
  client: 'our client, stock server',
  server: 'stock client, our server',
  proxy: 'stock client and server, our proxy',
  nothing: 'stock client and server',
};

/** A case: settles with a few words on its observations, or rejects with the failure. */
export interface InteropCase {
  /** The driver settings that the case needs; see {@link DRIVERS}. */
  readonly driver: DriverName;
  /** The program, or programs, that it is about. */
  readonly tool: string;
  readonly name: string;
  /** The part that is ours; stock tools are the rest. */
  readonly ours: Part;
  /** The topic of the case, in the order of the table. */
  readonly topic: Topic;
  /** The case uses the guest's own addresses, and is left out on another machine. */
  readonly guestOnly?: boolean;
  run(bench: Bench): Promise<string>;
}

/** The kinds of case, in the order of the report. */
export const TOPICS = {
  rping: 'rping: sizes, CRC, peer-to-peer, IPv6, many pings',
  'set-up': 'Set-up: markers, rejection, revision 1, nobody there',
  connections: 'Connections and messages: ucmatose, rdma_client, rdma_server',
  perftest: 'perftest over rdma_cm',
  streams: 'Byte streams: rstream, riostream, rcopy, programs under librspreload',
  block: "Linux's block device driver and its file system",
  proxied: 'Other stock programs at both ends, our proxy between',
  killed: 'One side is killed in the middle',
  lacking: 'Nothing of ours: what siw does not do for two stock tools',
} as const;
export type Topic = keyof typeof TOPICS;

/** The title of a case. */
export function caseTitle({ tool, name, ours }: Pick<InteropCase, 'tool' | 'name' | 'ours'>): string {
  return `${tool} ${name}: ${SIDES[ours]}`;
}

/** Builds and settings of the driver under which cases run, in this order, one boot each. */
export type DriverName = 'stock' | 'crc-required' | 'peer-to-peer' | 'revision-1';
export const DRIVERS: Readonly<Record<DriverName, Readonly<Record<string, number>>>> = {
  stock: {},
  'crc-required': { mpa_crc_required: 1 },
  'peer-to-peer': { peer_to_peer: 1 },
  'revision-1': { mpa_version: 1 },
};

const PROGRAM = fileURLToPath(new URL('../../bin/iwarp.js', import.meta.url));
/** How long one step may take on an idle machine; what it may take here is `patience` of the bench. */
const PATIENCE_MS = 60_000;

/** One of our tools, running. */
export interface ToolProcess {
  readonly child: ChildProcess;
  readonly stdout: string;
  readonly stderr: string;
  readonly ended: Promise<{
    readonly status: number | null;
    readonly stdout: string;
    readonly stderr: string;
  }>;
  /** Wait until one of the streams shows `pattern`. */
  shows(pattern: RegExp): Promise<RegExpMatchArray>;
}

export class Bench {
  readonly peer: Peer;
  /**
   * How long one step may take: machines lose most of their processor for seconds at a time, and the guest
   * may be emulated.
   */
  readonly patience: number;
  readonly #captures = join(kernelOf(process.env).cache, 'interop');
  readonly #running = new Set<ToolProcess>();
  readonly #remote = new Set<PeerProcess>();
  readonly #relays = new Set<Server>();
  /** Capture of the case under way; kept if it fails. */
  capture = '';

  constructor(peer: Peer) {
    this.peer = peer;
    this.patience = PATIENCE_MS * peer.slowness;
    mkdirSync(this.#captures, { recursive: true });
  }

  /** Begin a case. */
  begin(name: string): void {
    this.capture = join(this.#captures, `${name.replace(/[^a-z0-9.]+/gi, '-')}.pcap`);
    rmSync(this.capture, { force: true });
  }

  /** End a case: stop what it left running; keep the capture of a failure. */
  async finish(failed: boolean): Promise<void> {
    for (const tool of this.#running) tool.child.kill('SIGKILL');
    await Promise.all([...this.#running].map((tool) => tool.ended));
    // A guest that answers nothing never says that the command has ended.
    for (const process of this.#remote)
      await within(Promise.resolve(process.kill()), this.patience, () => 'the peer').catch(() => undefined);
    this.#remote.clear();
    for (const relay of this.#relays) relay.close();
    this.#relays.clear();
    if (!failed) rmSync(this.capture, { force: true });
  }

  /** Start `iwarp ARGS...` here. */
  start(args: readonly string[]): ToolProcess {
    const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    const texts = { stdout: '', stderr: '' };
    const watchers = new Set<() => void>();
    for (const stream of ['stdout', 'stderr'] as const) {
      child[stream].setEncoding('utf8').on('data', (text: string) => {
        texts[stream] += text;
        for (const watch of watchers) watch();
      });
    }
    const ended = new Promise<{ status: number | null; stdout: string; stderr: string }>((resolve) => {
      child.once('close', (status) => {
        this.#running.delete(tool);
        resolve({ status, ...texts });
        for (const watch of watchers) watch();
      });
    });
    const shows = (pattern: RegExp): Promise<RegExpMatchArray> =>
      within(
        new Promise((resolve, reject) => {
          const watch = (): void => {
            const match = pattern.exec(texts.stdout) ?? pattern.exec(texts.stderr);
            if (match !== null) resolve(match);
            else if (child.exitCode !== null)
              reject(new Error(`ended without ${pattern}: ${texts.stdout}${texts.stderr}`));
          };
          watchers.add(watch);
          watch();
        }),
        this.patience,
        () => `${pattern} was not shown: ${texts.stdout}${texts.stderr}`,
      );
    const tool: ToolProcess = {
      child,
      ended,
      shows,
      get stdout() {
        return texts.stdout;
      },
      get stderr() {
        return texts.stderr;
      },
    };
    this.#running.add(tool);
    return tool;
  }

  /** Run `iwarp ARGS...` here to its end. */
  async iwarp(
    ...args: string[]
  ): Promise<{ readonly status: number | null; readonly stdout: string; readonly stderr: string }> {
    const tool = this.start(args);
    return await within(
      tool.ended,
      this.patience,
      () => `iwarp ${args.join(' ')} did not end: ${tool.stdout}${tool.stderr}`,
    );
  }

  /**
   * Wait until the capture of the case holds this number of octets: then the tool that writes it is under
   * way.
   */
  async captured(octets: number): Promise<void> {
    const until = Date.now() + this.patience;
    while ((statSync(this.capture, { throwIfNoEntry: false })?.size ?? 0) < octets) {
      if (Date.now() > until)
        throw new Error(`less than ${octets} octets have crossed in ${this.patience / 1000} s`);
      await pause(50);
    }
  }

  /** Start a command on the peer; it is stopped at the end of the case. */
  remote(command: string): PeerProcess {
    const process = this.peer.spawn(command);
    this.#remote.add(process);
    return process;
  }

  /** A free port of this machine. */
  async freePort(): Promise<number> {
    return await new Promise((resolve, reject) => {
      const probe = createServer();
      probe.once('error', reject);
      probe.listen(0, this.peer.bindAddress, () => {
        const { port } = probe.address() as AddressInfo;
        probe.close(() => resolve(port));
      });
    });
  }

  /** A port of ::1 whose connections lead to `target`, until the end of the case. */
  async relay6(target: {
    readonly host: string;
    readonly port: number;
  }): Promise<{ readonly host: string; readonly port: number }> {
    const relay = createServer((near) => {
      const far = connect(target);
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const)
        from
          .on('error', () => to.destroy())
          .on('close', () => to.end())
          .pipe(to);
    });
    return { host: '::1', port: await this.serve(relay, '::1') };
  }

  /** Let `server` listen here until the end of the case; its port. */
  async serve(server: Server, host: string = this.peer.bindAddress): Promise<number> {
    this.#relays.add(server);
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, host, resolve));
    return (server.address() as AddressInfo).port;
  }

  /**
   * Start `iwarp ARGS...`, which listens on `port`, and wait until it does. The system's table shows it: a
   * connection would count as a client.
   */
  async startListening(args: readonly string[], port: number): Promise<ToolProcess> {
    const tool = this.start(args);
    const listening = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, '0')} [0-9A-F:]+ 0A`);
    const until = Date.now() + this.patience;
    while (Date.now() < until && tool.child.exitCode === null) {
      if (['/proc/net/tcp', '/proc/net/tcp6'].some((table) => listening.test(readFileSync(table, 'latin1'))))
        return tool;
      await pause(50);
    }
    throw new Error(`iwarp ${args.join(' ')} does not listen: ${tool.stdout}${tool.stderr}`);
  }

  /** Run a command on the peer to its end. */
  async stock(command: string): Promise<{ readonly status: number; readonly output: string }> {
    return await this.peer.run(command, { timeoutMs: this.patience });
  }

  /** A stock tool that listens on the peer; resolves when its port answers in the peer's own table. */
  async listening(command: string, port: number): Promise<PeerProcess> {
    const process = this.remote(command);
    const hex = port.toString(16).toUpperCase().padStart(4, '0');
    const until = Date.now() + this.patience;
    while (Date.now() < until) {
      const { output } = await this.peer.run(
        `grep -cE ':${hex} [0-9A-F:]+ 0A' /proc/net/tcp /proc/net/tcp6; true`,
      );
      if (/:[1-9]/.test(output)) return process;
      await pause(100);
    }
    throw new Error(`nothing listens on port ${port} of the peer: ${process.output}`);
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Settle as `promise`, or reject after `ms`. */
export function within<T>(promise: Promise<T>, ms: number, message: () => string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`after ${ms / 1000} s: ${message()}`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** Fail the case unless it holds. */
export function check(condition: boolean, message: string): void {
  if (!condition) throw new Error(message);
}
