// Every public call of verbs with every kind of wrong argument: each throws at once, with its code, and
// changes nothing (VERBS-122).
import { describe, expect, it } from 'vitest';
import {
  CompletionQueue,
  Device,
  MemoryRegion,
  MemoryWindow,
  ProtectionDomain,
  QueuePair,
  SharedReceiveQueue,
} from '../../src/verbs/index.ts';
import { codeOf, LOCAL_WRITE, MW_BIND, REMOTE_READ, REMOTE_WRITE } from './support.ts';

/** Fresh objects for each case, so that none can spoil another. */
function bench() {
  const device = new Device();
  const pd = device.allocatePd();
  const cq = device.createCq(16);
  const srq = pd.createSrq({ maxWr: 4 });
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 4, maxRecvWr: 4 });
  const shared = pd.createQp({ sendCq: cq, recvCq: cq, srq });
  const mr = pd.registerMemory(new Uint8Array(64), LOCAL_WRITE | MW_BIND | REMOTE_READ, { iova: 0 });
  const readOnly = pd.registerMemory(new Uint8Array(64), REMOTE_READ);
  const fast = pd.allocateFastRegion(8);
  const mw = pd.allocateMw();
  const gone = pd.registerMemory(new Uint8Array(64), 31);
  gone.deregister();
  const goneMw = pd.allocateMw();
  goneMw.deallocate();
  const deadPd = device.allocatePd();
  deadPd.deallocate();
  const deadCq = device.createCq(1);
  deadCq.destroy();
  const deadSrq = pd.createSrq({ maxWr: 1 });
  deadSrq.destroy();
  const deadQp = pd.createQp({ sendCq: cq, recvCq: cq });
  deadQp.destroy();
  const otherPd = device.allocatePd();
  const foreign = otherPd.registerMemory(new Uint8Array(8), 31);
  const foreignMw = otherPd.allocateMw();
  const foreignQp = otherPd.createQp({ sendCq: cq, recvCq: cq });
  const alien = new Device();
  const alienPd = alien.allocatePd();
  const alienCq = alien.createCq(1);
  const alienSrq = alienPd.createSrq({ maxWr: 1 });
  return {
    device,
    pd,
    cq,
    srq,
    qp,
    shared,
    mr,
    readOnly,
    fast,
    mw,
    gone,
    goneMw,
    deadPd,
    deadCq,
    deadSrq,
    deadQp,
    otherPd,
    foreign,
    foreignMw,
    foreignQp,
    alienPd,
    alienCq,
    alienSrq,
  };
}

type Bench = ReturnType<typeof bench>;

/** Values that are not of a type: what a caller may pass by mistake for each. */
const NOT_OBJECT = [undefined, null, 1, 'text', true, 1n, Symbol.iterator];
const NOT_INTEGER = [null, '1', 1.5, Number.NaN, Number.POSITIVE_INFINITY, -1, {}, true, 1n];
const NOT_BOOLEAN = [null, 0, 1, 'true', {}];
const NOT_VIEW = [null, 7, 'octets', [1, 2], {}, new ArrayBuffer(4)];
const NOT_U64 = [null, -1, -1n, 1.5, 2 ** 53, 2n ** 64n, '1', {}, Number.NaN];
const NOT_FUNCTION = [undefined, 1, 'f', {}];
const NOT_INSTANCE = [undefined, null, 1, 'x', {}, [], new Uint8Array(1)];
const absent = <T>(values: readonly T[]): T[] => values.filter((value) => value !== undefined);

/** One call: its object, its wrong argument, the code, and the call for each wrong value. */
interface Case {
  readonly call: string;
  readonly wrong: string;
  readonly code: string;
  readonly values: readonly unknown[];
  readonly make: (b: Bench, value: never) => unknown;
}

const cases: Case[] = [];
const add = (
  call: string,
  wrong: string,
  code: string,
  values: readonly unknown[],
  make: (b: Bench, value: never) => unknown,
): void => {
  cases.push({ call, wrong, code, values, make });
};
const INVALID = 'ERR_INVALID_ARGUMENT';
const once = [undefined];

