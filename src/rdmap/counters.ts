/** Counters of a stream, put together when somebody asks: while it runs there are plain additions in sender, receiver and stream only. */
import type { MessageCounters, StreamCounters } from './stream-types.ts';
import { OPCODE } from './wire.ts';

/** Kinds of message that {@link MessageCounters} tells apart, and one for what it leaves out. */
const KIND = { SENDS: 0, WRITES: 1, READS: 2, READ_RESPONSES: 3, IMMEDIATES: 4, ATOMICS: 5, TERMINATES: 6, OTHER: 7 } as const;

function kindOf(opcode: number): number {
  switch (opcode) {
    case OPCODE.RDMA_WRITE:
      return KIND.WRITES;
    case OPCODE.READ_REQUEST:
      return KIND.READS;
    case OPCODE.READ_RESPONSE:
      return KIND.READ_RESPONSES;
    case OPCODE.TERMINATE:
      return KIND.TERMINATES;
    case OPCODE.IMMEDIATE:
    case OPCODE.IMMEDIATE_SE:
      return KIND.IMMEDIATES;
    case OPCODE.ATOMIC_REQUEST:
      return KIND.ATOMICS;
    case OPCODE.ATOMIC_RESPONSE:
      return KIND.OTHER;
    default:
      return KIND.SENDS;
  }
}

const KIND_OF: readonly number[] = Array.from({ length: OPCODE.ATOMIC_RESPONSE + 1 }, (_, opcode) => kindOf(opcode));

/** Where the counts of what was sent begin, after those of what was received. */
const SENT = 8;

/**
 * Messages of a stream by kind, received and sent, all zero. A plain array: a typed one is three objects, and one for both directions costs less
 * than a list for each, by opcode, did.
 */
export function noMessages(): number[] {
  return new Array<number>(2 * SENT).fill(0);
}

export function countReceived(messages: number[], opcode: number): void {
  messages[KIND_OF[opcode]!]!++;
}

export function countSent(messages: number[], opcode: number): void {
  messages[SENT + KIND_OF[opcode]!]!++;
}

const NOTHING: readonly number[] = noMessages();

export function messagesReceived(messages: readonly number[] = NOTHING, from = 0): MessageCounters {
  return {
    sends: messages[from + KIND.SENDS]!,
    writes: messages[from + KIND.WRITES]!,
    reads: messages[from + KIND.READS]!,
    readResponses: messages[from + KIND.READ_RESPONSES]!,
    immediates: messages[from + KIND.IMMEDIATES]!,
    atomics: messages[from + KIND.ATOMICS]!,
    terminates: messages[from + KIND.TERMINATES]!,
  };
}

export function messagesSent(messages?: readonly number[]): MessageCounters {
  return messagesReceived(messages, SENT);
}

/** All zero, to add to. */
export function noCounters(): StreamCounters {
  return {
    fpdusIn: 0, fpdusOut: 0, payloadIn: 0, payloadOut: 0, octetsIn: 0, octetsOut: 0, crcErrors: 0, markerErrors: 0, nudges: 0,
    messagesIn: messagesReceived(), messagesOut: messagesSent(),
  };
}

/** Add `more` to `sum`. */
export function addCounters(sum: StreamCounters, more: StreamCounters): void {
  addNumbers(sum, more);
  addNumbers(sum.messagesIn, more.messagesIn);
  addNumbers(sum.messagesOut, more.messagesOut);
}

function addNumbers<T extends object>(sum: T, more: T): void {
  const into = sum as Record<string, unknown>;
  for (const [name, value] of Object.entries(more)) {
    if (typeof value === 'number') into[name] = (into[name] as number) + value;
  }
}
