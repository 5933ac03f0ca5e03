// Profile `command`: any program that the user starts, or that is started here for each case. Nothing is
// known about it but that it speaks MPA: cases that need memory, receives or a tester are left out.

import { spawn } from 'node:child_process';
import { Inapplicable } from '../probe/deviation.ts';
import type { Address, Capability, Profile, Session, SessionOptions } from './types.ts';
import type { Region } from './tester.ts';

interface CommandOptions {
  readonly target?: Address | undefined;
  readonly listen: Address;
  /** Shell command run for each case; `{host}` and `{port}` name the probe's or the target's address. */
  readonly start?: string | undefined;
}

/** A program that was started, and how to end it. */
export interface Started {
  stop(): Promise<void>;
}

/** Start a command with `{host}` and `{port}` filled in. */
export function startCommand(command: string, { host, port }: Address): Started {
  const text = command.replaceAll('{host}', host).replaceAll('{port}', String(port));
  const child = spawn('sh', ['-c', `exec ${text}`], { stdio: 'ignore' });
  const gone = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', () => resolve());
  });
  return {
    stop: async () => {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
      await gone;
    },
  };
}

export function openCommand(options: CommandOptions): Profile {
  return {
    name: 'command',
    capabilities: new Set<Capability>(),
    roles: ['initiator', 'responder'],
    listen: options.listen,
    description:
      options.start ??
      (options.target === undefined
        ? 'a program that connects'
        : `a program at ${options.target.host}:${options.target.port}`),
    begin: async (session) => new CommandSession(options, session),
    close: async () => undefined,
  };
}

class CommandSession implements Session {
  readonly address: Address | null;
  readonly tester = null;
  readonly strangeProgram = true;
  readonly receiveSize = 0;
  readonly #start: string | undefined;
  #started: Started | null = null;

  constructor(options: CommandOptions, { role }: SessionOptions) {
    this.address = role === 'initiator' ? (options.target ?? null) : null;
    this.#start = options.start;
  }

  async invite(address: Address): Promise<void> {
    if (this.#start !== undefined) this.#started = startCommand(this.#start, address);
  }

  async established(): Promise<void> {
    // Nothing is known about the peer's messages.
  }

  async region(): Promise<Region> {
    throw new Inapplicable('this profile knows no memory of the peer');
  }

  acceptableSend(): Uint8Array {
    return new Uint8Array(0);
  }

  async delivered(): Promise<void> {
    throw new Inapplicable('this profile cannot see what the peer receives');
  }

  async close(): Promise<void> {
    await this.#started?.stop();
  }
}
