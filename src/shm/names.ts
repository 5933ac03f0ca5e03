/**
 * How two threads of a process find each other by a name. A thread that listens answers on a BroadcastChannel
 * of the process; the connection's MessagePort then goes to it by `postMessageToThread`, for which Node needs
 * a turn of the main thread's event loop if neither of the two is that thread.
 *
 * Whatever comes from another thread is checked: any code of the process can send these messages.
 */
// Held here, as in `transport/busy-poll.ts`.
import { clearTimeout, setTimeout } from 'node:timers';
import * as threads from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import { systemRandom } from '../base/random.ts';
import { realScheduler } from '../transport/scheduler.ts';

/** The name of the BroadcastChannel, with the version of its messages. */
const CHANNEL = 'iwarp shm 1';
/** How long an answer may take before nobody has the name. */
const FIND_MS = 2_000;
/** How long a thread that has the name already may take to say so. */
const CLAIM_MS = 250;

/** A connection that a thread asks for. */
export interface Hello {
  readonly iwarp: typeof CHANNEL;
  /** What it asks for. */
  readonly name: string;
  /** The host that was named with it; empty for a name alone. */
  readonly host: string;
  /** The side that connects: its address, empty for none, and its port. */
  readonly address: string;
  readonly port: number;
  readonly incoming: SharedArrayBuffer;
  readonly outgoing: SharedArrayBuffer;
  readonly channel: MessagePort;
}

/** Takes a connection that was asked for. */
export type HelloTaker = (hello: Hello) => void;

/** News on the channel: a question for a name, and the answer of its thread. */
type News =
  | { readonly ask: string; readonly id: number }
  | { readonly found: number; readonly thread: number };

type PostToThread = (thread: number, value: unknown, transfer: readonly unknown[]) => Promise<void>;
const { postMessageToThread } = threads as { readonly postMessageToThread?: PostToThread };

/** What this thread listens for. */
const takers = new Map<string, HelloTaker>();
/** Questions of this thread that wait for an answer. */
const asked = new Map<number, (thread: number) => void>();
let channel: threads.BroadcastChannel | null = null;
/** Listeners that hold the process. */
let held = 0;

/** Whether a value is a message as this module sends them. */
export function isHello(value: unknown): value is Hello {
  if (typeof value !== 'object' || value === null) return false;
  const { iwarp, name, host, address, port } = value as Partial<Record<keyof Hello, unknown>>;
  return (
    iwarp === CHANNEL &&
    typeof name === 'string' &&
    typeof host === 'string' &&
    typeof address === 'string' &&
    typeof port === 'number' &&
    (value as Partial<Hello>).channel instanceof threads.MessagePort
  );
}

/** The message for a connection. */
export function helloFor(rest: Omit<Hello, 'iwarp'>): Hello {
  return { iwarp: CHANNEL, ...rest };
}

/** Whether this thread listens for the name. */
export function isTaken(name: string): boolean {
  return takers.has(name);
}

/** Listen for a name from now on. */
export function take(name: string, taker: HelloTaker): void {
  takers.set(name, taker);
  openChannel();
}

/** One listener more holds the process, or one less. */
export function hold(on: boolean): void {
  held += on ? 1 : -1;
  refer();
}

/** Only in Node's types can a BroadcastChannel not be asked for this. */
function refer(): void {
  const open = channel as unknown as { ref(): void; unref(): void } | null;
  if (held > 0) open?.ref();
  else open?.unref();
}

/** No longer. */
export function giveBack(name: string): void {
  takers.delete(name);
  closeIdle();
}

/** `result` is called once: whether another thread has the name already. */
export function claim(name: string, result: (free: boolean) => void): void {
  ask(name, CLAIM_MS, (thread) => result(thread === null));
}

/** Send a connection over a MessagePort at whose other end a thread listens, now or later. */
export function sendOver(port: MessagePort, hello: Hello): void {
  port.postMessage(hello, [hello.channel]);
}

/**
 * Send a connection to the listener of its name, in this thread or another. `failed` is called, later, if
 * there is none.
 */
export function send(hello: Hello, failed: (code: string) => void): void {
  const here = takers.get(hello.name);
  if (here !== undefined) {
    realScheduler.defer(() => {
      if (takers.get(hello.name) === here) here(hello);
      else failed('ECONNREFUSED');
    });
    return;
  }
  ask(hello.name, FIND_MS, (thread) => {
    if (thread === null) failed('ECONNREFUSED');
    else if (postMessageToThread === undefined) failed('ENOTSUP');
    else postMessageToThread(thread, hello, [hello.channel]).catch(() => failed('ECONNREFUSED'));
  });
}

function ask(name: string, patience: number, answer: (thread: number | null) => void): void {
  const open = openChannel();
  const id = systemRandom();
  const settle = (thread: number | null): void => {
    if (!asked.delete(id)) return;
    clearTimeout(timer);
    closeIdle();
    answer(thread);
  };
  const timer = setTimeout(() => settle(null), patience);
  asked.set(id, settle);
  open.postMessage({ ask: name, id } satisfies News);
}

function openChannel(): threads.BroadcastChannel {
  if (channel !== null) return channel;
  channel = new threads.BroadcastChannel(CHANNEL);
  const events = channel as unknown as EventTarget;
  events.addEventListener('message', (event) => heard((event as MessageEvent).data));
  refer();
  (process as NodeJS.EventEmitter).on('workerMessage', helloFromThread);
  return channel;
}

function closeIdle(): void {
  if (channel === null || takers.size > 0 || asked.size > 0) return;
  channel.close();
  channel = null;
  (process as NodeJS.EventEmitter).off('workerMessage', helloFromThread);
}

function heard(news: unknown): void {
  if (typeof news !== 'object' || news === null) return;
  const { ask: name, id, found, thread } = news as Readonly<Record<string, unknown>>;
  if (typeof name === 'string' && typeof id === 'number') {
    if (takers.has(name)) channel?.postMessage({ found: id, thread: threads.threadId } satisfies News);
  } else if (typeof found === 'number' && typeof thread === 'number') {
    asked.get(found)?.(thread);
  }
}

function helloFromThread(value: unknown): void {
  if (!isHello(value)) return;
  const taker = takers.get(value.name);
  if (taker === undefined) value.channel.close();
  else taker(value);
}
