/** Counters of a stream, put together when somebody asks: while it runs there are plain additions in sender, receiver and stream only. */
import type { MessageCounters, StreamCounters } from './stream-types.ts';
import { OPCODE } from './wire.ts';

/** Counts by opcode, all zero. A plain array: a typed one is three objects, and costs more than what it holds. */
export function noMessages(): number[] {
  return new Array<number>(OPCODE.ATOMIC_RESPONSE + 1).fill(0);
}

const NOTHING: readonly number[] = noMessages();

/** Counts by opcode, as {@link MessageCounters}. */
export function messageCounters(byOpcode: readonly number[] = NOTHING): MessageCounters {
  const of = (...opcodes: number[]): number => opcodes.reduce((sum, opcode) => sum + byOpcode[opcode]!, 0);
  return {
    sends: of(OPCODE.SEND, OPCODE.SEND_INVALIDATE, OPCODE.SEND_SE, OPCODE.SEND_SE_INVALIDATE),
    writes: of(OPCODE.RDMA_WRITE),
    reads: of(OPCODE.READ_REQUEST),
    readResponses: of(OPCODE.READ_RESPONSE),
    immediates: of(OPCODE.IMMEDIATE, OPCODE.IMMEDIATE_SE),
    atomics: of(OPCODE.ATOMIC_REQUEST),
    terminates: of(OPCODE.TERMINATE),
  };
}

/** All zero, to add to. */
export function noCounters(): StreamCounters {
  return {
    fpdusIn: 0, fpdusOut: 0, payloadIn: 0, payloadOut: 0, octetsIn: 0, octetsOut: 0, crcErrors: 0, markerErrors: 0, nudges: 0,
    messagesIn: messageCounters(), messagesOut: messageCounters(),
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
