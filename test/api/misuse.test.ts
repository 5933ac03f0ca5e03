// Every public call of the promise layer with every kind of wrong argument: each throws or rejects at once,
// with its code, and the connection that it was made on lives on.
// cspell:ignore sginal recieves solicitd initator
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  captureTo,
  connect,
  Connection,
  createServer,
  defaultRnic,
  IwarpError,
  openRnic,
  RemoteBuffer,
  Server,
  traceFrames,
  traceTransitions,
  type MemoryRegion,
  type Rnic,
} from '../../src/index.ts';
import type { PassiveConnection } from '../../src/cm/index.ts';
import { resolvePolicy } from '../../src/mpa/policy.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { Device, type QueuePair } from '../../src/verbs/index.ts';
import { pairOf, rnicOf, type Ends } from './support.ts';

let ends: Ends;
let c: Connection;
let remote: RemoteBuffer;
let region: MemoryRegion;
let readOnly: MemoryRegion;
let foreign: MemoryRegion;
let gone: MemoryRegion;
let server: Server;

beforeAll(async () => {
  ends = await pairOf('memory', {}, { maxLargeMessage: 0 });
  c = ends.client;
  remote = ends.server.share(ends.server.allocate(64));
  region = c.allocate(64);
  readOnly = c.allocate(64, 0);
  const { device } = openRnic();
  foreign = device.allocatePd().registerMemory(device.allocateMemory(8), 31);
  gone = c.allocate(8);
  gone.deregister();
  server = createServer({ rnic: rnicOf('memory') });
});
afterAll(() => ends.close());

const NOT_OBJECT = [null, 1, 'text', true, 1n];
/** A number is a port where a call takes one in place of options. */
const notPort = (value: unknown): boolean => typeof value !== 'number';
const NOT_INTEGER = [null, '1', 1.5, Number.NaN, -1, {}, true, 1n];
const NOT_BOOLEAN = [null, 0, 1, 'true', {}];
const NOT_MEMORY = [null, undefined, 7, {}, [1, 2], new ArrayBuffer(4), { mr: {} }];
const NOT_VIEW = [null, 7, 'octets', [1, 2], {}, new ArrayBuffer(4)];
const NOT_U64 = [null, undefined, -1, -1n, 1.5, 2n ** 64n, '1', {}, Number.NaN];
const NOT_REMOTE = [undefined, null, 1, 'x', {}, { rkey: 1, address: 0n, length: 8 }];
const NOT_SIGNAL = [null, 1, 'stop', {}, new AbortController()];
const NOT_FUNCTION = [null, 1, 'f', {}];
const INVALID = 'ERR_INVALID_ARGUMENT';
const once = [undefined];
const idle = (): QueuePair => {
  const { device } = defaultRnic();
  const cq = device.createCq(1);
  return device.allocatePd().createQp({ sendCq: cq, recvCq: cq });
};
const PORT = { host: '127.0.0.1', port: 4711 };

interface Case {
  readonly call: string;
  readonly wrong: string;
  readonly code: string;
  readonly values: readonly unknown[];
  readonly make: (value: never) => unknown;
}

const cases: Case[] = [];
const add = (
  call: string,
  wrong: string,
  code: string,
  values: readonly unknown[],
  make: (value: never) => unknown,
): void => {
  cases.push({ call, wrong, code, values, make });
};

// What closes connections and listeners of the connection manager.
add('CmConnection.terminate', 'code', INVALID, [undefined, ...NOT_INTEGER, 0x1_0001], (v) => {
  for (const connection of ends.rnic.cm.connections) connection.terminate(v);
});
add('CmListener.close', 'done', INVALID, NOT_FUNCTION, async (v) => {
  const listener = await defaultRnic().cm.listen({ host: '127.0.0.1' }, () => undefined);
  try {
    listener.close(v);
  } finally {
    listener.close();
  }
});

