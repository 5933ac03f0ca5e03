/** One operation of a test as a work request, of each of the four verbs. */
import type { SendWorkRequest } from '../../src/verbs/post.ts';
import type { DataConnections } from './data.ts';
import type { Settings } from './settings.ts';
import type { Destination } from './wire.ts';

interface Place {
  /** Number of the queue pair. */
  readonly qp: number;
  readonly remote: Destination;
  readonly size: number;
  /** Bytes behind the beginning of both areas. */
  readonly step: number;
}

/** What FetchAdd adds, what CmpSwap expects, and what it writes: those of the stock programs. */
const ADD = 1;
const COMPARE = 0;
const SWAP = 0;

/** The next operation of queue pair `qp`. */
export function operation(
  s: Settings,
  data: DataConnections,
  { qp, remote, size, step }: Place,
  common: { readonly wrId: number; readonly signaled: boolean },
): SendWorkRequest {
  const offset = data.sendOffset(qp) + step;
  const mr = data.memory(qp);
  const sges = [{ mr, offset, length: size }];
  const target = { rkey: remote.rkey, remoteAddr: remote.vaddr + BigInt(step) };
  const { verb } = s.program;
  if (verb === 'read') return { opcode: 'rdma-read', ...common, sges, ...target };
  if (verb === 'atomic') {
    return s.atomic === 'FETCH_AND_ADD'
      ? { opcode: 'atomic-fetch-add', ...common, sges, ...target, add: ADD }
      : { opcode: 'atomic-cmp-swap', ...common, sges, ...target, compare: COMPARE, swap: SWAP };
  }
  const payload = size <= s.inline ? { inline: mr.bytes.subarray(offset, offset + size) } : { sges };
  if (verb === 'send') return { opcode: 'send', ...common, ...payload };
  return {
    opcode: 'rdma-write',
    ...common,
    ...payload,
    ...target,
    ...(s.immediate ? { immediate: 0 } : {}),
  };
}