// Device
add('new Device', 'options', INVALID, absent(NOT_OBJECT), (_, v) => new Device(v));
add('new Device', 'name', INVALID, [1, null, {}], (_, v) => new Device({ name: v }));
add('new Device', 'limits', INVALID, [1, null, 'x'], (_, v) => new Device({ limits: v }));
add('new Device', 'a limit', INVALID, [...NOT_INTEGER, 0], (_, v) => new Device({ limits: { maxQp: v } }));
add(
  'new Device',
  'an unknown limit',
  INVALID,
  ['maxMonkeys', 'toString'],
  (_, v) => new Device({ limits: { [v]: 1 } as never }),
);
add('new Device', 'random', INVALID, absent(NOT_FUNCTION), (_, v) => new Device({ random: v }));
add('new Device', 'defer', INVALID, absent(NOT_FUNCTION), (_, v) => new Device({ defer: v }));
add('new Device', 'crc32c', INVALID, [1, 'crc64', null], (_, v) => new Device({ crc32c: v }));
add('newMemory', 'octets', INVALID, [...NOT_INTEGER, undefined, -1, 2 ** 40], (b, v) =>
  b.device.newMemory(v),
);
add('createCq', 'entries', INVALID, [...NOT_INTEGER, undefined, 0, 2 ** 40], (b, v) => b.device.createCq(v));
add(
  'createCq',
  'channel',
  INVALID,
  NOT_INSTANCE.filter((v) => v !== undefined),
  (b, v) => b.device.createCq(1, { channel: v }),
);
add('wait', 'ms', INVALID, [...NOT_INTEGER, undefined], (b, v) => b.cq.wait(v));
add('wait', 'a device without workers', 'ERR_NOT_SUPPORTED', once, (b) => b.cq.wait(1));
add('allocateMemory', 'octets', INVALID, [...NOT_INTEGER, undefined, -1, 2 ** 40], (b, v) =>
  b.device.allocateMemory(v),
);
add('createCompletionChannel', 'a closed device', 'ERR_DESTROYED', once, () => {
  const device = new Device();
  device.close();
  device.createCompletionChannel();
});
add('setAsyncEventHandler', 'handler', INVALID, NOT_FUNCTION, (b, v) => b.device.setAsyncEventHandler(v));
add('close', 'objects alive', 'ERR_IN_USE', once, (b) => b.device.close());
add('allocatePd', 'a closed device', 'ERR_DESTROYED', once, () => {
  const device = new Device();
  device.close();
  device.allocatePd();
});

// Protection domain
add('registerMemory', 'memory', INVALID, [...NOT_VIEW, undefined], (b, v) => b.pd.registerMemory(v, 0));
add('registerMemory', 'access', INVALID, [...NOT_INTEGER, undefined, 32, REMOTE_WRITE], (b, v) =>
  b.pd.registerMemory(new Uint8Array(1), v),
);
add('registerMemory', 'options', INVALID, absent(NOT_OBJECT), (b, v) =>
  b.pd.registerMemory(new Uint8Array(1), 0, v),
);
add(
  'registerMemory',
  'iova',
  INVALID,
  absent(NOT_U64).filter((v) => v !== null),
  (b, v) => b.pd.registerMemory(new Uint8Array(1), 0, { iova: v }),
);
add('registerMemory', 'key', INVALID, [...NOT_INTEGER, 256], (b, v) =>
  b.pd.registerMemory(new Uint8Array(1), 0, { key: v }),
);
add(
  'registerMemory',
  'shared',
  INVALID,
  NOT_BOOLEAN.filter((v) => v !== null),
  (b, v) => b.pd.registerMemory(new Uint8Array(1), 0, { shared: v }),
);
add('registerMemory', 'queuePair', INVALID, absent(NOT_INSTANCE), (b, v) =>
  b.pd.registerMemory(new Uint8Array(1), 0, { queuePair: v }),
);
add('registerMemory', 'a queue pair of another domain', 'ERR_WRONG_PD', once, (b) =>
  b.pd.registerMemory(new Uint8Array(1), 0, { queuePair: b.foreignQp }),
);
add('registerMemory', 'a destroyed queue pair', 'ERR_DESTROYED', once, (b) =>
  b.pd.registerMemory(new Uint8Array(1), 0, { queuePair: b.deadQp }),
);
add('registerMemory', 'a deallocated domain', 'ERR_DESTROYED', once, (b) =>
  b.deadPd.registerMemory(new Uint8Array(1), 0),
);
add('allocateFastRegion', 'maxOctets', INVALID, [...NOT_INTEGER, undefined, 0, 2 ** 32], (b, v) =>
  b.pd.allocateFastRegion(v),
);
add('allocateFastRegion', 'options', INVALID, absent(NOT_OBJECT), (b, v) => b.pd.allocateFastRegion(1, v));
add(
  'allocateFastRegion',
  'remote',
  INVALID,
  NOT_BOOLEAN.filter((v) => v !== null),
  (b, v) => b.pd.allocateFastRegion(1, { remote: v }),
);
add('allocateFastRegion', 'a deallocated domain', 'ERR_DESTROYED', once, (b) =>
  b.deadPd.allocateFastRegion(1),
);
add('allocateMw', 'a deallocated domain', 'ERR_DESTROYED', once, (b) => b.deadPd.allocateMw());
add('deallocate (domain)', 'objects alive', 'ERR_IN_USE', once, (b) => b.pd.deallocate());
add('createDatagramQp', 'a device of another wire', 'ERR_NOT_SUPPORTED', once, (b) =>
  b.pd.createDatagramQp({ sendCq: b.cq, recvCq: b.cq }),
);
add('createSrq', 'options', INVALID, NOT_OBJECT, (b, v) => b.pd.createSrq(v));
add('createSrq', 'maxWr', INVALID, [...NOT_INTEGER, undefined, 0, 2 ** 20], (b, v) =>
  b.pd.createSrq({ maxWr: v }),
);
add('createSrq', 'maxSge', INVALID, [...NOT_INTEGER.filter((v) => v !== null), 0, 99], (b, v) =>
  b.pd.createSrq({ maxWr: 4, maxSge: v }),
);
add('createSrq', 'limit', INVALID, [...NOT_INTEGER.filter((v) => v !== null), 5], (b, v) =>
  b.pd.createSrq({ maxWr: 4, limit: v }),
);
add('createSrq', 'a deallocated domain', 'ERR_DESTROYED', once, (b) => b.deadPd.createSrq({ maxWr: 1 }));
add('createQp', 'options', INVALID, NOT_OBJECT, (b, v) => b.pd.createQp(v));
for (const name of ['sendCq', 'recvCq'] as const) {
  add('createQp', name, INVALID, NOT_INSTANCE, (b, v) =>
    b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, [name]: v }),
  );
  add('createQp', `${name} of another device`, 'ERR_WRONG_PD', once, (b) =>
    b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, [name]: b.alienCq }),
  );
  add('createQp', `a destroyed ${name}`, 'ERR_DESTROYED', once, (b) =>
    b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, [name]: b.deadCq }),
  );
}
for (const name of [
  'maxSendWr',
  'maxRecvWr',
  'maxSendSge',
  'maxRecvSge',
  'maxInline',
  'ird',
  'ord',
  'rqLimit',
] as const) {
  add('createQp', name, INVALID, [...NOT_INTEGER.filter((v) => v !== null), 2 ** 30], (b, v) =>
    b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, [name]: v }),
  );
}
for (const name of [
  'signalAll',
  'inboundWrite',
  'inboundRead',
  'extensions',
  'allowBind',
  'allowFastRegister',
] as const) {
  add(
    'createQp',
    name,
    INVALID,
    NOT_BOOLEAN.filter((v) => v !== null),
    (b, v) => b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, [name]: v }),
  );
}
add('createQp', 'readSink', INVALID, [1, 'anything', {}], (b, v) =>
  b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, readSink: v }),
);
add('createQp', 'srq', INVALID, absent(NOT_INSTANCE), (b, v) =>
  b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, srq: v }),
);
add('createQp', 'srq of another device', 'ERR_WRONG_PD', once, (b) =>
  b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, srq: b.alienSrq }),
);
add('createQp', 'a destroyed srq', 'ERR_DESTROYED', once, (b) =>
  b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, srq: b.deadSrq }),
);
add('createQp', 'a deallocated domain', 'ERR_DESTROYED', once, (b) =>
  b.deadPd.createQp({ sendCq: b.cq, recvCq: b.cq }),
);

