import { describe, expect, it } from 'vitest';
import { pattern } from '../verbs/support.ts';
import { ACCEPT, DATA, FIN, REJECT, REQUEST, World } from './support.ts';

const sendText = (world: World): void => {
  world.server.qp.postRecv({ wrId: 1, sges: [{ mr: world.server.memory, offset: 0, length: 1000 }] });
  world.client.qp.postSend({ wrId: 2, opcode: 'send', inline: pattern(100) });
};

it('first sequence numbers are random, and none of two ends is that of the other', () => {
  const numbers = new Set<number>();
  for (let i = 0; i < 20; i++) {
    const { passed } = World.connected().network;
    for (const wanted of [REQUEST, ACCEPT]) {
      const { bytes } = passed.find(({ opcode }) => opcode === wanted)!;
      numbers.add(Buffer.from(bytes).readUInt32BE(0));
    }
  }
  expect(numbers.size).toBe(40);
});

describe.each(['fixed', 'urdma'] as const)('a connection over UDP, profile %s', (profile) => {
  const options = { client: { profile }, server: { profile } };

  it.each(['127.0.0.1', '::1'])('connects, moves a message and closes at %s', (host) => {
    const world = World.connected({ ...options, host, network: { latency: 1 } });
    expect(world.client.connection!.remoteAddress!.port).not.toBe(7000);
    sendText(world);
    world.run(1_000);
    expect(world.client.completions).toMatchObject([{ wrId: 2, status: 'success' }]);
    expect(world.server.completions).toMatchObject([{ wrId: 1, status: 'success', byteLength: 100 }]);
    expect(world.server.memory.bytes.subarray(0, 100)).toEqual(pattern(100));
    world.client.connection!.disconnect();
    world.run(10_000);
    expect(world.client.eventTypes.at(-1)).toBe('disconnected');
    expect(world.server.eventTypes.at(-1)).toBe('disconnected');
    expect(world.client.events.at(-1)).toMatchObject({ cause: 'graceful' });
    expect(world.server.events.at(-1)).toMatchObject({ cause: 'graceful' });
    expect(world.time.pending).toBe(0);
  });

  it('carries private data both ways', () => {
    const got: (Uint8Array | undefined)[] = [];
    const world = new World(options).listen((request) => {
      got.push(request.parameters!.privateData);
      request.accept(world.server.qp, { privateData: pattern(30, 5) });
    });
    world.connect(pattern(200));
    expect(got).toEqual([pattern(200)]);
    expect(world.client.events[0]).toMatchObject({
      type: 'established',
      parameters: { privateData: pattern(30, 5) },
    });
  });

  it('a reject has private data, comes from the listening port, and answers repeated requests', () => {
    const world = new World({ ...options, network: { latency: 1 } }).listen((request) =>
      request.reject(pattern(8)),
    );
    world.network.mayPass = ({ opcode, nth }) => opcode !== REJECT || nth >= 2;
    world.connect();
    world.run(6_000);
    expect(world.client.events[0]).toMatchObject({
      type: 'rejected',
      parameters: { privateData: pattern(8) },
    });
    const rejects = world.network.passed.filter(({ opcode }) => opcode === REJECT);
    expect(rejects.map(({ fromPort }) => fromPort)).toEqual([7000, 7000, 7000]);
    expect(world.requests).toHaveLength(1);
  });

  it.each([REQUEST, ACCEPT])('survives the loss of the first two datagrams of opcode %i', (lost) => {
    const world = new World({ ...options, network: { latency: 1 } }).listen();
    world.network.mayPass = ({ opcode, nth }) => opcode !== lost || nth >= 2;
    world.connect();
    expect(world.client.eventTypes).toEqual(['established']);
    expect(world.requests).toHaveLength(1);
    sendText(world);
    world.run(1_000);
    expect(world.server.completions).toMatchObject([{ status: 'success' }]);
  });

  it('survives the loss of the acknowledgement of the accept', () => {
    const world = new World({ ...options, network: { latency: 1 } }).listen();
    world.network.mayPass = ({ opcode, fromPort, nth }) => opcode !== DATA || fromPort === 7000 || nth >= 1;
    world.connect();
    world.server.qp.postSend({ wrId: 9, opcode: 'send', inline: pattern(10) });
    world.client.qp.postRecv({ wrId: 8, sges: [{ mr: world.client.memory, offset: 0, length: 10 }] });
    world.run(1_000);
    expect(world.client.completions).toMatchObject([{ wrId: 8, status: 'success' }]);
  });

  it('survives the loss of acknowledgements when the server may say no more', () => {
    // Three times what it has heard is no more than one accept with so much private data.
    const world = new World({ ...options, network: { latency: 1 } }).listen((request) =>
      request.accept(world.server.qp, { privateData: pattern(200) }),
    );
    // All that the client sends are acknowledgements, of ten octets.
    world.network.mayPass = ({ opcode, bytes, nth }) => opcode !== DATA || bytes.length > 10 || nth >= 3;
    world.connect();
    world.client.qp.postRecv({ wrId: 8, sges: [{ mr: world.client.memory, offset: 0, length: 10 }] });
    world.server.qp.postSend({ wrId: 9, opcode: 'send', inline: pattern(10) });
    world.run(1_000);
    expect(world.client.completions).toMatchObject([{ wrId: 8, status: 'success' }]);
    expect(world.network.count(DATA)).toBeLessThan(20);
  });

  it('requests and accepts that come twice make one connection', () => {
    const world = new World({ ...options, network: { latency: 1, repetition: 1 } }).listen().connect();
    sendText(world);
    world.run(1_000);
    expect(world.requests).toHaveLength(1);
    expect(world.server.completions).toMatchObject([{ status: 'success' }]);
  });

  it('no answer is a time-out after five seconds', () => {
    const world = new World(options);
    world.connect();
    expect(world.client.events[0]).toMatchObject({ type: 'unreachable', reason: 'timeout' });
    expect(world.time.now()).toBeGreaterThanOrEqual(5_000);
    expect(world.time.now()).toBeLessThan(5_100);
    expect(world.network.count(REQUEST)).toBeGreaterThan(5);
  });

  it('a peer that falls silent is dead after its time, and everything is flushed', () => {
    const world = World.connected({ ...options, network: { latency: 1 } });
    world.network.mayPass = () => false;
    sendText(world);
    const before = world.time.now();
    world.run(60_000, () => world.client.eventTypes.includes('disconnected'));
    const took = world.time.now() - before;
    expect(took).toBeGreaterThan(profile === 'fixed' ? 14_000 : 40);
    expect(took).toBeLessThan(profile === 'fixed' ? 17_000 : 200);
    expect(world.client.poll()).toMatchObject([{ wrId: 2, status: 'flushed' }]);
  });

  it('the loss of a FIN, or of each first FIN, leaves nobody behind', () => {
    for (const lost of [1, 2]) {
      const world = World.connected({ ...options, network: { latency: 1 } });
      let left = lost;
      world.network.mayPass = ({ opcode }) => opcode !== FIN || left-- <= 0;
      world.client.connection!.disconnect();
      world.run(30_000);
      expect(world.client.eventTypes.at(-1)).toBe('disconnected');
      if (profile === 'fixed') expect(world.server.eventTypes.at(-1)).toBe('disconnected');
    }
  });
});
