/** What each message counts as, in either direction, and how counters are added up. */
import { describe, expect, it } from 'vitest';
import {
  addCounters,
  countReceived,
  countSent,
  messagesReceived,
  messagesSent,
  noCounters,
  noMessages,
} from '../../src/rdmap/counters.ts';
import { OP } from './scripted.ts';

const COUNTER_OF = {
  write: 'writes',
  readRequest: 'reads',
  readResponse: 'readResponses',
  send: 'sends',
  sendInv: 'sends',
  sendSe: 'sends',
  sendSeInv: 'sends',
  terminate: 'terminates',
  imm: 'immediates',
  immSe: 'immediates',
  atomicRequest: 'atomics',
  atomicResponse: null,
} as const;

const NONE = {
  sends: 0,
  writes: 0,
  reads: 0,
  readResponses: 0,
  immediates: 0,
  atomics: 0,
  terminates: 0,
};

describe('the counter of a message', () => {
  for (const [name, counter] of Object.entries(COUNTER_OF)) {
    it(`${name}: ${counter ?? 'none'}, received or sent`, () => {
      const opcode = OP[name as keyof typeof OP];
      const counted = (n: number): object => (counter === null ? NONE : { ...NONE, [counter]: n });
      const messages = noMessages();
      countReceived(messages, opcode);
      countReceived(messages, opcode);
      expect([messagesReceived(messages), messagesSent(messages)]).toEqual([counted(2), NONE]);
      countSent(messages, opcode);
      expect([messagesReceived(messages), messagesSent(messages)]).toEqual([counted(2), counted(1)]);
    });
  }

  it('is zero where there is no stream', () => {
    expect([messagesReceived(), messagesSent()]).toEqual([NONE, NONE]);
  });
});

describe('counters', () => {
  it('are added field by field, messages of both directions included', () => {
    const sum = noCounters();
    const one = noCounters();
    const numbers = one as unknown as Record<string, number | object>;
    for (const [i, name] of Object.keys(one).entries())
      if (typeof numbers[name] === 'number') numbers[name] = i + 1;
    Object.assign(one.messagesIn, { sends: 3, terminates: 1 });
    Object.assign(one.messagesOut, { writes: 5 });
    addCounters(sum, one);
    expect(sum).toEqual(one);
    addCounters(sum, one);
    expect(sum.messagesIn).toEqual({ ...NONE, sends: 6, terminates: 2 });
    expect(sum.messagesOut).toEqual({ ...NONE, writes: 10 });
    for (const [name, value] of Object.entries(one))
      if (typeof value === 'number') expect(sum[name as 'fpdusIn'], name).toBe(2 * value);
  });
});
