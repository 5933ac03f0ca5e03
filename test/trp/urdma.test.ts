/** Segments as the old code has them: golden octets of where it differs from the RFCs. */
import { expect, it } from 'vitest';
import { DATA, World } from './support.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

function segments(world: World): string[] {
  return world.network.passed
    .filter(({ opcode, bytes }) => opcode === DATA && bytes.length > 10)
    .map(({ bytes }) => hex(bytes.subarray(10)));
}

const urdma = (): World => {
  const trp = { profile: 'urdma' } as const;
  return World.connected({ network: { latency: 1 }, client: trp, server: trp });
};

it('a Send that asks for an event goes out as a plain Send', () => {
  const world = urdma();
  world.server.qp.postRecv({ wrId: 1, sges: [{ mr: world.server.memory, length: 8 }] });
  world.client.qp.postSend({ wrId: 2, opcode: 'send', inline: Uint8Array.of(1, 2), solicited: true });
  world.run(100);
  expect(segments(world)).toEqual(['4143000000000000000000000001000000000102']);
  expect(world.server.completions).toMatchObject([{ wrId: 1, status: 'success' }]);
});

it('Compare-and-Swap has code 1 and masks of zero, and still swaps', () => {
  const world = urdma();
  const { client, server } = world;
  new DataView(server.memory.bytes.buffer).setBigUint64(0, 7n, true);
  client.qp.postSend({
    wrId: 1,
    opcode: 'atomic-cmp-swap',
    sges: [{ mr: client.memory, length: 8 }],
    remoteAddr: server.memory.addr,
    rkey: server.memory.rkey,
    compare: 7n,
    swap: 9n,
  });
  world.run(100);
  expect(client.completions).toMatchObject([{ wrId: 1, status: 'success' }]);
  expect(new DataView(server.memory.bytes.buffer).getBigUint64(0, true)).toBe(9n);
  const body = segments(world)[0]!.slice(36);
  expect(body.slice(0, 8)).toBe('00000001');
  expect(body.slice(40, 104)).toBe('0000000000000009000000000000000000000000000000070000000000000000');
});

it('a Terminate has its control bits at the bottom, and is read', () => {
  const world = urdma();
  const { client, server } = world;
  client.qp.postSend({
    wrId: 1,
    opcode: 'rdma-write',
    sges: [{ mr: client.memory, length: 4 }],
    remoteAddr: 0n,
    rkey: 0xdead_be00,
  });
  world.run(10_000);
  const terminate = segments(world).find((one) => one.startsWith('4147'))!;
  // Layer 1, type 1, code 0; M and D; a segment of 18 octets with its tagged header.
  expect(terminate.slice(36, 36 + 12)).toBe('110003000012');
  expect(terminate.slice(48)).toBe('c140deadbe000000000000000000');
  expect(client.qp.query().terminate).toMatchObject({ origin: 'remote', layer: 1, type: 1, code: 0 });
  expect(server.eventTypes.at(-1)).toBe('disconnected');
});

it('segments carry 1,024 octets of payload, 8,192 at an MTU of 9,000', () => {
  for (const [mtu, payload] of [
    [1500, 1024],
    [9000, 8192],
    [65_535, 1024],
  ] as const) {
    const trp = { profile: 'urdma', mtu } as const;
    const world = World.connected({ network: { latency: 1 }, client: trp, server: trp });
    const { client, server } = world;
    server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, length: 20_000 }] });
    const sges = [{ mr: client.memory, length: 20_000 }];
    client.qp.postSend({ wrId: 1, opcode: 'send', sges });
    client.qp.postSend({
      wrId: 2,
      opcode: 'rdma-write',
      sges,
      remoteAddr: server.memory.addr,
      rkey: server.memory.rkey,
    });
    world.run(1_000);
    const lengths = world.network.passed
      .filter(({ opcode }) => opcode === DATA)
      .map(({ bytes }) => bytes.length);
    expect(lengths).toContain(10 + 18 + payload);
    expect(lengths).toContain(10 + 14 + payload);
    expect(Math.max(...lengths)).toBe(10 + 18 + payload);
  }
});

it.each([
  [undefined, 50, 100],
  [500, 490, 550],
])('with deadPeer %s a silent peer is dead after %d ms', (deadPeer, least, most) => {
  const trp = { profile: 'urdma', ...(deadPeer !== undefined && { deadPeer }) } as const;
  const world = World.connected({ network: { latency: 1 }, client: trp, server: trp });
  world.network.mayPass = () => false;
  world.client.qp.postSend({ opcode: 'send', inline: Uint8Array.of(1) });
  world.run(least);
  expect(world.client.poll()).toEqual([]);
  world.run(most - least);
  expect(world.client.poll()).toMatchObject([{ status: 'flushed' }]);
});
