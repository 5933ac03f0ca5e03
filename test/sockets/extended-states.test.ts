// The table of an extended socket: every input in every state.
import { expect, it } from 'vitest';
import { Machine } from '../../src/base/fsm.ts';
import { EXTENDED_INPUTS, EXTENDED_STATES, EXTENDED_TABLE } from '../../src/sockets/extended/states.ts';

it.each(EXTENDED_STATES)(
  'from %s, a listed input leads where the table says and another one throws',
  (state) => {
    for (const input of EXTENDED_INPUTS) {
      const machine = new Machine({ ...EXTENDED_TABLE, initial: state });
      const to = EXTENDED_TABLE.transitions[state][input];
      if (to === undefined) expect(() => machine.step(input)).toThrow(/not listed/);
      else expect(machine.step(input)).toBe(to);
    }
  },
);