// What every call that waits has in common.
const waits: Readonly<Record<string, (options: never) => unknown>> = {
  send: (o) => c.send('x', o),
  sendImmediate: (o) => c.sendImmediate(1n, o),
  write: (o) => c.write(region, remote, o),
  writeImmediate: (o) => c.writeImmediate(region, remote, 1n, o),
  read: (o) => c.read(remote, region, o),
  fetchAdd: (o) => c.fetchAdd(remote, 1n, o),
  compareSwap: (o) => c.compareSwap(remote, 1n, 2n, o),
  receive: (o) => c.receive(o),
  messages: (o) => c.messages(o).next(),
  drain: (o) => c.drain(o),
  rtt: (o) => c.rtt(o),
  request: (o) => c.request('x', o),
  requests: (o) => c.requests(o).next(),
  streams: (o) => c.streams(o).next(),
  lookup: (o) => c.lookup('x', o),
  close: (o) => c.close(o),
  'Server.accept': (o) => server.accept(o),
  'Server.close': (o) => server.close(o),
  'Server.shutdown': (o) => server.shutdown(o),
  'Server.listen': (o) => server.listen(o),
};
for (const [call, make] of Object.entries(waits)) {
  add(call, 'options', INVALID, NOT_OBJECT.filter(notPort), (v) => make(v));
  add(call, 'signal', INVALID, NOT_SIGNAL, (v) => make({ signal: v } as never));
}

// Connection
add('send', 'data', INVALID, NOT_MEMORY, (v) => c.send(v));
add('send', 'solicited', INVALID, NOT_BOOLEAN, (v) => c.send('x', { solicited: v }));
add('send', 'invalidate', INVALID, [...NOT_INTEGER, 2 ** 32], (v) => c.send('x', { invalidate: v }));
add('request', 'data', INVALID, [null, 1, {}], (v) => c.request(v));
add('serve', 'handler', INVALID, [undefined, null, 1, 'x'], (v) => c.serve(v));
add('lend', 'memory', INVALID, [undefined, null, 1, {}], (v) => c.lend(v, 'read'));
add('lend', 'options', INVALID, NOT_OBJECT, (v) => c.lend(region, 'read', v));
add('stream', 'name', INVALID, [null, 1, {}], (v) => c.stream(v));
add('publish', 'name', INVALID, [undefined, '', 1, 'x'.repeat(256)], (v) => c.publish(v, region));
add('publish', 'memory', INVALID, [undefined, 1, {}], (v) => c.publish('x', v));
add('lookup', 'name', INVALID, [undefined, '', 1, 'x'.repeat(256)], (v) => c.lookup(v));
add('send', 'more than the peer takes', 'ERR_TOO_LARGE', once, () => c.send(new Uint8Array(16_385)));
add('sendImmediate', 'value', INVALID, [...NOT_U64, 0x6957_6372_0000_0001n, 0x6957_6362_0000_0000n], (v) =>
  c.sendImmediate(v),
);
add('sendImmediate', 'solicited', INVALID, NOT_BOOLEAN, (v) => c.sendImmediate(1n, { solicited: v }));
add('writeImmediate', 'value', INVALID, [...NOT_U64, 0x6957_6372_0000_0001n], (v) =>
  c.writeImmediate(region, remote, v),
);
const moves: Readonly<Record<string, (local: never, remote: never) => unknown>> = {
  write: (local, to) => c.write(local, to),
  writeImmediate: (local, to) => c.writeImmediate(local, to, 1n),
  read: (local, from) => c.read(from, local),
};
for (const [call, make] of Object.entries(moves)) {
  // Without local memory a Read makes some.
  add(
    call,
    'local',
    INVALID,
    NOT_MEMORY.filter((value) => call !== 'read' || value !== undefined),
    (v) => make(v, remote as never),
  );
  add(call, 'remote', INVALID, NOT_REMOTE, (v) => make(region as never, v));
  add(call, 'an offset', INVALID, NOT_INTEGER, (v) =>
    make({ mr: region, offset: v } as never, remote as never),
  );
  add(call, 'a length', INVALID, NOT_INTEGER, (v) =>
    make({ mr: region, length: v } as never, remote as never),
  );
  add(
    call,
    'a part beyond the region',
    'ERR_OUT_OF_RANGE',
    [{ offset: 65 }, { offset: 60, length: 5 }],
    (v: object) => make({ mr: region, ...v } as never, remote as never),
  );
  add(call, 'more than the remote buffer has', 'ERR_OUT_OF_RANGE', once, () =>
    make(new Uint8Array(65) as never, remote as never),
  );
  add(call, 'a region of another domain', 'ERR_WRONG_PD', once, () =>
    make(foreign as never, remote as never),
  );
  add(call, 'a region that is gone', 'ERR_INVALID_REGION', once, () => make(gone as never, remote as never));
}
add('read', 'a region without the right', 'ERR_ACCESS', once, () => c.read(remote, readOnly));
const atomics: Readonly<Record<string, (to: never) => unknown>> = {
  fetchAdd: (to) => c.fetchAdd(to, 1n),
  compareSwap: (to) => c.compareSwap(to, 1n, 2n),
};
for (const [call, make] of Object.entries(atomics)) {
  add(call, 'remote', INVALID, NOT_REMOTE, (v) => make(v));
  add(call, 'a remote buffer below eight octets', 'ERR_OUT_OF_RANGE', once, () =>
    make(new RemoteBuffer(1, 0n, 7) as never),
  );
}
add('fetchAdd', 'add', INVALID, NOT_U64, (v) => c.fetchAdd(remote, v));
add('fetchAdd', 'addMask', INVALID, NOT_U64.slice(2), (v) => c.fetchAdd(remote, 1n, { addMask: v }));
add('compareSwap', 'compare', INVALID, NOT_U64, (v) => c.compareSwap(remote, v, 1n));
add('compareSwap', 'swap', INVALID, NOT_U64, (v) => c.compareSwap(remote, 1n, v));
for (const mask of ['compareMask', 'swapMask'] as const)
  add('compareSwap', mask, INVALID, NOT_U64.slice(2), (v) => c.compareSwap(remote, 1n, 2n, { [mask]: v }));
