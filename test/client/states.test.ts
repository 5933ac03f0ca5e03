// The table of a client's connection, state by input: what a state does not list is refused.
import { expect, it } from 'vitest';
import { MEMBER_INPUTS, MEMBER_STATES, MEMBER_TABLE } from '../../src/client/states.ts';
import { tableSteps } from '../support/table-steps.ts';

it('a connection of a client: ready, failed, lost, retry, end', () => {
  expect(MEMBER_INPUTS).toEqual(['ready', 'failed', 'lost', 'retry', 'end']);
  expect(tableSteps(MEMBER_TABLE, MEMBER_STATES, MEMBER_INPUTS)).toEqual({
    connecting: 'open waiting · · ended',
    open: '· · waiting · ended',
    waiting: '· · · connecting ended',
    ended: 'ended ended ended ended ended',
  });
});
