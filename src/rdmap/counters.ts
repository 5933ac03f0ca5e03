/**
 * Counters of a stream, put together on request: while it runs there are plain additions in sender, receiver
 * and stream
 * only.
 */
import type { StreamCounters } from '../stream/types.ts';
import { COUNTERS, type MessageCounters } from './message-counters.ts';
import { OPCODE_TABLE } from './wire.ts';

/** The place of messages that no counter shows. */
const OTHER = COUNTERS.length;

/** The place of each opcode's counter. */
const PLACE_OF: readonly number[] = OPCODE_TABLE.map(({ counter }) =>
  counter === null ? OTHER : COUNTERS.indexOf(counter),
);

/** Where the counts of messages sent begin, after those of messages received. */
const SENT = OTHER + 1;

/**
 * Messages of a stream by kind, received and sent, all zero. A plain array: a typed one is three objects, and
 * one for both directions costs idle connections less than a list for each, by opcode, did
 * (`iwarp bench idle`). It is empty until the first message: a connection that carries none has no counters.
 */
export function noMessages(): number[] {
  return [];
}

function begin(messages: number[]): void {
  for (let place = 0; place < 2 * SENT; place++) messages.push(0);
}

export function countReceived(messages: number[], opcode: number): void {
  if (messages.length === 0) begin(messages);
  messages[PLACE_OF[opcode]!]!++;
}

export function countSent(messages: number[], opcode: number): void {
  if (messages.length === 0) begin(messages);
  messages[SENT + PLACE_OF[opcode]!]!++;
}

const NOTHING: readonly number[] = noMessages();

export function messagesReceived(messages: readonly number[] = NOTHING, from = 0): MessageCounters {
  const at = (name: keyof MessageCounters): number => messages[from + COUNTERS.indexOf(name)] ?? 0;
  return {
    sends: at('sends'),
    writes: at('writes'),
    reads: at('reads'),
    readResponses: at('readResponses'),
    immediates: at('immediates'),
    atomics: at('atomics'),
    terminates: at('terminates'),
  };
}

export function messagesSent(messages?: readonly number[]): MessageCounters {
  return messagesReceived(messages, SENT);
}

/** All zero, to add to. */
export function noCounters(): StreamCounters {
  return {
    fpdusIn: 0,
    fpdusOut: 0,
    payloadIn: 0,
    payloadOut: 0,
    octetsIn: 0,
    octetsOut: 0,
    crcErrors: 0,
    markerErrors: 0,
    nudges: 0,
    messagesIn: messagesReceived(),
    messagesOut: messagesSent(),
  };
}

/** Add `more` to `sum`, name by name: every connection ends with it, and a loop over names is slow. */
export function addCounters(sum: StreamCounters, more: StreamCounters): void {
  sum.fpdusIn += more.fpdusIn;
  sum.fpdusOut += more.fpdusOut;
  sum.payloadIn += more.payloadIn;
  sum.payloadOut += more.payloadOut;
  sum.octetsIn += more.octetsIn;
  sum.octetsOut += more.octetsOut;
  sum.crcErrors += more.crcErrors;
  sum.markerErrors += more.markerErrors;
  sum.nudges += more.nudges;
  addMessages(sum.messagesIn, more.messagesIn);
  addMessages(sum.messagesOut, more.messagesOut);
}

function addMessages(sum: MessageCounters, more: MessageCounters): void {
  sum.sends += more.sends;
  sum.writes += more.writes;
  sum.reads += more.reads;
  sum.readResponses += more.readResponses;
  sum.immediates += more.immediates;
  sum.atomics += more.atomics;
  sum.terminates += more.terminates;
}