add('register', 'memory', INVALID, [undefined, ...NOT_VIEW], (v) => c.register(v));
add('register', 'access', INVALID, [null, 'everything', 1 << 20, -1, 1.5, {}], (v) =>
  c.register(new Uint8Array(1), v),
);
add('register', 'options', INVALID, NOT_OBJECT, (v) => c.register(new Uint8Array(1), 'read', v));
add('allocate', 'octets', INVALID, [...NOT_INTEGER, undefined, 2 ** 32], (v) => c.allocate(v));
add('allocate', 'access', INVALID, [null, 'everything', 1 << 20], (v) => c.allocate(1, v));
add('allocate', 'options', INVALID, NOT_OBJECT, (v) => c.allocate(1, 'read', v));
add('allocate', 'sharedMemory', INVALID, NOT_BOOLEAN, (v) => c.allocate(1, 'read', { sharedMemory: v }));
add('setKeepAlive', 'on', INVALID, [undefined, ...NOT_BOOLEAN], (v) => c.setKeepAlive(v));
add('setKeepAlive', 'delay', INVALID, NOT_INTEGER, (v) => c.setKeepAlive(true, v));
add('share', 'memory', INVALID, [undefined, null, 1, {}, new Uint8Array(1)], (v) => c.share(v));
add('share', 'offset', INVALID, NOT_INTEGER, (v) => c.share(region, v));
add('share', 'length', INVALID, NOT_INTEGER, (v) => c.share(region, 0, v));
add(
  'share',
  'a part beyond the region',
  'ERR_OUT_OF_RANGE',
  [[65], [0, 65], [64, 1], [2 ** 40]],
  (v: [number, number?]) => c.share(region, ...v),
);
add('share', 'a region of another domain', 'ERR_WRONG_PD', once, () => c.share(foreign));
add('share', 'a region that is gone', 'ERR_INVALID_REGION', once, () => c.share(gone));

