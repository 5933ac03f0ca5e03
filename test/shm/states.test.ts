/** The table of a connection over shared memory: every input in every state. */
import { expect, it } from 'vitest';
import { nextState } from '../../src/base/fsm.ts';
import { SHM_TABLE, type ShmInput, type ShmState } from '../../src/shm/states.ts';

const states = Object.keys(SHM_TABLE.transitions) as ShmState[];
const inputs: readonly ShmInput[] = ['fin', 'peer-fin', 'over'];

it('leads where it says, and nowhere else', () => {
  for (const state of states)
    for (const input of inputs) {
      const to = SHM_TABLE.transitions[state][input];
      const step = (): ShmState => nextState(SHM_TABLE, state, input, {});
      if (to === undefined) expect(step).toThrow(/is not listed/);
      else expect(step()).toBe(to);
    }
});

it('ends after both directions, in whichever order, and from every state', () => {
  const after = (...steps: ShmInput[]): ShmState =>
    steps.reduce<ShmState>((state, input) => nextState(SHM_TABLE, state, input, {}), SHM_TABLE.initial);
  expect(after('fin', 'peer-fin')).toBe('both-ended');
  expect(after('peer-fin', 'fin')).toBe('both-ended');
  for (const state of states)
    if (state !== 'closed') expect(nextState(SHM_TABLE, state, 'over', {})).toBe('closed');
});
