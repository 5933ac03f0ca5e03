// The tables of the engine proxy, state by input: what a state does not list is refused.
import { expect, it } from 'vitest';
import {
  ENGINE_INPUTS,
  ENGINE_LISTENER_INPUTS,
  ENGINE_LISTENER_STATES,
  ENGINE_LISTENER_TABLE,
  ENGINE_STATES,
  ENGINE_TABLE,
} from '../../src/engine/proxy/states.ts';
import { tableSteps } from '../support/table-steps.ts';

it('an engine: stop, fail', () => {
  expect(tableSteps(ENGINE_TABLE, ENGINE_STATES, ENGINE_INPUTS)).toEqual({
    running: 'stopped failed',
    stopped: '· ·',
    failed: '· ·',
  });
});

it('a listener over engines: all-bound, begin, error', () => {
  expect(tableSteps(ENGINE_LISTENER_TABLE, ENGINE_LISTENER_STATES, ENGINE_LISTENER_INPUTS)).toEqual({
    binding: 'bound · failed',
    bound: '· listening lost',
    listening: '· · lost',
    failed: '· · ·',
    lost: '· · ·',
  });
});