// Regions and windows
add('query (region)', 'a deregistered region', 'ERR_INVALID_REGION', once, (b) => b.gone.query());
add('deregister', 'a deregistered region', 'ERR_INVALID_REGION', once, (b) => b.gone.deregister());
add('reregister', 'change', INVALID, NOT_OBJECT, (b, v) => b.mr.reregister(v));
add('reregister', 'memory', INVALID, NOT_VIEW, (b, v) => b.mr.reregister({ memory: v }));
add('reregister', 'access', INVALID, [...NOT_INTEGER, 64, REMOTE_WRITE], (b, v) =>
  b.mr.reregister({ access: v }),
);
add('reregister', 'iova', INVALID, NOT_U64, (b, v) => b.mr.reregister({ iova: v }));
add('reregister', 'pd', INVALID, absent(NOT_INSTANCE), (b, v) => b.mr.reregister({ pd: v }));
add('reregister', 'a domain of another device', 'ERR_WRONG_PD', once, (b) =>
  b.mr.reregister({ pd: b.alienPd }),
);
add('reregister', 'a deregistered region', 'ERR_INVALID_REGION', once, (b) => b.gone.reregister({}));
add('registerShared', 'access', INVALID, [...NOT_INTEGER, undefined, 64, REMOTE_WRITE], (b, v) =>
  b.mr.registerShared(v),
);
add('registerShared', 'options', INVALID, absent(NOT_OBJECT), (b, v) => b.mr.registerShared(0, v));
add('registerShared', 'pd', INVALID, absent(NOT_INSTANCE), (b, v) => b.mr.registerShared(0, { pd: v }));
add('registerShared', 'a domain of another device', 'ERR_WRONG_PD', once, (b) =>
  b.mr.registerShared(0, { pd: b.alienPd }),
);
add('registerShared', 'a deallocated domain', 'ERR_DESTROYED', once, (b) =>
  b.mr.registerShared(0, { pd: b.deadPd }),
);
add('registerShared', 'a deregistered region', 'ERR_INVALID_REGION', once, (b) => b.gone.registerShared(0));
add('registerShared', 'an invalid region', 'ERR_INVALID_REGION', once, (b) => b.fast.registerShared(0));
add('query (window)', 'a deallocated window', 'ERR_INVALID_REGION', once, (b) => b.goneMw.query());
add('deallocate (window)', 'a deallocated window', 'ERR_INVALID_REGION', once, (b) => b.goneMw.deallocate());