// RemoteBuffer
add('RemoteBuffer', 'rkey', INVALID, [...NOT_INTEGER, undefined, 2 ** 32], (v) => new RemoteBuffer(v, 0n, 1));
add('RemoteBuffer', 'address', INVALID, NOT_U64, (v) => new RemoteBuffer(1, v, 1));
add(
  'RemoteBuffer',
  'length',
  INVALID,
  [...NOT_INTEGER, undefined, 2 ** 32],
  (v) => new RemoteBuffer(1, 0n, v),
);
add('RemoteBuffer.of', 'region', INVALID, [undefined, ...NOT_OBJECT, {}], (v) => RemoteBuffer.of(v));
add('RemoteBuffer.slice', 'offset', INVALID, [...NOT_INTEGER, undefined], (v) => remote.slice(v));
add('RemoteBuffer.slice', 'length', INVALID, NOT_INTEGER, (v) => remote.slice(0, v));
add(
  'RemoteBuffer.slice',
  'a part beyond the buffer',
  'ERR_OUT_OF_RANGE',
  [[65], [0, 65], [64, 1], [2 ** 40]],
  (v: [number, number?]) => remote.slice(...v),
);
add('RemoteBuffer.fromBytes', 'data', INVALID, [undefined, ...NOT_VIEW, new Uint8Array(15)], (v) =>
  RemoteBuffer.fromBytes(v),
);
add(
  'RemoteBuffer.fromJSON',
  'value',
  INVALID,
  [undefined, null, 1, 'x', {}, { address: 1, rkey: 1, length: 1 }, { address: '1', rkey: 'x', length: 1 }],
  (v) => RemoteBuffer.fromJSON(v),
);

// Both doors
const doors: Readonly<Record<string, (options: object) => unknown>> = {
  connect: (o) => connect({ ...PORT, ...o }),
  createServer: (o) => createServer(o),
};
for (const [call, make] of Object.entries(doors)) {
  for (const name of ['receives', 'sends'] as const)
    add(call, name, INVALID, [...NOT_INTEGER, 0, 2 ** 30], (v) => make({ [name]: v }));
  for (const name of ['ird', 'ord'] as const)
    add(call, name, INVALID, [...NOT_INTEGER, 99_999], (v) => make({ [name]: v }));
  add(call, 'maxMessage', INVALID, NOT_INTEGER, (v) => make({ maxMessage: v }));
  add(call, 'more buffers than can be', 'ERR_TOO_LARGE', once, () =>
    make({ receives: 60_000, maxMessage: 1 << 20 }),
  );
  for (const name of ['credits', 'extensions', 'peerExtensions'] as const)
    add(call, name, INVALID, NOT_BOOLEAN, (v) => make({ [name]: v }));
  add(call, 'pd', INVALID, [null, 1, {}], (v) => make({ pd: v }));
  add(call, 'a pd of another device', 'ERR_WRONG_PD', once, () => make({ pd: foreign.pd }));
  add(call, 'rnic', INVALID, [null, 1, {}], (v) => make({ rnic: v }));
  add(call, 'engine', INVALID, [null, 1, 'gpu'], (v) => make({ engine: v }));
  add(call, 'preset', INVALID, [null, 1, 'mellanox', 'toString'], (v) => make({ preset: v }));
  add(call, 'policy', INVALID, NOT_OBJECT, (v) => make({ policy: v }));
  add(call, 'an unknown policy', INVALID, once, () => make({ policy: { colour: 1 } }));
  add(call, 'crc', INVALID, [null, 1, 'maybe'], (v) => make({ policy: { crc: v } }));
  add(call, 'closeTimeout', INVALID, NOT_INTEGER, (v) => make({ policy: { closeTimeout: v } }));
}
add('connect', 'options', INVALID, [undefined, ...NOT_OBJECT.filter(notPort)], (v) => connect(v));
add('connect', 'port', INVALID, [...NOT_INTEGER, undefined, 0, 65_536], (v) =>
  connect({ host: 'localhost', port: v }),
);
add('connect', 'host', INVALID, [null, 1, {}, ''], (v) => connect({ ...PORT, host: v }));
add(
  'connect',
  'localAddress',
  INVALID,
  [null, 1, {}, '', 'localhost', '127.0.0.1:80', '[::1]', '1.2.3'],
  (v) => connect({ ...PORT, localAddress: v }),
);
add('connect', 'localPort', INVALID, [...NOT_INTEGER, 65_536], (v) => connect({ ...PORT, localPort: v }));
add('connect', 'family', INVALID, [null, 5, '4'], (v) => connect({ ...PORT, family: v }));
add('connect', 'privateData', INVALID, NOT_VIEW, (v) => connect({ ...PORT, privateData: v }));
add('connect', 'too much private data', 'ERR_TOO_LARGE', once, () =>
  connect({ ...PORT, privateData: new Uint8Array(493) }),
);
add('connect', 'signal', INVALID, NOT_SIGNAL, (v) => connect({ ...PORT, signal: v }));
add('createServer', 'options', INVALID, NOT_OBJECT, (v) => createServer(v));
add('createServer', 'onConnection', INVALID, NOT_FUNCTION, (v) => createServer({}, v));
for (const name of ['onRequest', 'onError', 'onFailure'] as const)
  add('createServer', name, INVALID, NOT_FUNCTION, (v) => createServer({ [name]: v }));
