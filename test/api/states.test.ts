// Every input in every state of the tables of the promise layer.
import { describe, expect, it } from 'vitest';
import { CONNECTION_INPUTS, CONNECTION_STATES, CONNECTION_TABLE } from '../../src/api/connection-states.ts';
import { SERVER_INPUTS, SERVER_STATES, SERVER_TABLE } from '../../src/api/server-states.ts';
import { nextState, type MachineTable } from '../../src/base/fsm.ts';

/** A dot: the table does not list the input. */
function steps<S extends string, I extends string>(
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

describe('state tables of the promise layer, state by input', () => {
  it('the connection: close, farewell, peer-farewell, leave, ended', () => {
    expect(steps(CONNECTION_TABLE, CONNECTION_STATES, CONNECTION_INPUTS)).toEqual({
      open: 'finishing · following leaving closed',
      finishing: 'finishing parting following leaving closed',
      parting: 'parting · following leaving closed',
      following: 'following · following leaving closed',
      leaving: 'leaving · leaving leaving closed',
      closed: 'closed · · closed ·',
    });
  });

  it('the server: listen, bound, bind-failed, close', () => {
    expect(steps(SERVER_TABLE, SERVER_STATES, SERVER_INPUTS)).toEqual({
      new: 'binding · · closed',
      binding: '· listening new closed',
      listening: '· · · closed',
      closed: 'binding · · closed',
    });
  });
});