// Completion queue
add('poll', 'out', INVALID, [undefined, null, 1, 'x', {}], (b, v) => b.cq.poll(v));
add('poll', 'max', INVALID, NOT_INTEGER, (b, v) => b.cq.poll([], v));
add('poll', 'a destroyed queue', 'ERR_DESTROYED', once, (b) => b.deadCq.poll([]));
add('setHandler', 'handler', INVALID, NOT_FUNCTION, (b, v) => b.cq.setHandler(v));
add('requestNotify', 'kind', INVALID, [null, 1, 'all', {}], (b, v) => b.cq.requestNotify(v));
add('requestNotify', 'a destroyed queue', 'ERR_DESTROYED', once, (b) => b.deadCq.requestNotify());
add('resize', 'entries', INVALID, [...NOT_INTEGER, undefined, 0, 2 ** 40], (b, v) => b.cq.resize(v));
add('resize', 'a destroyed queue', 'ERR_DESTROYED', once, (b) => b.deadCq.resize(4));
add('destroy (completion queue)', 'queues that report to it', 'ERR_IN_USE', once, (b) => b.cq.destroy());

// Shared receive queue
add('setLimit', 'limit', INVALID, [...NOT_INTEGER, undefined, 5], (b, v) => b.srq.setLimit(v));
add('setLimit', 'a destroyed queue', 'ERR_DESTROYED', once, (b) => b.deadSrq.setLimit(0));
add('modify (srq)', 'change', INVALID, NOT_OBJECT, (b, v) => b.srq.modify(v));
add('modify (srq)', 'maxWr', INVALID, [...NOT_INTEGER, 0, 2 ** 30], (b, v) => b.srq.modify({ maxWr: v }));
add('modify (srq)', 'limit', INVALID, [...NOT_INTEGER, 5], (b, v) => b.srq.modify({ limit: v }));
add('modify (srq)', 'a destroyed queue', 'ERR_DESTROYED', once, (b) => b.deadSrq.modify({}));
add('destroy (srq)', 'queue pairs attached', 'ERR_IN_USE', once, (b) => b.srq.destroy());
add('postRecv (srq)', 'a destroyed queue', 'ERR_DESTROYED', once, (b) => b.deadSrq.postRecv({}));

// Receives, on a queue pair and on a shared queue
for (const [name, queue] of [
  ['qp', (b: Bench) => b.qp],
  ['srq', (b: Bench) => b.srq],
] as const) {
  const call = `postRecv (${name})`;
  const post = (b: Bench, request: object): unknown => queue(b).postRecv(request as never);
  add(call, 'request', INVALID, NOT_OBJECT, (b, v) => queue(b).postRecv(v));
  add(call, 'an element of the list', INVALID, NOT_OBJECT, (b, v) => queue(b).postRecv([{}, v]));
  add(call, 'opcode', INVALID, ['send', 'receive', 1], (b, v) => post(b, { opcode: v }));
  add(call, 'wrId', INVALID, NOT_U64, (b, v) => post(b, { wrId: v }));
  add(call, 'sges', INVALID, [1, 'x', {}], (b, v) => post(b, { sges: v }));
  add(call, 'too many sges', 'ERR_TOO_LARGE', once, (b) =>
    post(b, { sges: Array.from({ length: 5 }, () => ({ mr: b.mr })) }),
  );
  add(call, 'sge', INVALID, NOT_OBJECT, (b, v) => post(b, { sges: [v] }));
  add(call, 'mr', INVALID, NOT_INSTANCE, (b, v) => post(b, { sges: [{ mr: v }] }));
  add(call, 'a window as mr', INVALID, once, (b) => post(b, { sges: [{ mr: b.mw }] }));
  add(call, 'mr of another domain', 'ERR_WRONG_PD', once, (b) => post(b, { sges: [{ mr: b.foreign }] }));
  add(call, 'a deregistered mr', 'ERR_INVALID_REGION', once, (b) => post(b, { sges: [{ mr: b.gone }] }));
  add(call, 'an invalid mr', 'ERR_INVALID_REGION', once, (b) =>
    post(b, { sges: [{ mr: b.fast, length: 1 }] }),
  );
  add(call, 'mr without local write', 'ERR_ACCESS', once, (b) => post(b, { sges: [{ mr: b.readOnly }] }));
  add(call, 'offset', INVALID, NOT_INTEGER, (b, v) => post(b, { sges: [{ mr: b.mr, offset: v }] }));
  add(call, 'length', INVALID, [...NOT_INTEGER, 2 ** 32], (b, v) =>
    post(b, { sges: [{ mr: b.mr, length: v }] }),
  );
  add(
    call,
    'a range outside',
    'ERR_OUT_OF_RANGE',
    [
      [65, undefined],
      [64, 1],
      [0, 65],
      [60, 5],
    ],
    (b, v: readonly [number, number?]) =>
      post(b, { sges: [{ mr: b.mr, offset: v[0], ...(v[1] === undefined ? {} : { length: v[1] }) }] }),
  );
  add(call, 'a full queue', 'ERR_QUEUE_FULL', once, (b) => queue(b).postRecv([{}, {}, {}, {}, {}]));
}
add('postRecv (qp)', 'a shared receive queue', 'ERR_INVALID_STATE', once, (b) => b.shared.postRecv({}));
add('postRecv (qp)', 'a destroyed queue pair', 'ERR_DESTROYED', once, (b) => b.deadQp.postRecv({}));

