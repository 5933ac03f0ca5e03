// The table of a shared socket: every input in every state.
import { expect, it } from 'vitest';
import { Machine } from '../../src/base/fsm.ts';
import { SHARED_INPUTS, SHARED_STATES, SHARED_TABLE } from '../../src/shared/states.ts';

it.each(SHARED_STATES)(
  'from %s, a listed input leads where the table says and another one throws',
  (state) => {
    for (const input of SHARED_INPUTS) {
      const machine = new Machine({ ...SHARED_TABLE, initial: state });
      const to = SHARED_TABLE.transitions[state][input];
      if (to === undefined) expect(() => machine.step(input)).toThrow(/not listed/);
      else expect(machine.step(input)).toBe(to);
    }
  },
);
