/** The tables of src/nbd/negotiation.ts: every input in every state. */
import { describe, expect, it } from 'vitest';
import { Machine, type MachineTable } from '../../src/base/fsm.ts';
import { CLIENT_NEGOTIATION_TABLE, SERVER_NEGOTIATION_TABLE } from '../../src/nbd/negotiation.ts';

function check<S extends string, I extends string>(table: MachineTable<S, I>): void {
  const states = Object.keys(table.transitions) as S[];
  const rows = states.map((state) => table.transitions[state] as Readonly<Partial<Record<I, S>>>);
  const inputs = [...new Set(rows.flatMap((row) => Object.keys(row) as I[]))];

  it.each(states)('from %s, a listed input leads where the table says and another one throws', (state) => {
    for (const input of inputs) {
      const machine = new Machine({ ...table, initial: state });
      const to = table.transitions[state][input];
      if (to === undefined) expect(() => machine.step(input)).toThrow(/not listed/);
      else expect(machine.step(input)).toBe(to);
    }
  });

  it('every state is reached from the initial one, and leads to closed', () => {
    const reach = (from: S, seen = new Set<S>([from])): Set<S> => {
      for (const to of Object.values<S>(table.transitions[from] as Record<string, S>))
        if (!seen.has(to)) reach(to, seen.add(to));
      return seen;
    };
    expect([...reach(table.initial)].sort()).toEqual([...states].sort());
    for (const state of states) expect(reach(state)).toContain('closed');
  });
}

describe('the server table', () => check(SERVER_NEGOTIATION_TABLE));
describe('the client table', () => check(CLIENT_NEGOTIATION_TABLE));
