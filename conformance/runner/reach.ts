// The gate: one lawful start-up before the first case, so that an address without an answer, or with a peer
// that speaks another protocol, costs seconds and one line instead of hours and a failure for every case.

import type { Listener } from '../probe/channel.ts';
import { joinAll } from '../probe/connection.ts';
import type { Role } from '../probe/connection.ts';
import { Deviation, NotConnected, brief } from '../probe/deviation.ts';
import { createRandom } from '../probe/random.ts';
import { Trial } from '../probe/trial.ts';
import type { StartupChoice } from '../probe/trial.ts';
import { REPLY_KEY, REQUEST_KEY } from '../probe/wire.ts';
import type { Session } from '../profiles/types.ts';
import { limitsFor } from './runner.ts';
import type { RunOptions } from './runner.ts';

/** For the peer's own end after ours, which is not judged here. */
const END_MS = 1000;

interface ReachOptions extends Pick<RunOptions, 'profile' | 'slow' | 'settle' | 'seed' | 'quirks'> {
  readonly role: Role;
  readonly listener: Listener | null;
  /** Milliseconds for a peer to connect; as long as in a case when absent. */
  readonly patience?: number;
}

/**
 * The lawful start-up that the peer takes, or makes: one with the enhancements of RFC 6581, one without, or
 * neither.
 */
export type Reached =
  | { readonly kind: 'enhanced' | 'plain' }
  | { readonly kind: 'not'; readonly words: string };

export async function reach(options: ReachOptions): Promise<Reached> {
  const first = await startUp(options, { revision: 2 });
  if (first.kind !== 'not' || options.role === 'responder' || !first.connected) return first;
  const second = await startUp(options, { revision: 1 });
  return second.kind === 'not' ? first : second;
}

type Attempt =
  | { readonly kind: 'enhanced' | 'plain' }
  | { readonly kind: 'not'; readonly words: string; readonly connected: boolean };

async function startUp(
  { profile, slow, settle, seed, quirks, role, listener, patience }: ReachOptions,
  choice: StartupChoice,
): Promise<Attempt> {
  const usual = limitsFor(slow, settle);
  const limits = { ...usual, patience: patience ?? usual.patience };
  let session: Session | null = null;
  let trial: Trial | null = null;
  try {
    session = await profile.begin({ role, setup: {}, limits, seed });
    trial = new Trial({
      role,
      session,
      listener,
      limits,
      strict: false,
      plain: false,
      quirks,
      random: createRandom(seed, 'reach'),
    });
    const connection = await trial.establish(choice);
    const strange = strangeWords(trial);
    if (strange !== null) return { kind: 'not', words: strange, connected: true };
    connection.channel.finish();
    await connection.reaction(END_MS * slow).catch(() => undefined);
    return { kind: connection.request?.enhanced == null ? 'plain' : 'enhanced' };
  } catch (error) {
    return {
      kind: 'not',
      words: (trial === null ? null : strangeWords(trial)) ?? wordsOf(error),
      connected: !(error instanceof NotConnected),
    };
  } finally {
    for (const connection of trial?.connections ?? []) connection.channel.destroy();
    await session?.close().catch(() => undefined);
  }
}

function wordsOf(error: unknown): string {
  if (error instanceof Deviation) return `expected ${error.expected}; got ${error.actual}`;
  return error instanceof Error ? error.message : String(error);
}

/** The peer's first octets, if they are no start-up frame. */
function strangeWords(trial: Trial): string | null {
  const heard = joinAll(
    trial.capture.filter(({ from, kind }) => from === 'peer' && kind === 'data').map(({ bytes }) => bytes),
  );
  const [name, key] =
    trial.role === 'initiator' ? (['Reply', REPLY_KEY] as const) : (['Request', REQUEST_KEY] as const);
  if (
    heard.length === 0 ||
    Buffer.compare(heard.subarray(0, key.length), key.subarray(0, heard.length)) === 0
  )
    return null;
  return `the peer says ${shown(heard)}, which is no MPA ${name}`;
}

/** Text protocols are known by their first words. */
function shown(octets: Uint8Array): string {
  const ENOUGH = 8;
  const MOST = 40;
  const [text = ''] = /^[\t\r\n -~]*/.exec(Buffer.from(octets.subarray(0, MOST)).toString('latin1')) ?? [];
  return text.length >= Math.min(ENOUGH, octets.length) ? JSON.stringify(text) : brief(octets);
}
