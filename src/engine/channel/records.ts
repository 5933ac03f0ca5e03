/**
 * The records that go through the two rings of an engine, and their layout. Frequent things (work requests,
 * completions) are records of a few words; a rare thing is an object on a message port, and a record that
 * marks its place: the reader of the record takes the object from the port. So do work requests that operate
 * on our own memory, and those that are too long for a ring, or reach too far for its words: there the record
 * lies in the object.
 *
 * Towards the engine: work requests, markers of commands, fences. Towards the application's thread:
 * completions, markers of events.
 */
import { copyBytes } from '../../base/copy.ts';
import { distance, hi32 } from '../../base/u64.ts';
import { SEND_OPCODES, WC_STATUSES, type WcOpcode, type WcStatus } from '../../queues/completion.ts';
import {
  IMMEDIATE,
  WORK,
  type ReceiveQueue,
  type ReceiveWqe,
  type SendQueue,
  type SendWqe,
  type SgeList,
} from '../../queues/work.ts';
import { operationState, type Command } from './messages.ts';
import type { Outbox } from './outbox.ts';
import type { RecordMemory } from './ring.ts';

/** Types of the records towards the engine. */
export const TO_ENGINE = {
  SEND: 1,
  RECEIVE: 2,
  SHARED_RECEIVE: 3,
  COMMAND: 4,
  FENCE: 5,
  COUNTERS: 6,
} as const;
/** Types of the records from the engine. */
export const FROM_ENGINE = { SENT: 1, TAKEN: 2, RECEIVED: 3, EVENT: 4, ARRIVED: 5, ADVANCED: 6 } as const;

const OPCODE_NUMBERS: ReadonlyMap<WcOpcode, number> = new Map(SEND_OPCODES.map((opcode, i) => [opcode, i]));

/** Bits of the third word of a send record. */
const KIND_MASK = 7;
const OPCODE_SHIFT = 3;
const WIRE_SHIFT = 7;
const FENCE_BIT = 1 << 12;
const SOLICITED_BIT = 1 << 13;
const IMMEDIATE_SHIFT = 14;
const INLINE_BIT = 1 << 16;
const FOUR_BITS = 15;

const SEND_WORDS = 6;
const OPERAND_WORDS = 8;
/** STag, both halves of the offset, which may be beyond 4 GiB of the memory, length. */
const SGE_WORDS = 4;
const RECEIVE_WORDS = 2;

/** Finds the regions that elements name. */
export interface Elements {
  /** Add an element of `length` bytes from `offset` of the region with this STag. */
  add(sges: SgeList, stag: number, offset: number, length: number): void;
}

/** An Atomic, or Immediate Data alone or after a Write. */
const hasOperands = ({ kind, immediate }: SendWqe): boolean =>
  kind === WORK.ATOMIC || immediate !== IMMEDIATE.NONE;

const isInline = ({ sges }: SendWqe): boolean => sges.count > 0 && sges.first.entry === null;

/** Hand a send-side request on; false if the ring has no room. */
export function putSend(outbox: Outbox, link: number, wqe: SendWqe): boolean {
  const { ring } = outbox;
  const { sges } = wqe;
  const payload = isInline(wqe) ? 1 + ((sges.total + 3) >> 2) : sges.count * SGE_WORDS;
  const words = SEND_WORDS + (hasOperands(wqe) ? OPERAND_WORDS : 0) + payload;
  if (wqe.local !== null || words > ring.maxRecord) {
    const record = memoryFor(TO_ENGINE.SEND, words);
    writeSend(record, 0, link, wqe);
    putObject(outbox, {
      type: 'record',
      words: record.words,
      operation: wqe.local === null ? null : operationState(wqe.local.operation),
    });
    return true;
  }
  const at = ring.begin(TO_ENGINE.SEND, words);
  if (at < 0) return false;
  writeSend(ring, at, link, wqe);
  return true;
}

/** Hand a receive of a queue pair, or of a shared queue, on; false if the ring has no room. */
export function putReceive(outbox: Outbox, type: number, queue: number, wqe: ReceiveWqe): boolean {
  const { ring } = outbox;
  const words = RECEIVE_WORDS + wqe.sges.count * SGE_WORDS;
  if (words > ring.maxRecord) {
    const record = memoryFor(type, words);
    writeReceive(record, 0, queue, wqe);
    putObject(outbox, { type: 'record', words: record.words, operation: null });
    return true;
  }
  const at = ring.begin(type, words);
  if (at < 0) return false;
  writeReceive(ring, at, queue, wqe);
  return true;
}

/** For a record that goes as an object; its first word is the type alone. */
function memoryFor(type: number, count: number): RecordMemory {
  const words = new Int32Array(count);
  words[0] = type;
  return { words, bytes: new Uint8Array(words.buffer) };
}

function putObject(outbox: Outbox, command: Command): void {
  outbox.send(TO_ENGINE.COMMAND, command);
}