for (const name of ['maxPending', 'maxPendingPerAddress', 'maxConnections', 'maxConnectionsPerAddress'])
  add('createServer', name, INVALID, [...NOT_INTEGER, 0], (v) => createServer({ [name]: v }));
add('Server.listen', 'host', INVALID, [null, 1, ''], (v) => createServer().listen({ host: v }));
add('Server.listen', 'port', INVALID, [...NOT_INTEGER, 65_536], (v) => createServer().listen({ port: v }));
add('Server.listen', 'backlog', INVALID, [...NOT_INTEGER, 0], (v) => createServer().listen({ backlog: v }));
add('Server.listen', 'ipv6Only', INVALID, NOT_BOOLEAN, (v) => createServer().listen({ ipv6Only: v }));
add('Server.listen', 'reusePort', INVALID, NOT_BOOLEAN, (v) => createServer().listen({ reusePort: v }));
add('Server.address', 'a server that does not listen', 'ERR_INVALID_STATE', once, () =>
  createServer().address(),
);
add('openRnic', 'options', INVALID, NOT_OBJECT, (v) => openRnic(v));
add('openRnic', 'transport', INVALID, [null, 1, {}], (v) => openRnic({ transport: v }));
add('openRnic', 'engine', INVALID, [null, 1, 'gpu'], (v) => openRnic({ engine: v }));
add('openRnic', 'engines', INVALID, [...NOT_INTEGER, 0], (v) => openRnic({ engines: v }));
add('openRnic', 'busyPoll', INVALID, [...NOT_INTEGER, 10_001], (v) => openRnic({ busyPoll: v }));
add('openRnic', 'busyPoll', INVALID, [0, 50], (v) =>
  openRnic({ busyPoll: v, transport: new MemoryTransport(realScheduler) }),
);
add('openRnic', 'scheduler', INVALID, [null, 1, {}], (v) => openRnic({ scheduler: v }));
add('traceTransitions', 'listener', INVALID, NOT_FUNCTION, (v) => traceTransitions(v));
add('traceFrames', 'listener', INVALID, NOT_FUNCTION, (v) => traceFrames(v));
add('captureTo', 'path', INVALID, [undefined, null, 1, ''], (v) => captureTo(v));

