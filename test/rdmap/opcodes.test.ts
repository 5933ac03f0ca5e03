// The table of opcodes: the rows that CONTRIBUTING.md, "an opcode", asks for fit each other.
import { expect, it } from 'vitest';
import { QN } from '../../src/ddp/wire.ts';
import { DELIVERY, OPCODE, OPCODE_TABLE } from '../../src/rdmap/wire.ts';

it('each opcode has its row', () => {
  const numbers = Object.values(OPCODE);
  expect(numbers).toEqual(numbers.map((_, i) => i));
  expect(OPCODE_TABLE).toHaveLength(numbers.length);
});

it('a message of queue 0 takes a receive, so it completes one, and no other message does', () => {
  for (const { name, qn, delivery } of OPCODE_TABLE) {
    const completes = delivery === DELIVERY.RECEIVE || delivery === DELIVERY.IMMEDIATE;
    expect(completes, name).toBe(qn === QN.SEND);
  }
});

it('the eight octets of a completion come in messages of that size alone', () => {
  for (const { name, delivery, fixed } of OPCODE_TABLE)
    if (delivery === DELIVERY.IMMEDIATE) expect([fixed?.least, fixed?.most], name).toEqual([8, 8]);
});

it('an untagged message that is not of queue 0 has a size to be judged by', () => {
  for (const { name, qn, fixed } of OPCODE_TABLE) if (qn > QN.SEND) expect(fixed, name).not.toBeNull();
});
