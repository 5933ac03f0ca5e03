/**
 * What an interop case works with: our command line as a child process on one side, stock tools on a Linux siw peer on the other.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';

/** A command under way on the peer. */
export interface PeerProcess {
  /** What it has printed so far, both streams. */
  readonly output: string;
  /** Settles when it has ended. */
  readonly ended: Promise<{ readonly status: number; readonly output: string }>;
  /** End it and all that it started (KILL unless told); resolves when it has ended. */
  kill(signal?: string): void | Promise<void>;
}

/** The machine with siw. */
export interface Peer {
  run(command: string, options?: { readonly timeoutMs?: number }): Promise<{ readonly status: number; readonly output: string }>;
  spawn(command: string): PeerProcess;
  /** Where our side reaches a port on which the peer listens. */
  reach(port: number): { readonly host: string; readonly port: number };
  /** The peer's own address, on which its tools listen. */
  readonly address: string;
  /** How the peer reaches our side. */
  readonly hostAddress: string;
  /** Where our side listens so that the peer reaches it. */
  readonly bindAddress: string;
}

/** A case: settles with a few words on what was seen, or rejects with what went wrong. */
export interface InteropCase {
  /** Which driver settings it needs; see {@link DRIVERS}. */
  readonly driver: DriverName;
  readonly group: string;
  readonly name: string;
  run(bench: Bench): Promise<string>;
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
const CAPTURES = fileURLToPath(new URL('.cache/interop/', import.meta.url));
/** Machines lose most of their processor for seconds at a time, and the guest may be emulated. */
export const PATIENCE = 60_000;

/** One of our tools, running. */
export interface ToolProcess {
  readonly child: ChildProcess;
  readonly stdout: string;
  readonly stderr: string;
  readonly ended: Promise<{ readonly status: number | null; readonly stdout: string; readonly stderr: string }>;
  /** Wait until one of the streams shows `pattern`. */
  shows(pattern: RegExp): Promise<RegExpMatchArray>;
}

export class Bench {
  readonly peer: Peer;
  readonly #running = new Set<ToolProcess>();
  readonly #remote = new Set<PeerProcess>();
  /** Capture of the case under way; kept if it fails. */
  capture = '';

  constructor(peer: Peer) {
    this.peer = peer;
    mkdirSync(CAPTURES, { recursive: true });
  }

  /** Begin a case. */
  begin(name: string): void {
    this.capture = join(CAPTURES, `${name.replace(/[^a-z0-9.]+/gi, '-')}.pcap`);
    rmSync(this.capture, { force: true });
  }

  /** End a case: stop what it left running; keep the capture of a failure. */
  async finish(failed: boolean): Promise<void> {
    for (const tool of this.#running) tool.child.kill('SIGKILL');
    await Promise.all([...this.#running].map((tool) => tool.ended));
    for (const process of this.#remote) await process.kill();
    this.#remote.clear();
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
      within(new Promise((resolve, reject) => {
        const watch = (): void => {
          const match = pattern.exec(texts.stdout) ?? pattern.exec(texts.stderr);
          if (match !== null) resolve(match);
          else if (child.exitCode !== null) reject(new Error(`ended without ${pattern}: ${texts.stdout}${texts.stderr}`));
        };
        watchers.add(watch);
        watch();
      }), PATIENCE, () => `${pattern} was not shown: ${texts.stdout}${texts.stderr}`);
    const tool: ToolProcess = {
      child, ended, shows,
      get stdout() { return texts.stdout; },
      get stderr() { return texts.stderr; },
    };
    this.#running.add(tool);
    return tool;
  }

  /** Run `iwarp ARGS...` here to its end. */
  async iwarp(...args: string[]): Promise<{ readonly status: number | null; readonly stdout: string; readonly stderr: string }> {
    const tool = this.start(args);
    return await within(tool.ended, PATIENCE, () => `iwarp ${args.join(' ')} did not end: ${tool.stdout}${tool.stderr}`);
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

  /** Start `iwarp ARGS...`, which listens on `port`, and wait until it does. The system's table tells: a connection would count as a client. */
  async startListening(args: readonly string[], port: number): Promise<ToolProcess> {
    const tool = this.start(args);
    const listening = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, '0')} [0-9A-F:]+ 0A`);
    const until = Date.now() + PATIENCE;
    while (Date.now() < until && tool.child.exitCode === null) {
      if (['/proc/net/tcp', '/proc/net/tcp6'].some((table) => listening.test(readFileSync(table, 'latin1')))) return tool;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`iwarp ${args.join(' ')} does not listen: ${tool.stdout}${tool.stderr}`);
  }

  /** Run a command on the peer to its end. */
  async stock(command: string): Promise<{ readonly status: number; readonly output: string }> {
    return await this.peer.run(command, { timeoutMs: PATIENCE });
  }

  /** A stock tool that listens on the peer; resolves when its port answers in the peer's own table. */
  async listening(command: string, port: number): Promise<PeerProcess> {
    const process = this.remote(command);
    const hex = port.toString(16).toUpperCase().padStart(4, '0');
    const until = Date.now() + PATIENCE;
    while (Date.now() < until) {
      const { output } = await this.peer.run(`grep -cE ':${hex} [0-9A-F:]+ 0A' /proc/net/tcp /proc/net/tcp6; true`);
      if (/:[1-9]/.test(output)) return process;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error(`nothing listens on port ${port} of the peer: ${process.output}`);
  }
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
