import { expect, it } from 'vitest';
import { nextState } from '../../src/base/fsm.ts';
import { TRP_TABLE, type TrpInput, type TrpState } from '../../src/trp/states.ts';

it('every input in every state leads where the table says, or throws', () => {
  const states = Object.keys(TRP_TABLE.transitions) as TrpState[];
  const inputs = [
    ...new Set(states.flatMap((state) => Object.keys(TRP_TABLE.transitions[state]))),
  ] as TrpInput[];
  expect(states).toHaveLength(8);
  expect(inputs).toHaveLength(8);
  for (const state of states)
    for (const input of inputs) {
      const to = TRP_TABLE.transitions[state][input];
      const step = (): TrpState => nextState(TRP_TABLE, state, input, {});
      if (to === undefined) expect(step).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
      else expect(step()).toBe(to);
    }
});

it('each state but the last can be left by the end of the socket', () => {
  for (const [state, row] of Object.entries(TRP_TABLE.transitions))
    if (state !== 'closed') expect(row.gone).toBe('closed');
});