/** The beginning of the message: the caller's own name of the wrong argument. */
const named: readonly (readonly [string, () => unknown])[] = [
  ['offset must be', () => remote.slice('1' as never)],
  ['length must be', () => remote.slice(0, null as never)],
  ['length must be', () => c.share(region, 0, 1.5)],
  ['region must be', () => RemoteBuffer.of(undefined as never)],
  ['options.hots is not a known option', () => connect({ ...PORT, hots: 'x' } as never)],
  ['options.toString is not', () => connect({ ...PORT, toString: () => 'x' } as never)],
  ['options.recieves is not', () => createServer({ recieves: 4 } as never)],
  ['options.prot is not', () => createServer().listen({ prot: 4711 } as never)],
  ['options.nosuch is not', () => openRnic({ nosuch: undefined } as never)],
  ['options.nosuch is not', () => new Device({ nosuch: 1 } as never)],
  ['options.nosuch is not', () => c.register(new Uint8Array(1), 'read', { nosuch: 1 } as never)],
  ['options.nosuch is not', () => c.allocate(1, 'read', { nosuch: 1 } as never)],
  ['options.solicitd is not', () => c.send('x', { solicitd: true } as never)],
  ['options.invalidate is not', () => c.sendImmediate(1n, { invalidate: 1 } as never)],
  ['options.sginal is not', () => c.write(region, remote, { sginal: undefined } as never)],
  ['options.sginal is not', () => c.writeImmediate(region, remote, 1n, { sginal: undefined } as never)],
  ['options.sginal is not', () => c.read(remote, region, { sginal: undefined } as never)],
  ['options.mask is not', () => c.fetchAdd(remote, 1n, { mask: 1n } as never)],
  ['options.mask is not', () => c.compareSwap(remote, 1n, 1n, { mask: 1n } as never)],
  ['options.deadline is not', () => c.receive({ deadline: 1 } as never)],
  ['options.deadline is not', () => c.drain({ deadline: 1 } as never)],
  ['options.deadline is not', () => c.close({ deadline: 1 } as never)],
  ['options.deadline is not', () => createServer().accept({ deadline: 1 } as never)],
  ['options.deadline is not', () => createServer().close({ deadline: 1 } as never)],
  ['options.deadline is not', () => c.pd.device.createCq(1).completions({ deadline: 1 } as never)],
  ['options.prot is not', () => defaultRnic().cm.listen({ prot: 1 } as never, () => undefined)],
  [
    'options.initatorDepth is not',
    () => defaultRnic().cm.connect(idle(), { ...PORT, initatorDepth: 1 } as never),
  ],
  ['options.wire must be one of iwarp', () => openRnic({ wire: 'pigeon' as never })],
  ['options.engine must be', () => connect({ ...PORT, engine: 'gpu' as never })],
  ['engine must be', () => defaultRnic('gpu' as never)],
  ['options.policy must be', () => createServer({ policy: 5 as never })],
  ['options.policy.crc must be', () => connect({ ...PORT, policy: { crc: 'maybe' as never } })],
  ['options.policy.colour is', () => connect({ ...PORT, policy: { colour: 1 } as never })],
  ['policy.rtrOffered must be', () => resolvePolicy({ rtrOffered: [] })],
  ['options.crc32c must be one of auto, simd, wasm, js, crc-32', () => openRnic({ crc32c: 'x' as never })],
  ['options.crc32c must be', () => new Device({ crc32c: 'x' as never })],
  ['data must be a string, a MemoryRegion, an Sge or an ArrayBufferView', () => c.send(5 as never)],
  ['local must be a MemoryRegion, an Sge or an ArrayBufferView', () => c.write(5 as never, remote)],
  ['data.offset must be', () => c.send({ mr: region, offset: '1' as never })],
];

/** The same, with other codes. */
const elements: readonly (readonly [string, string, () => unknown])[] = [
  ['ERR_INVALID_REGION', 'data has been deregistered', () => c.send(gone)],
  ['ERR_INVALID_REGION', 'data.mr has been deregistered', () => c.send({ mr: gone })],
  ['ERR_WRONG_PD', 'local belongs', () => c.write(foreign, remote)],
  ['ERR_ACCESS', 'local does not grant', () => c.read(remote, readOnly)],
  ['ERR_OUT_OF_RANGE', 'data.offset 65', () => c.send({ mr: region, offset: 65 })],
  ['ERR_OUT_OF_RANGE', 'data: 5 bytes', () => c.send({ mr: region, offset: 60, length: 5 })],
];

it('each depth of a connection is bounded by its own limit of the device (VERBS-018)', async () => {
  const rnic = openRnic({ limits: { maxQpRdAtom: 8, maxQpInitRdAtom: 4 } });
  const cq = rnic.device.createCq(4);
  const qp = rnic.device.allocatePd().createQp({ sendCq: cq, recvCq: cq });
  const within = { responderResources: 8, initiatorDepth: 4 };
  for (const [name, wrong] of [
    ['responderResources', 9],
    ['initiatorDepth', 5],
  ] as const) {
    const refused = expect.objectContaining({
      code: INVALID,
      message: `options.${name} must be an integer from 0 to ${wrong - 1}, got ${wrong}`,
    }) as Error;
    expect(() => rnic.cm.connect(qp, { ...PORT, ...within, [name]: wrong })).toThrow(refused);
    const requests: PassiveConnection[] = [];
    const listener = await rnic.cm.listen({ host: '127.0.0.1' }, (request) => requests.push(request));
    const peer = openRnic();
    const theirs = peer.device.createCq(4);
    peer.cm.connect(peer.device.allocatePd().createQp({ sendCq: theirs, recvCq: theirs }), {
      host: '127.0.0.1',
      port: listener.address.port,
    });
    await vi.waitFor(() => expect(requests).toHaveLength(1));
    expect(() => requests[0]!.accept(qp, { ...within, [name]: wrong })).toThrow(refused);
    requests[0]!.reject();
    listener.close();
  }
});

