/** Small words that the verbs tests share. */
import { expect } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { ACCESS, type AsyncEvent, type QueuePair, type WorkCompletion } from '../../src/verbs/index.ts';
import { connectedPair, type Pair, type PairOptions } from '../support/pair.ts';

export const LOCAL_WRITE: number = ACCESS.LOCAL_WRITE;
export const REMOTE_READ: number = ACCESS.REMOTE_READ;
export const REMOTE_WRITE: number = ACCESS.REMOTE_WRITE;
export const REMOTE_ATOMIC: number = ACCESS.REMOTE_ATOMIC;
export const MW_BIND: number = ACCESS.MW_BIND;

/** The code that `call` throws; 'nothing' if it does not throw. */
export function codeOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    if (error instanceof IwarpError) return error.code;
    throw error;
  }
  return 'nothing';
}

/** Octets that differ from place to place. */
export function pattern(octets: number, seed = 3): Uint8Array {
  return Uint8Array.from({ length: octets }, (_, i) => (i * 7 + seed) & 0xff);
}

/** `wrId status` of each completion. */
export function outcomes(completions: readonly WorkCompletion[]): string[] {
  return completions.map((wc) => `${wc.wrId} ${wc.status}`);
}

/** The last Terminate that this queue pair has sent or received, as `layer/type/code`. */
export function terminateOf(qp: QueuePair): string | undefined {
  const { terminate } = qp.query();
  return terminate === undefined ? undefined : shortCode(terminate);
}

function shortCode(t: { readonly layer: number; readonly type: number; readonly code: number }): string {
  return `${t.layer}/${t.type}/${t.code.toString(16).padStart(2, '0')}`;
}

/** Types of asynchronous events, in order. */
export function eventTypes(events: readonly AsyncEvent[]): string[] {
  return events.map((event) => event.type);
}

/** The Terminate that `stimulus` by the client makes the server send. */
export async function serverTerminate(
  stimulus: (pair: Pair) => void,
  options: PairOptions = {},
): Promise<string | undefined> {
  const pair = await connectedPair(options);
  stimulus(pair);
  pair.run();
  expect(pair.client.events.some((event) => event.type === 'disconnected')).toBe(true);
  const ours = pair.server.asyncEvents.find((event) => event.type === 'terminate-sent');
  return ours?.type === 'terminate-sent' ? shortCode(ours.terminate) : undefined;
}

/** A second connection between the same two sides; returns its two queue pairs. */
export function secondConnection(
  pair: Pair,
  client: QueuePair = pair.client.createQp(),
  server: QueuePair = pair.server.createQp(),
): { client: QueuePair; server: QueuePair } {
  pair.client.qp = client;
  pair.server.qp = server;
  pair.connectClient();
  pair.run();
  expect([client.state, server.state]).toEqual(['rts', 'rts']);
  return { client, server };
}
