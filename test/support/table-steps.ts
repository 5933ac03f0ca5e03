/** A state table as text: what each state makes of each input. */
import { expect } from 'vitest';
import { nextState, type MachineTable } from '../../src/base/fsm.ts';

/** For each state the next state by input, in the order of `inputs`; a dot for an unlisted input. */
export function tableSteps<S extends string, I extends string>(
  table: MachineTable<S, I>,
  states: readonly S[],
  inputs: readonly I[],
): Record<string, string> {
  const next = (from: S, input: I): string => {
    try {
      return nextState(table, from, input, {});
    } catch (error) {
      expect(error).toMatchObject({ code: 'ERR_INTERNAL' });
      return '·';
    }
  };
  return Object.fromEntries(states.map((from) => [from, inputs.map((input) => next(from, input)).join(' ')]));
}
