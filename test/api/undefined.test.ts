// An option that is undefined is an option that is not given: for the compiler under
// exactOptionalPropertyTypes too, which this project has on, and in all that a program hands to the package.
// `Nothing` asks for every optional name, so that a new option is missed here at once.
import { once } from 'node:events';
import { expect, it } from 'vitest';
import {
  connect,
  createServer,
  openRnic,
  RemoteBuffer,
  type AllocateOptions,
  type BindOptions,
  type ConnectOptions,
  type EndpointOptions,
  type OperationOptions,
  type RegisterOptions,
  type RnicOptions,
  type SendOptions,
  type ServerListenOptions,
  type ServerOptions,
  type Sge,
  type TargetOptions,
} from '../../src/index.ts';
import type { ConnectOptions as CmConnectOptions, ListenOptions } from '../../src/cm/index.ts';
import {
  connect as connectStream,
  createServer as createStreamServer,
  type ConnectOptions as StreamConnectOptions,
  type ListenOptions as StreamListenOptions,
  type RdmaSocketOptions,
  type ServerOptions as StreamServerOptions,
} from '../../src/sockets/index.ts';
import { MemoryTransport, pcapTap, randomFaults, realScheduler, TcpTransport } from '../../src/testing.ts';
import type {
  FaultRange,
  MemoryTransportOptions,
  PcapTapOptions,
  TcpTransportOptions,
} from '../../src/testing.ts';
import {
  ACCESS,
  type DeviceOptions,
  type FastRegionOptions,
  type QpChange,
  type QueuePairOptions,
  type ReceiveWorkRequest,
  type ReregisterOptions,
  type SrqOptions,
  type WaitOptions,
} from '../../src/verbs/index.ts';

type Optional<T> = { [K in keyof T]-?: object extends Pick<T, K> ? K : never }[keyof T];
/** Undefined for all that may be left out. */
type Nothing<T> = { readonly [K in Optional<T>]-?: undefined };

