/** Requests in the names of others: the program accepts them, and their clients are never heard. */
import { expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import type { CmEvent } from '../../src/cm/events.ts';
import type { ListenFailure, PassiveConnection } from '../../src/cm/listener.ts';
import { MemoryDatagrams } from '../../src/simnet/datagrams.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';
import { encodeTrpSetup } from '../../src/trp/wire.ts';
import { DATA, REQUEST, World } from './support.ts';

const PORT = 7000;
const MOST = 16;

it('is established when the client has been heard at the new port, and not before', () => {
  const world = new World({ network: { latency: 1 } });
  let passes = false;
  // The client's confirmation of the accept.
  world.network.mayPass = ({ opcode, to }) => passes || opcode !== DATA || to.port === PORT;
  world.listen();
  world.client.watch(world.client.rnic.cm.connect(world.client.qp, { host: world.host, port: PORT }));
  world.run(500);
  expect(world.requests.map(({ state }) => state)).toEqual(['accepting']);
  expect(world.server.eventTypes).toEqual([]);
  passes = true;
  world.run(500);
  expect(world.server.eventTypes).toEqual(['established']);
});

it('ends without having been established if the client is never heard', () => {
  const world = new World({ network: { latency: 1 } });
  world.network.mayPass = ({ opcode }) => opcode !== DATA;
  world.listen();
  world.client.watch(world.client.rnic.cm.connect(world.client.qp, { host: world.host, port: PORT }));
  world.run(30_000);
  expect(world.server.eventTypes).toEqual(['disconnected']);
  expect(world.server.qp.state).toBe('idle');
});

it('counts against the limits of the listener until then, and shuts nobody out for longer', () => {
  const time = new VirtualTime();
  const network = new MemoryDatagrams(time);
  const open = () => openRnic({ wire: 'trp', datagrams: network, scheduler: time });
  const [server, client] = [open(), open()];
  const queuePair = ({ device }: typeof server) => {
    const cq = device.createCq(16);
    return device.allocatePd().createQp({ sendCq: cq, recvCq: cq });
  };
  const requests: PassiveConnection[] = [];
  const events: CmEvent[] = [];
  const refusals: ListenFailure[] = [];
  const options = {
    host: '127.0.0.1',
    port: PORT,
    maxPending: MOST,
    onFailure: (failure: ListenFailure) => void refusals.push(failure),
  };
  void server.cm.listen(options, (request) => {
    requests.push(request);
    request.setHandler((event) => events.push(event));
    request.accept(queuePair(server));
  });
  time.advance(0);
  const to = { address: '127.0.0.1', port: PORT };
  for (let i = 0; i < 1000; i++) {
    const from = { address: `10.0.${i >> 8}.${i & 255}`, port: 5000, family: 'IPv4' } as const;
    const privateData = new Uint8Array(8);
    const request = encodeTrpSetup({ opcode: REQUEST, psn: i, ack: 0, ird: 1, ord: 1, privateData });
    network.carry(request, from, to, () => undefined);
    time.advance(1);
  }
  expect(requests).toHaveLength(MOST);
  expect(server.cm.connections).toHaveLength(MOST);
  expect(refusals.length).toBeGreaterThan(900);
  expect(refusals[0]).toMatchObject({ reason: 'too-many-pending' });
  time.advance(6_000);
  expect(server.cm.connections).toHaveLength(0);
  expect(new Set(events.map(({ type }) => type))).toEqual(new Set(['disconnected']));
  const types: string[] = [];
  client.cm
    .connect(queuePair(client), { host: '127.0.0.1', port: PORT })
    .setHandler(({ type }) => types.push(type));
  time.advance(1_000);
  expect(types).toEqual(['established']);
  expect(events.at(-1)).toMatchObject({ type: 'established' });
});