// Sends
/** A lawful request of each kind, without its scatter/gather list. */
const REMOTE = { rkey: 1, remoteAddr: 0 };
const LAWFUL = {
  send: {},
  'rdma-write': REMOTE,
  'rdma-read': REMOTE,
  immediate: { immediate: 0 },
  'atomic-fetch-add': { ...REMOTE, add: 0 },
  'atomic-cmp-swap': { ...REMOTE, compare: 0, swap: 0 },
};
const send = (b: Bench, request: object): unknown => b.qp.postSend({ opcode: 'send', ...request } as never);
add('postSend', 'request', INVALID, NOT_OBJECT, (b, v) => b.qp.postSend(v));
add('postSend', 'an element of the list', INVALID, NOT_OBJECT, (b, v) => b.qp.postSend([v]));
add(
  'postSend',
  'opcode',
  INVALID,
  [undefined, null, 1, 'receive', 'SEND', 'toString', 'constructor'],
  (b, v) => b.qp.postSend({ opcode: v }),
);
add('postSend', 'a full queue', 'ERR_QUEUE_FULL', once, (b) =>
  b.qp.postSend(Array.from({ length: 5 }, () => ({ opcode: 'send' }) as const)),
);
add('postSend', 'a destroyed queue pair', 'ERR_DESTROYED', once, (b) =>
  b.deadQp.postSend({ opcode: 'send' }),
);
for (const opcode of ['send', 'rdma-write', 'rdma-read', 'immediate'] as const) {
  const whole = { opcode, ...LAWFUL[opcode] };
  add(`postSend ${opcode}`, 'wrId', INVALID, NOT_U64, (b, v) => send(b, { ...whole, wrId: v }));
  add(`postSend ${opcode}`, 'signaled', INVALID, NOT_BOOLEAN, (b, v) => send(b, { ...whole, signaled: v }));
  add(`postSend ${opcode}`, 'fence', INVALID, NOT_BOOLEAN, (b, v) => send(b, { ...whole, fence: v }));
}
for (const opcode of ['send', 'rdma-write', 'rdma-read', 'atomic-fetch-add', 'atomic-cmp-swap'] as const) {
  const call = `postSend ${opcode}`;
  const whole = { opcode, ...LAWFUL[opcode] };
  const withSge = (b: Bench, sge: unknown): unknown => send(b, { ...whole, sges: [sge] });
  add(call, 'sges', INVALID, [1, 'x', {}], (b, v) => send(b, { ...whole, sges: v }));
  add(call, 'too many sges', 'ERR_TOO_LARGE', once, (b) =>
    send(b, { ...whole, sges: Array.from({ length: 5 }, () => ({ mr: b.mr, length: 8 })) }),
  );
  add(call, 'sge', INVALID, NOT_OBJECT, withSge);
  add(call, 'mr', INVALID, NOT_INSTANCE, (b, v) => withSge(b, { mr: v }));
  add(call, 'mr of another domain', 'ERR_WRONG_PD', once, (b) => withSge(b, { mr: b.foreign }));
  add(call, 'a deregistered mr', 'ERR_INVALID_REGION', once, (b) => withSge(b, { mr: b.gone, length: 8 }));
  add(call, 'offset', INVALID, NOT_INTEGER, (b, v) => withSge(b, { mr: b.mr, offset: v }));
  add(call, 'length', INVALID, [...NOT_INTEGER, 2 ** 32], (b, v) => withSge(b, { mr: b.mr, length: v }));
  add(call, 'a range outside', 'ERR_OUT_OF_RANGE', once, (b) =>
    withSge(b, { mr: b.mr, offset: 57, length: 8 }),
  );
  if (opcode === 'send') continue;
  add(call, 'rkey', INVALID, [...NOT_INTEGER, undefined, 2 ** 32], (b, v) =>
    send(b, { ...whole, sges: [{ mr: b.mr, length: 8 }], rkey: v }),
  );
  add(call, 'remoteAddr', INVALID, [...NOT_U64, undefined], (b, v) =>
    send(b, { ...whole, sges: [{ mr: b.mr, length: 8 }], remoteAddr: v }),
  );
  if (opcode === 'rdma-write') continue;
  add(call, 'a sink without local write', 'ERR_ACCESS', once, (b) =>
    withSge(b, { mr: b.readOnly, length: 8 }),
  );
}
for (const opcode of ['send', 'rdma-write'] as const) {
  const whole = { opcode, ...LAWFUL[opcode] };
  add(`postSend ${opcode}`, 'inline', INVALID, NOT_VIEW, (b, v) => send(b, { ...whole, inline: v }));
  add(`postSend ${opcode}`, 'inline and sges', INVALID, once, (b) =>
    send(b, { ...whole, inline: new Uint8Array(1), sges: [] }),
  );
  add(`postSend ${opcode}`, 'too much inline', 'ERR_TOO_LARGE', once, (b) =>
    send(b, { ...whole, inline: new Uint8Array(257) }),
  );
}
for (const opcode of ['send', 'rdma-write', 'immediate'] as const) {
  add(`postSend ${opcode}`, 'solicited', INVALID, NOT_BOOLEAN, (b, v) =>
    send(b, {
      opcode,
      ...LAWFUL[opcode],
      ...(opcode === 'rdma-write' ? { immediate: 0 } : {}),
      solicited: v,
    }),
  );
}
for (const [opcode, lawful] of Object.entries(LAWFUL)) {
  for (const field of ['sgl', 'wr_id', 'Fence']) {
    add(`postSend ${opcode}`, `an unknown field ${field}`, INVALID, once, (b) =>
      send(b, { opcode, ...lawful, sges: [{ mr: b.mr, length: 8 }], [field]: undefined }),
    );
  }
  add(`postSend ${opcode}`, 'an unknown field of an element', INVALID, once, (b) =>
    send(b, { opcode, ...lawful, sges: [{ mr: b.mr, length: 8, lkey: 1 }] }),
  );
}
add('postSend rdma-read', 'inline', INVALID, once, (b) =>
  send(b, { opcode: 'rdma-read', ...REMOTE, inline: new Uint8Array(8) }),
);
add('postRecv', 'an unknown field', INVALID, once, (b) => b.qp.postRecv({ sgl: [{ mr: b.mr }] } as never));
add('postSend send', 'invalidate', INVALID, [...NOT_INTEGER, 2 ** 32], (b, v) => send(b, { invalidate: v }));
add('postSend immediate', 'immediate', INVALID, [...NOT_U64, undefined], (b, v) =>
  send(b, { opcode: 'immediate', immediate: v }),
);
add('postSend rdma-write', 'immediate', INVALID, NOT_U64, (b, v) =>
  send(b, { opcode: 'rdma-write', rkey: 1, remoteAddr: 0, immediate: v }),
);
add('postSend rdma-write', 'solicited without immediate', INVALID, once, (b) =>
  send(b, { opcode: 'rdma-write', rkey: 1, remoteAddr: 0, solicited: true }),
);
add('postSend rdma-read', 'localInvalidate', INVALID, NOT_BOOLEAN, (b, v) =>
  send(b, { opcode: 'rdma-read', rkey: 1, remoteAddr: 0, sges: [{ mr: b.mr }], localInvalidate: v }),
);
add('postSend rdma-read', 'localInvalidate without a sink', INVALID, once, (b) =>
  send(b, { opcode: 'rdma-read', rkey: 1, remoteAddr: 0, localInvalidate: true }),
);
const fetchAdd = (b: Bench, change: object): unknown =>
  send(b, {
    opcode: 'atomic-fetch-add',
    rkey: 1,
    remoteAddr: 0,
    add: 0,
    sges: [{ mr: b.mr, length: 8 }],
    ...change,
  });
