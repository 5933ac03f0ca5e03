// Profile `self`: a peer that speaks the tester protocol. Without an address it is our own stack in this
// process.

import type { Connection } from '../probe/connection.ts';
import { check, sameBytes } from '../probe/deviation.ts';
import type { EndpointOptions, Operations, TesterPort } from './protocol.ts';
import { fromHex } from './protocol.ts';
import { RemoteTester, Tester } from './tester.ts';
import type { Region } from './tester.ts';
import type { Address, Capability, Profile, Session, SessionOptions } from './types.ts';

interface SelfOptions {
  /** Where the tester protocol is spoken; absent for our own stack in this process. */
  readonly control?: Address | undefined;
  /** A tester in this process; by default that of our stack. */
  readonly tester?: TesterPort | undefined;
  /** Milliseconds for the tester's answers; {@link CONTROL_MS} when absent. */
  readonly limit?: number | undefined;
  /** Where the probe listens and the target listens. */
  readonly host?: string | undefined;
  readonly port?: number | undefined;
}

/** Time for an answer of the tester: a machine that is so busy cannot be tested. */
export const CONTROL_MS = 15_000;

/** Open the profile and ask the tester what it can do. @throws TesterLost when it does not say */
export async function openSelf(options: SelfOptions = {}): Promise<Profile> {
  const port = await openPort(options);
  const hello = await greet(port);
  const capabilities = new Set<Capability>(['region', 'send', 'tester']);
  if (hello.extensions) capabilities.add('extensions');
  if (hello.firstMsn) capabilities.add('first-msn');
  const host = options.host ?? '127.0.0.1';
  return {
    name: 'self',
    capabilities,
    roles: ['initiator', 'responder'],
    listen: { host, port: options.port ?? 0 },
    description:
      options.control === undefined
        ? `${hello.name}, in this process`
        : `${hello.name}, tester at ${options.control.host}:${options.control.port}`,
    begin: (session) => SelfSession.begin(port, options.control?.host ?? host, session),
    lost: () => (port instanceof RemoteTester ? port.lost : null),
    close: async () => port.close(),
  };
}

async function greet(port: TesterPort): Promise<Operations['hello']['answer']> {
  try {
    return await port.call('hello', {});
  } catch (error) {
    port.close();
    throw error;
  }
}

async function openPort({ control, tester, limit = CONTROL_MS }: SelfOptions): Promise<TesterPort> {
  if (tester !== undefined) return tester;
  if (control !== undefined) return RemoteTester.open(control.host, control.port, limit);
  // Loaded on demand: against another implementation our stack does not run.
  return ownStack();
}

/** Our stack comes from the package `iwarp`, which a tester of another stack need not have. */
async function ownStack(): Promise<TesterPort> {
  try {
    const { SelfTarget } = await import('./self-target.ts');
    return new SelfTarget();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ERR_MODULE_NOT_FOUND' && code !== 'ERR_PACKAGE_PATH_NOT_EXPORTED') throw error;
    throw new Error(
      'without --control it tries the package iwarp, which is not installed: npm install iwarp, or ' +
        'name a peer',
      { cause: error },
    );
  }
}

class SelfSession implements Session {
  readonly address: Address | null;
  readonly tester: Tester;
  readonly #options: EndpointOptions;

  private constructor(tester: Tester, address: Address | null, options: EndpointOptions) {
    this.tester = tester;
    this.address = address;
    this.#options = options;
  }

  static async begin(
    port: TesterPort,
    host: string,
    { role, setup, limits, seed }: SessionOptions,
  ): Promise<SelfSession> {
    await port.call('reset', { seed });
    const tester = new Tester(port, limits.reaction);
    if (role === 'responder') return new SelfSession(tester, null, setup);
    const listening = await tester.listen(host, setup);
    tester.endpoint = listening.endpoint;
    return new SelfSession(tester, { host, port: listening.port }, setup);
  }

  async invite(address: Address): Promise<void> {
    this.tester.endpoint = await this.tester.connect(address.host, address.port, this.#options);
  }

  async established(): Promise<void> {
    // Nothing comes unasked.
  }

  async region(_connection: Connection, length: number): Promise<Region> {
    return this.tester.region({ length });
  }

  get receiveSize(): number {
    return this.#options.receiveSize ?? 4096;
  }

  acceptableSend(): Uint8Array {
    return Uint8Array.from({ length: 16 }, (_, i) => 0x40 + i);
  }

  async delivered(_connection: Connection, payload: Uint8Array): Promise<void> {
    const [completion] = await this.tester.received(1);
    check(completion !== undefined, 'a receive completion', 'none in time');
    sameBytes('the received message', fromHex(completion.data), payload);
  }

  async close(): Promise<void> {
    // The next `reset` forgets everything; the last one's connections end with the process or the tester.
  }
}