const target: Nothing<TargetOptions> = {
  host: undefined,
  port: undefined,
  path: undefined,
  messagePort: undefined,
  localAddress: undefined,
  localPort: undefined,
  family: undefined,
  tls: undefined,
  over: undefined,
};
const bind: Nothing<BindOptions> = {
  host: undefined,
  port: undefined,
  backlog: undefined,
  ipv6Only: undefined,
  reusePort: undefined,
  path: undefined,
  messagePort: undefined,
  readableAll: undefined,
  writableAll: undefined,
  tls: undefined,
};
const endpoint: Nothing<EndpointOptions> = {
  receiveDepth: undefined,
  maxMessageSize: undefined,
  sendDepth: undefined,
  receives: undefined,
  maxMessage: undefined,
  sends: undefined,
  credits: undefined,
  extensions: undefined,
  peerExtensions: undefined,
  pd: undefined,
  rnic: undefined,
  engine: undefined,
  preset: undefined,
  policy: undefined,
  ird: undefined,
  ord: undefined,
  closeLimit: undefined,
  callerStacks: undefined,
  keepAlive: undefined,
  keepAliveInitialDelay: undefined,
  heartbeat: undefined,
  operationTimeout: undefined,
  idleTimeout: undefined,
  maxRequests: undefined,
  maxLargeMessage: undefined,
  largeMessageMemory: undefined,
  largeMessageTimeout: undefined,
};
const wait: Nothing<OperationOptions & WaitOptions> = { signal: undefined, timeout: undefined };
const connecting: Nothing<ConnectOptions> = {
  ...endpoint,
  ...target,
  signal: undefined,
  privateData: undefined,
  connectTimeout: undefined,
};
const serving: Nothing<ServerOptions> = {
  ...endpoint,
  onRequest: undefined,
  onError: undefined,
  onFailure: undefined,
  maxPending: undefined,
  maxPendingPerAddress: undefined,
  maxConnections: undefined,
  maxConnectionsPerAddress: undefined,
  tls: undefined,
};
const listening: Nothing<ServerListenOptions> = { ...bind, signal: undefined };
const sending: Nothing<SendOptions> = { ...wait, solicited: undefined, invalidate: undefined };
const registering: Nothing<RegisterOptions> = {
  iova: undefined,
  queuePair: undefined,
  uses: undefined,
  shared: undefined,
  key: undefined,
};
const allocating: Nothing<AllocateOptions> = { ...registering, sharedMemory: undefined };
const part: Nothing<Sge> = { offset: undefined, length: undefined };
const device: Nothing<DeviceOptions> = {
  name: undefined,
  limits: undefined,
  crc32c: undefined,
  random: undefined,
  wire: undefined,
  defer: undefined,
};
const rnic: Nothing<RnicOptions> = {
  ...device,
  datagrams: undefined,
  trp: undefined,
  transport: undefined,
  scheduler: undefined,
  engine: undefined,
  engines: undefined,
  wire: undefined,
  busyPoll: undefined,
};
const queuePair: Nothing<QueuePairOptions> = {
  maxSendWr: undefined,
  maxRecvWr: undefined,
  maxSendSge: undefined,
  maxRecvSge: undefined,
  maxInline: undefined,
  srq: undefined,
  signalAll: undefined,
  inboundWrite: undefined,
  inboundRead: undefined,
  extensions: undefined,
  ird: undefined,
  ord: undefined,
  allowBind: undefined,
  allowFastRegister: undefined,
  readSink: undefined,
  rqLimit: undefined,
  context: undefined,
};
const change: Nothing<QpChange> = {
  state: undefined,
  ord: undefined,
  maxSendWr: undefined,
  maxRecvWr: undefined,
  rqLimit: undefined,
};
const shared: Nothing<SrqOptions> = { maxSge: undefined, limit: undefined };
const receive: Nothing<ReceiveWorkRequest> = { wrId: undefined, sges: undefined };
const anew: Nothing<ReregisterOptions> = {
  memory: undefined,
  access: undefined,
  pd: undefined,
  iova: undefined,
};
const fast: Nothing<FastRegionOptions> = { remote: undefined };
const cmConnecting: Nothing<CmConnectOptions> = {
  host: undefined,
  port: undefined,
  path: undefined,
  messagePort: undefined,
  localAddress: undefined,
  localPort: undefined,
  family: undefined,
  tls: undefined,
  over: undefined,
  privateData: undefined,
  responderResources: undefined,
  initiatorDepth: undefined,
  policy: undefined,
  framing: undefined,
  confirm: undefined,
  keepAlive: undefined,
  keepAliveInitialDelay: undefined,
};
const cmListening: Nothing<ListenOptions> = {
  ...bind,
  policy: undefined,
  framing: undefined,
  maxPending: undefined,
  maxPendingPerAddress: undefined,
  maxConnections: undefined,
  maxConnectionsPerAddress: undefined,
  keepAlive: undefined,
  keepAliveInitialDelay: undefined,
  onFailure: undefined,
};
const stream: Nothing<RdmaSocketOptions> = {
  protocol: undefined,
  mode: undefined,
  zeroCopyFrom: undefined,
  maxAdverts: undefined,
  privateBuffers: undefined,
  placement: undefined,
  receiveBuffer: undefined,
  sendBuffer: undefined,
  credits: undefined,
  iomapSize: undefined,
  allowHalfOpen: undefined,
  keepAlive: undefined,
  keepAliveInitialDelay: undefined,
  timeout: undefined,
  highWaterMark: undefined,
  signal: undefined,
  rnic: undefined,
};
const streamConnecting: Nothing<StreamConnectOptions> = {
  ...stream,
  ...target,
  policy: undefined,
  onread: undefined,
  lookup: undefined,
  hints: undefined,
};
const streamServing: Nothing<StreamServerOptions> = {
  ...stream,
  policy: undefined,
  onread: undefined,
  pauseOnConnect: undefined,
  maxConnectionsPerAddress: undefined,
  tls: undefined,
};
const streamListening: Nothing<StreamListenOptions> = { ...bind, signal: undefined };
const tcp: Nothing<TcpTransportOptions> = { receive: undefined, allocate: undefined, busyPoll: undefined };
const memory: Nothing<MemoryTransportOptions> = {
  latency: undefined,
  bandwidth: undefined,
  buffer: undefined,
  readOctets: undefined,
  verifyWrites: undefined,
  names: undefined,
};
const pcap: Nothing<PcapTapOptions> = {
  mss: undefined,
  epoch: undefined,
  firstSequence: undefined,
  cut: undefined,
};
const faults: Nothing<FaultRange> = {
  count: undefined,
  kinds: undefined,
  directions: undefined,
  milliseconds: undefined,
};