const cmpSwap = (b: Bench, change: object): unknown =>
  send(b, {
    opcode: 'atomic-cmp-swap',
    rkey: 1,
    remoteAddr: 0,
    compare: 0,
    swap: 0,
    sges: [{ mr: b.mr, length: 8 }],
    ...change,
  });
add('postSend atomic-fetch-add', 'a sink that is not 8 octets', INVALID, [0, 7, 9], (b, v) =>
  fetchAdd(b, { sges: [{ mr: b.mr, length: v }] }),
);
add('postSend atomic-fetch-add', 'add', INVALID, [...NOT_U64, undefined], (b, v) => fetchAdd(b, { add: v }));
add(
  'postSend atomic-fetch-add',
  'addMask',
  INVALID,
  NOT_U64.filter((v) => v !== null),
  (b, v) => fetchAdd(b, { addMask: v }),
);
add('postSend atomic-cmp-swap', 'compare', INVALID, [...NOT_U64, undefined], (b, v) =>
  cmpSwap(b, { compare: v }),
);
add('postSend atomic-cmp-swap', 'swap', INVALID, [...NOT_U64, undefined], (b, v) => cmpSwap(b, { swap: v }));
for (const name of ['compareMask', 'swapMask']) {
  add(
    'postSend atomic-cmp-swap',
    name,
    INVALID,
    NOT_U64.filter((v) => v !== null),
    (b, v) => cmpSwap(b, { [name]: v }),
  );
}
for (const [opcode, change] of [
  ['immediate', { immediate: 0 }],
  ['rdma-write', { immediate: 0, rkey: 1, remoteAddr: 0 }],
  ['atomic-fetch-add', { rkey: 1, remoteAddr: 0, add: 0 }],
  ['atomic-cmp-swap', { rkey: 1, remoteAddr: 0, compare: 0, swap: 0 }],
] as const) {
  add(`postSend ${opcode}`, 'a peer known to lack RFC 7306', 'ERR_NOT_SUPPORTED', once, (b) => {
    b.qp.setPeerExtensions(false);
    send(b, { opcode, ...(opcode === 'immediate' ? {} : { sges: [{ mr: b.mr, length: 8 }] }), ...change });
  });
}