it('neither connects nor accepts onto a queue pair of another device; the request stays open', async () => {
  const [rnic, other] = [openRnic(), openRnic()];
  const pair = ({ device }: Rnic): QueuePair => {
    const cq = device.createCq(4);
    return device.allocatePd().createQp({ sendCq: cq, recvCq: cq });
  };
  const refused = expect.objectContaining({
    code: 'ERR_WRONG_PD',
    message: 'qp belongs to another device',
  }) as Error;
  const requests: PassiveConnection[] = [];
  const listener = await rnic.cm.listen({ host: '127.0.0.1' }, (request) => requests.push(request));
  const [theirs, ours] = [pair(other), pair(rnic)];
  const port = { host: '127.0.0.1', port: listener.address.port };
  expect(() => rnic.cm.connect(theirs, port)).toThrow(refused);
  other.cm.connect(theirs, port);
  await vi.waitFor(() => expect(requests).toHaveLength(1));
  expect(() => requests[0]!.accept(pair(other))).toThrow(refused);
  requests[0]!.accept(ours);
  await vi.waitFor(() => expect([theirs.state, ours.state]).toEqual(['rts', 'rts']));
  requests[0]!.abort();
  listener.close();
});

describe('misuse', () => {
  it.each([...named.map(([words, make]) => [INVALID, words, make] as const), ...elements])(
    '%s says what was wrong: %s',
    async (code, words, make) => {
      const error = await (async () => make())().then(
        () => 'nothing',
        (reason: unknown) => reason,
      );
      expect(error).toMatchObject({ code, message: expect.stringContaining(words) as string });
      expect((error as IwarpError).message.startsWith(words), (error as IwarpError).message).toBe(true);
    },
  );

  for (const { call, wrong, code, values, make } of cases) {
    it(`${call}: ${wrong} is ${code}`, async () => {
      for (const value of values) {
        const error = await (async () => make(value as never))().then(
          () => 'nothing',
          (reason: unknown) => reason,
        );
        expect(error, `${call} with ${String(value)}`).toBeInstanceOf(IwarpError);
        expect((error as IwarpError).code, (error as IwarpError).message).toBe(code);
      }
      expect([c.state, c.pending]).toEqual(['open', 0]);
    });
  }

  it('leaves the connection as it was: right calls still move bytes', async () => {
    await c.write(new Uint8Array(64).fill(7), remote);
    expect((await c.read(remote))[63]).toBe(7);
    expect(c.pd.device.query().inUse.mr).toBe(ends.server.pd.device.query().inUse.mr);
  });

  it('covers every public method that takes arguments', () => {
    const named = new Set(cases.map(({ call }) => call));
    const withoutArguments = new Set([
      'constructor',
      'counters',
      'measureLatency',
      'destroy',
      'handleEvent', // internal, as `take` of a server
      'take',
      'stopListening',
      'ref',
      'unref',
      'toBytes',
      'toJSON',
    ]);
    for (const [type, prefix] of [
      [Connection, ''],
      [Server, 'Server.'],
      [RemoteBuffer, 'RemoteBuffer.'],
    ] as const) {
      for (const name of Object.getOwnPropertyNames(type.prototype)) {
        const { value } = Object.getOwnPropertyDescriptor(type.prototype, name)!;
        if (typeof value === 'function' && !withoutArguments.has(name))
          expect([...named], `${type.name}.${name}`).toContain(`${prefix}${name}`);
      }
    }
  });
});
