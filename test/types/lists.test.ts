/**
 * Unions that are written out beside a list: both name the same. The compiler asks for each name of a union
 * here, and for no other; the tests compare that with the list.
 */
import { expect, it } from 'vitest';
import { WIRES, type WireName } from '../../src/base/wires.ts';
import { PRESET_NAMES, type PresetName } from '../../src/mpa/presets.ts';
import { SEND_OPCODES, WC_STATUSES, type WcOpcode, type WcStatus } from '../../src/queues/completion.ts';
import { DATAGRAM_QP_STATES, type DatagramQpState } from '../../src/verbs/datagram-qp-states.ts';
import { QP_STATES, type QpState } from '../../src/verbs/qp-states.ts';

type Names<U extends string> = Readonly<Record<U, true>>;

const statuses: Names<WcStatus> = {
  success: true,
  'local-length-error': true,
  'local-protection-error': true,
  'local-qp-operation-error': true,
  flushed: true,
  'mw-bind-error': true,
  'fast-register-error': true,
  'local-invalidate-error': true,
  'remote-invalidate-error': true,
  'remote-access-error': true,
  'remote-operation-error': true,
  'zero-read-resources': true,
  'bad-response': true,
  'fatal-error': true,
};
/** All but those of receives. */
const opcodes: Names<Exclude<WcOpcode, 'receive' | 'receive-immediate'>> = {
  send: true,
  'rdma-write': true,
  'rdma-read': true,
  immediate: true,
  'atomic-fetch-add': true,
  'atomic-cmp-swap': true,
  'local-invalidate': true,
  'bind-mw': true,
  'reg-mr': true,
};
const states: Names<QpState> = { idle: true, rts: true, closing: true, terminate: true, error: true };
const datagramStates: Names<DatagramQpState> = {
  unbound: true,
  binding: true,
  bound: true,
  failed: true,
  destroyed: true,
};
const presets: Names<PresetName> = { siw: true, softiwarp: true, chelsio: true, intel: true, strict: true };
const wires: Names<WireName> = { iwarp: true, qpip: true, trp: true, shm: true };

it.each<[string, readonly string[], Readonly<Record<string, true>>]>([
  ['statuses', WC_STATUSES, statuses],
  ['opcodes of send queues', SEND_OPCODES, opcodes],
  ['states of a queue pair', QP_STATES, states],
  ['states of a datagram queue pair', DATAGRAM_QP_STATES, datagramStates],
  ['presets', PRESET_NAMES, presets],
  ['wires', WIRES, wires],
])('the list has the %s of the type, each once', (_what, list, names) => {
  expect([...list].sort()).toEqual(Object.keys(names).sort());
});