function writeSend(memory: RecordMemory, at: number, link: number, wqe: SendWqe): void {
  const { sges } = wqe;
  const inline = isInline(wqe);
  const { words } = memory;
  words[at + 1] = link;
  words[at + 2] =
    wqe.kind |
    (OPCODE_NUMBERS.get(wqe.opcode)! << OPCODE_SHIFT) |
    (wqe.wireOpcode << WIRE_SHIFT) |
    (wqe.fence ? FENCE_BIT : 0) |
    (wqe.solicited ? SOLICITED_BIT : 0) |
    (wqe.immediate << IMMEDIATE_SHIFT) |
    (inline ? INLINE_BIT : 0);
  words[at + 3] = wqe.stag;
  words[at + 4] = wqe.toHi;
  words[at + 5] = wqe.toLo;
  let next = at + SEND_WORDS;
  if (hasOperands(wqe)) {
    const { operands } = wqe;
    words[next] = operands.dataHi;
    words[next + 1] = operands.dataLo;
    words[next + 2] = operands.maskHi;
    words[next + 3] = operands.maskLo;
    words[next + 4] = operands.compareHi;
    words[next + 5] = operands.compareLo;
    words[next + 6] = operands.compareMaskHi;
    words[next + 7] = operands.compareMaskLo;
    next += OPERAND_WORDS;
  }
  if (!inline) {
    writeElements(words, next, sges);
    return;
  }
  words[next] = sges.total;
  copyBytes(sges.first.bytes, sges.first.offset, memory.bytes, (next + 1) << 2, sges.total);
}

function writeReceive({ words }: RecordMemory, at: number, queue: number, { sges }: ReceiveWqe): void {
  words[at + 1] = queue;
  writeElements(words, at + RECEIVE_WORDS, sges);
}

function writeElements(words: Int32Array, at: number, sges: SgeList): void {
  for (let i = 0; i < sges.count; i++, at += SGE_WORDS) {
    const { length, offset, lkey } = sges.at(i);
    const from = length === 0 ? 0 : offset; // where nothing is used any offset will do
    words[at] = lkey;
    words[at + 1] = hi32(from);
    words[at + 2] = from;
    words[at + 3] = length;
  }
}

function readElements(words: Int32Array, at: number, end: number, sges: SgeList, elements: Elements): void {
  for (; at < end; at += SGE_WORDS) {
    elements.add(
      sges,
      words[at]! >>> 0,
      distance(words[at + 1]!, words[at + 2]! >>> 0, 0, 0),
      words[at + 3]! >>> 0,
    );
  }
}

/** Read a send-side request, `words[at..end)`, into the queue; returns the entry. */
export function readSend(
  memory: RecordMemory,
  at: number,
  end: number,
  queue: SendQueue,
  elements: Elements,
): SendWqe {
  const { words } = memory;
  const wqe = queue.peekFree()!;
  const bits = words[at + 2]!;
  wqe.kind = bits & KIND_MASK;
  wqe.opcode = SEND_OPCODES[(bits >> OPCODE_SHIFT) & FOUR_BITS]!;
  wqe.wireOpcode = (bits >> WIRE_SHIFT) & FOUR_BITS;
  wqe.fence = (bits & FENCE_BIT) !== 0;
  wqe.solicited = (bits & SOLICITED_BIT) !== 0;
  wqe.immediate = (bits >> IMMEDIATE_SHIFT) & 3;
  wqe.stag = words[at + 3]!;
  wqe.toHi = words[at + 4]!;
  wqe.toLo = words[at + 5]!;
  let next = at + SEND_WORDS;
  if (hasOperands(wqe)) {
    const { operands } = wqe;
    operands.dataHi = words[next]! >>> 0;
    operands.dataLo = words[next + 1]! >>> 0;
    operands.maskHi = words[next + 2]! >>> 0;
    operands.maskLo = words[next + 3]! >>> 0;
    operands.compareHi = words[next + 4]! >>> 0;
    operands.compareLo = words[next + 5]! >>> 0;
    operands.compareMaskHi = words[next + 6]! >>> 0;
    operands.compareMaskLo = words[next + 7]! >>> 0;
    next += OPERAND_WORDS;
  }
  if ((bits & INLINE_BIT) === 0) {
    readElements(words, next, end, wqe.sges, elements);
  } else {
    const length = words[next]!;
    const inline = wqe.inlineMemory(length);
    copyBytes(memory.bytes, (next + 1) << 2, inline, 0, length);
    wqe.sges.add(null, inline, 0, length);
  }
  queue.push();
  return wqe;
}

/** Read a receive, `words[at..end)`, into the queue. */
export function readReceive(
  { words }: RecordMemory,
  at: number,
  end: number,
  queue: ReceiveQueue,
  elements: Elements,
): void {
  const wqe = queue.peekFree()!;
  readElements(words, at + RECEIVE_WORDS, end, wqe.sges, elements);
  queue.push();
}

/** Bits of the flags of a received record. */
export const RECEIVED = { STATUS: 0xff, TAKEN: 0x100, SOLICITED: 0x200, IMMEDIATE: 0x400 } as const;
/**
 * Words after the type in the records from the engine: connection, status, how many; connection; connection,
 * how far back; connection, flags, length, STag, Immediate Data.
 */
export const SENT_WORDS = 3;
export const TAKEN_WORDS = 1;
export const ADVANCED_WORDS = 2;
export const RECEIVED_WORDS = 6;
export const NUMBER_OF_STATUS: ReadonlyMap<WcStatus, number> = new Map(
  WC_STATUSES.map((status, i) => [status, i]),
);