// Work on own memory
const inv = (b: Bench, target: unknown): unknown => send(b, { opcode: 'local-invalidate', target });
add('postSend local-invalidate', 'target', INVALID, NOT_INSTANCE, inv);
add(
  'postSend local-invalidate',
  'a deregistered region or window',
  'ERR_INVALID_REGION',
  ['gone', 'goneMw'],
  (b, v: 'gone') => inv(b, b[v]),
);
add(
  'postSend local-invalidate',
  'a target of another domain',
  'ERR_WRONG_PD',
  ['foreign', 'foreignMw'],
  (b, v: 'foreign') => inv(b, b[v]),
);
add('postSend local-invalidate', 'a shared region', 'ERR_INVALID_STATE', once, (b) => {
  b.mr.registerShared(0);
  inv(b, b.mr);
});
const reg = (b: Bench, change: object): unknown =>
  send(b, { opcode: 'reg-mr', mr: b.fast, memory: new Uint8Array(8), access: 0, ...change });
add('postSend reg-mr', 'mr', INVALID, NOT_INSTANCE, (b, v) => reg(b, { mr: v }));
add('postSend reg-mr', 'a deregistered region', 'ERR_INVALID_REGION', once, (b) => reg(b, { mr: b.gone }));
add('postSend reg-mr', 'mr of another domain', 'ERR_WRONG_PD', once, (b) => reg(b, { mr: b.foreign }));
add('postSend reg-mr', 'memory', INVALID, [...NOT_VIEW, undefined], (b, v) => reg(b, { memory: v }));
add('postSend reg-mr', 'too much memory', 'ERR_TOO_LARGE', once, (b) =>
  reg(b, { memory: new Uint8Array(9) }),
);
add('postSend reg-mr', 'access', INVALID, [...NOT_INTEGER, undefined, 64, REMOTE_WRITE], (b, v) =>
  reg(b, { access: v }),
);
add('postSend reg-mr', 'remote rights on a local region', 'ERR_ACCESS', once, (b) =>
  reg(b, { mr: b.pd.allocateFastRegion(8, { remote: false }), access: REMOTE_READ }),
);
add(
  'postSend reg-mr',
  'iova',
  INVALID,
  NOT_U64.filter((v) => v !== null),
  (b, v) => reg(b, { iova: v }),
);
add('postSend reg-mr', 'key', INVALID, [...NOT_INTEGER, 256], (b, v) => reg(b, { key: v }));
add('postSend reg-mr', 'a forbidding queue pair', 'ERR_NOT_SUPPORTED', once, (b) =>
  b.pd
    .createQp({ sendCq: b.cq, recvCq: b.cq, allowFastRegister: false })
    .postSend({ opcode: 'reg-mr', mr: b.fast, memory: new Uint8Array(1), access: 0 }),
);
const bind = (b: Bench, change: object): unknown =>
  send(b, { opcode: 'bind-mw', mw: b.mw, mr: b.mr, access: REMOTE_READ, ...change });
add('postSend bind-mw', 'mw', INVALID, NOT_INSTANCE, (b, v) => bind(b, { mw: v }));
add('postSend bind-mw', 'mr', INVALID, NOT_INSTANCE, (b, v) => bind(b, { mr: v }));
add('postSend bind-mw', 'what has gone', 'ERR_INVALID_REGION', ['mw', 'mr'], (b, v) =>
  bind(b, v === 'mw' ? { mw: b.goneMw } : { mr: b.gone }),
);
add('postSend bind-mw', 'what belongs to another domain', 'ERR_WRONG_PD', ['mw', 'mr'], (b, v) =>
  bind(b, v === 'mw' ? { mw: b.foreignMw } : { mr: b.foreign }),
);
add('postSend bind-mw', 'access', INVALID, [...NOT_INTEGER, undefined, LOCAL_WRITE, MW_BIND], (b, v) =>
  bind(b, { access: v }),
);
add('postSend bind-mw', 'offset', INVALID, NOT_INTEGER, (b, v) => bind(b, { offset: v }));
add('postSend bind-mw', 'length', INVALID, NOT_INTEGER, (b, v) => bind(b, { length: v }));
add('postSend bind-mw', 'a range outside', 'ERR_OUT_OF_RANGE', once, (b) =>
  bind(b, { offset: 60, length: 5 }),
);
add('postSend bind-mw', 'a region without MW_BIND', 'ERR_ACCESS', once, (b) => bind(b, { mr: b.readOnly }));
add('postSend bind-mw', 'a zero-based region', 'ERR_INVALID_STATE', once, (b) =>
  bind(b, { mr: b.pd.registerMemory(new Uint8Array(8), MW_BIND) }),
);
add(
  'postSend bind-mw',
  'iova',
  INVALID,
  NOT_U64.filter((v) => v !== null),
  (b, v) => bind(b, { iova: v }),
);
add('postSend bind-mw', 'key', INVALID, [...NOT_INTEGER, 256], (b, v) => bind(b, { key: v }));
add('postSend bind-mw', 'a forbidding queue pair', 'ERR_NOT_SUPPORTED', once, (b) =>
  b.pd
    .createQp({ sendCq: b.cq, recvCq: b.cq, allowBind: false })
    .postSend({ opcode: 'bind-mw', mw: b.mw, mr: b.mr, access: REMOTE_READ }),
);

