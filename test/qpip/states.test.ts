// The tables of the wire qpip, state by input: what a state does not list is refused.
import { expect, it } from 'vitest';
import { QPIP_INPUTS, QPIP_STATES, QPIP_TABLE } from '../../src/qpip/states.ts';
import {
  DATAGRAM_QP_INPUTS,
  DATAGRAM_QP_STATES,
  DATAGRAM_QP_TABLE,
} from '../../src/verbs/datagram-qp-states.ts';
import { tableSteps } from '../support/table-steps.ts';

it('a stream over plain TCP: its own connection or a peer’s, accept, ends of either side, abort', () => {
  expect(QPIP_INPUTS).toEqual([
    'connected',
    'incoming',
    'accept',
    'close',
    'drained',
    'peer-end',
    'abort',
    'end-of-port',
  ]);
  expect(tableSteps(QPIP_TABLE, QPIP_STATES, QPIP_INPUTS)).toEqual({
    idle: 'operational deciding · · · · aborting closed',
    deciding: '· · operational · · · aborting closed',
    operational: '· · · draining · half-open aborting closed',
    draining: '· · · · ended finishing aborting closed',
    ended: '· · · · · closing aborting closed',
    'half-open': '· · · finishing · · aborting closed',
    finishing: '· · · · closing · aborting closed',
    closing: '· · · · · · aborting closed',
    aborting: '· · · · · · · closed',
    closed: '· · · · · · · ·',
  });
});

it('a datagram queue pair: bind, bound, refused, fail, destroy', () => {
  expect(DATAGRAM_QP_INPUTS).toEqual(['bind', 'bound', 'refused', 'fail', 'destroy']);
  expect(tableSteps(DATAGRAM_QP_TABLE, DATAGRAM_QP_STATES, DATAGRAM_QP_INPUTS)).toEqual({
    unbound: 'binding · · · destroyed',
    binding: '· bound unbound · destroyed',
    bound: '· · · failed destroyed',
    failed: '· · · · destroyed',
    destroyed: '· · · · ·',
  });
});