it('in the promise layer', async () => {
  const server = await createServer(serving, async (connection) => {
    await connection.send(connection.share(connection.allocate(64, 'all', allocating)).toBytes(), sending);
    for await (const message of connection.messages(wait)) message.release();
  }).listen(listening);
  const connection = await connect({ ...connecting, port: server.address().port });
  const remote = RemoteBuffer.fromBytes((await connection.receive(wait))!.data);
  const region = connection.pd.registerMemory(
    connection.pd.device.allocateMemory(64),
    ACCESS.LOCAL_WRITE,
    registering,
  );
  await connection.write({ mr: region, ...part }, remote, wait);
  await connection.fetchAdd(remote, 1n, { ...wait, addMask: undefined });
  await connection.compareSwap(remote, 1n, 2n, { ...wait, compareMask: undefined, swapMask: undefined });
  expect((await connection.read(remote, undefined, wait))[0]! + (await connection.read(remote))[7]!).toBe(2);
  await connection.sendImmediate(1n, { ...wait, solicited: undefined });
  await connection.drain(wait);
  region.deregister();
  await connection.close(wait);
  await server.close(wait);
});

it('in verbs and the connection manager', async () => {
  const { device: made, cm } = openRnic(rnic);
  const pd = made.allocatePd();
  const cq = made.createCq(16);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, ...queuePair });
  qp.modify(change);
  qp.postRecv(receive);
  const srq = pd.createSrq({ maxWr: 4, ...shared });
  srq.modify({ maxWr: undefined, limit: undefined });
  const region = pd.registerMemory(made.allocateMemory(8), ACCESS.LOCAL_WRITE, registering);
  const same = region.registerShared(ACCESS.LOCAL_WRITE, { ...registering, pd: undefined });
  same.deregister();
  region.reregister(anew);
  pd.allocateFastRegion(64, fast).deregister();
  const listener = await cm.listen({ ...cmListening, host: '127.0.0.1' }, (request) => request.reject());
  const ended = new Promise<string>((resolve) =>
    cm
      .connect(qp, { ...cmConnecting, host: '127.0.0.1', port: listener.address.port })
      .setHandler((event) => event.type === 'rejected' && resolve(event.type)),
  );
  expect(await ended).toBe('rejected');
  listener.close();
});

it('in byte streams', async () => {
  const server = createStreamServer(streamServing, (peer) => peer.end('bye')).listen(streamListening);
  await once(server, 'listening');
  const socket = connectStream({ ...streamConnecting, port: (server.address() as { port: number }).port });
  expect(String(Buffer.concat((await socket.toArray()) as Buffer[]))).toBe('bye');
  await server[Symbol.asyncDispose]();
});

it('in the networks for tests', () => {
  expect(new TcpTransport(tcp).receive).toBe(new TcpTransport().receive);
  expect(new MemoryTransport(realScheduler, memory)).toBeInstanceOf(MemoryTransport);
  expect(randomFaults(1, { octets: 10, ...faults })).toEqual(randomFaults(1, { octets: 10 }));
  pcapTap(() => undefined, pcap);
});

it('a device that is given no `defer` has that of its clock', () => {
  let deferred = 0;
  const { device: made } = openRnic({
    ...device,
    scheduler: { now: () => 0, at: () => () => undefined, defer: () => deferred++ },
  });
  made.defer(() => undefined);
  expect(deferred).toBe(1);
});