// Queue pair
add('modify (qp)', 'change', INVALID, NOT_OBJECT, (b, v) => b.qp.modify(v));
add('modify (qp)', 'state', INVALID, [null, 1, 'rtr', {}], (b, v) => b.qp.modify({ state: v }));
add('modify (qp)', 'a transition', 'ERR_INVALID_STATE', ['rts', 'closing', 'terminate'], (b, v) =>
  b.qp.modify({ state: v }),
);
for (const name of ['ord', 'maxSendWr', 'maxRecvWr', 'rqLimit'] as const) {
  add('modify (qp)', name, INVALID, [...NOT_INTEGER, 2 ** 30], (b, v) => b.qp.modify({ [name]: v }));
}
add('modify (qp)', 'maxRecvWr of a shared queue', 'ERR_INVALID_STATE', once, (b) =>
  b.shared.modify({ maxRecvWr: 4 }),
);
add('modify (qp)', 'a depth below what is in use', 'ERR_IN_USE', once, (b) => {
  b.qp.postSend([{ opcode: 'send' }, { opcode: 'send' }]);
  b.qp.modify({ maxSendWr: 1 });
});
add('modify (qp)', 'a destroyed queue pair', 'ERR_DESTROYED', once, (b) => b.deadQp.modify({}));
add('setPeerExtensions', 'supported', INVALID, NOT_BOOLEAN, (b, v) => b.qp.setPeerExtensions(v));
add('drainSend', 'a destroyed queue pair', 'ERR_DESTROYED', once, (b) => b.deadQp.drainSend());
add('drainRecv', 'a destroyed queue pair', 'ERR_DESTROYED', once, (b) => b.deadQp.drainRecv());
for (const name of ['drainSend', 'drainRecv'] as const) {
  add(name, 'options', INVALID, [null, 1, 'now'], (b, v) => b.qp[name](v));
  add(name, 'signal', INVALID, [null, 1, {}, new AbortController()], (b, v) => b.qp[name]({ signal: v }));
}
add('completions', 'options', INVALID, [null, 1, 'now'], (b, v) => b.cq.completions(v));
add('completions', 'signal', INVALID, [null, 1, {}], (b, v) => b.cq.completions({ signal: v }));

// A name that nobody knows is a typing error.
const misspelt: Readonly<Record<string, (b: Bench, unknown: object) => unknown>> = {
  Device: (_b, unknown) => new Device(unknown),
  createQp: (b, unknown) => b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, ...unknown }),
  createSrq: (b, unknown) => b.pd.createSrq({ maxWr: 4, ...unknown }),
  registerMemory: (b, unknown) => b.pd.registerMemory(new Uint8Array(1), LOCAL_WRITE, unknown),
  registerShared: (b, unknown) => b.mr.registerShared(LOCAL_WRITE, unknown),
  allocateFastRegion: (b, unknown) => b.pd.allocateFastRegion(1, unknown),
  reregister: (b, unknown) => b.mr.reregister(unknown),
  'modify (qp)': (b, unknown) => b.qp.modify(unknown),
  'modify (srq)': (b, unknown) => b.srq.modify(unknown),
};
for (const [call, make] of Object.entries(misspelt)) {
  add(call, 'names', INVALID, [{ maxSendWrr: 4 }, { toString: 1 }, { nosuch: undefined }], (b, v) =>
    make(b, v),
  );
}

describe('misuse', () => {
  for (const { call, wrong, code, values, make } of cases) {
    it(`${call} with wrong ${wrong} throws ${code} (VERBS-122)`, () => {
      for (const value of values) {
        const b = bench();
        const before = [b.device.query().inUse, b.mr.query(), b.pd.users, b.srq.query().maxWr];
        const text =
          typeof value === 'symbol' || typeof value === 'bigint' ? String(value) : JSON.stringify(value);
        expect(
          codeOf(() => make(b, value as never)),
          text,
        ).toBe(code);
        if (code !== INVALID) continue;
        expect([b.device.query().inUse, b.mr.query(), b.pd.users, b.srq.query().maxWr], text).toEqual(before);
      }
    });
  }

  it('covers every public method that takes arguments or can be refused', () => {
    const named = cases.map(({ call }) => call.split(' ')[0]);
    const internal = new Set([
      'use',
      'checkAlive',
      'queue',
      'settled',
      'take',
      'takeQpNumber',
      'forget',
      'raise',
      'fail',
      'push',
      'attach',
      'detach',
      'anticipate',
      'handleIn',
      'handleStreamEvent',
      'checkMemory',
      'connectionMemory',
      'sendCompleted',
      'receiveTaken',
      'receiveCompleted',
      'receivePolled',
      'counters',
      'lend',
      'takeBack',
      'release',
      'abandon',
      'constructor',
    ]);
    for (const type of [
      Device,
      ProtectionDomain,
      MemoryRegion,
      MemoryWindow,
      CompletionQueue,
      SharedReceiveQueue,
      QueuePair,
    ]) {
      for (const name of Object.getOwnPropertyNames(type.prototype)) {
        const { value } = Object.getOwnPropertyDescriptor(type.prototype, name)!;
        if (typeof value !== 'function' || internal.has(name)) continue;
        expect(named, `${type.name}.${name}`).toContain(name);
      }
    }
  });
});
