/** Single losses at chosen places, under virtual time: each request ends once, and nothing waits for ever. */
import { describe, expect, it } from 'vitest';
import { pattern } from '../verbs/support.ts';
import { DATA, FIN, World } from './support.ts';

const PAYLOAD = 20_000;
const isData = ({ opcode, bytes }: { opcode: number; bytes: Uint8Array }): boolean =>
  opcode === DATA && bytes.length > 10;

function send(world: World, octets = PAYLOAD): void {
  const { client, server } = world;
  client.memory.bytes.set(pattern(octets));
  server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, length: octets }] });
  client.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr: client.memory, length: octets }] });
}

function expectReceived(world: World, octets = PAYLOAD): void {
  expect(world.client.completions).toMatchObject([{ wrId: 2, status: 'success' }]);
  expect(world.server.completions).toMatchObject([{ wrId: 1, status: 'success', byteLength: octets }]);
  expect(world.server.memory.bytes.subarray(0, octets)).toEqual(pattern(octets));
}

describe.each(['fixed', 'urdma'] as const)('profile %s', (profile) => {
  const options = { client: { profile }, server: { profile }, network: { latency: 1 } };

  it('two holes at a time are filled', () => {
    const world = World.connected(options);
    let nth = 0;
    const lost = new Set([3, 6]);
    world.network.mayPass = (one) => !isData(one) || !lost.has(nth++);
    send(world);
    world.run(10_000);
    expectReceived(world);
    expect(world.client.trp.resent).toBeGreaterThanOrEqual(2);
    if (profile === 'fixed') expect(world.client.trp.resent).toBe(2);
  });

  it('the loss of the last acknowledgement costs a repetition and no connection', () => {
    const world = World.connected(options);
    send(world, 50);
    const { port } = world.client.connection!.remoteAddress!;
    let left = 2;
    world.network.mayPass = ({ opcode, bytes, fromPort }) =>
      fromPort !== port || opcode !== DATA || bytes.length > 10 || left-- <= 0;
    world.run(2_000);
    expect(left).toBeLessThanOrEqual(0);
    expectReceived(world, 50);
    expect(world.server.trp.repeats).toBeGreaterThan(0);
    expect(world.client.qp.state).toBe('rts');
  });

  it('a window that is full is waited for, and never exceeded', () => {
    const window = 4;
    const world = World.connected({
      ...options,
      client: { profile, window },
      server: { profile, window },
    });
    let [out, most] = [0, 0];
    const { port } = world.client.connection!.remoteAddress!;
    const sent = new Set<number>();
    world.network.mayPass = (one) => {
      const view = new DataView(one.bytes.buffer, one.bytes.byteOffset);
      if (one.fromPort === port) {
        for (const psn of sent) if (((psn - view.getUint32(4)) | 0) < 0) sent.delete(psn);
      } else if (isData(one)) {
        sent.add(view.getUint32(0));
      }
      out = sent.size;
      most = Math.max(most, out);
      return true;
    };
    send(world);
    world.run(10_000);
    expectReceived(world);
    expect(most).toBe(window);
  });
});

it('a Send and a Write complete when the peer has acknowledged them, and not before', () => {
  const world = World.connected({ network: { latency: 10 } });
  const { client, server } = world;
  const { port } = client.connection!.remoteAddress!;
  let silent = true;
  world.network.mayPass = ({ fromPort }) => !(silent && fromPort === port);
  send(world, 50);
  client.qp.postSend({
    wrId: 3,
    opcode: 'rdma-write',
    inline: pattern(20, 9),
    remoteAddr: server.memory.addr + 5000n,
    rkey: server.memory.rkey,
  });
  world.run(1_000);
  // The peer has all of it long since.
  expect(server.poll()).toMatchObject([{ wrId: 1, status: 'success' }]);
  expect(server.memory.bytes.subarray(5000, 5020)).toEqual(pattern(20, 9));
  expect(client.poll()).toEqual([]);
  silent = false;
  world.run(5_000);
  expect(client.completions.map(({ wrId, status }) => [wrId, status])).toEqual([
    [2, 'success'],
    [3, 'success'],
  ]);
});

describe('keep-alive', () => {
  it('probes a silent peer, which answers, and the probe is no word to be answered again', () => {
    const world = World.connected({ network: { latency: 1 } });
    expect(world.client.connection!.setKeepAlive(true, 2_000)).toBe(true);
    world.run(100);
    const before = world.network.passed.length;
    world.run(60_000);
    const words = world.network.passed.length - before;
    // A probe and its answer every two seconds.
    expect(words).toBeGreaterThan(40);
    expect(words).toBeLessThan(80);
    expect(world.client.qp.state).toBe('rts');
  });

  it('ends a connection whose peer no longer answers', () => {
    const world = World.connected({ network: { latency: 1 } });
    world.client.connection!.setKeepAlive(true, 2_000);
    world.run(3_000);
    world.network.mayPass = () => false;
    const began = world.time.now();
    world.run(60_000, () => world.client.eventTypes.includes('disconnected'));
    expect(world.time.now() - began).toBeLessThan(20_000);
    expect(world.client.events.at(-1)).toMatchObject({ type: 'disconnected' });
  });

  it('without it an idle connection stays, silently', () => {
    const world = World.connected({ network: { latency: 1 } });
    world.run(1_000);
    const before = world.network.passed.length;
    world.run(3_600_000);
    expect(world.network.passed).toHaveLength(before);
    expect(world.time.pending).toBe(0);
  });
});

it('a FIN is not the end while datagrams below it are missing', () => {
  const world = World.connected({ network: { latency: 1 } });
  let left = 1;
  world.network.mayPass = (one) => !isData(one) || left-- !== 1;
  send(world);
  world.client.connection!.disconnect();
  world.run(10_000);
  expect(world.server.completions).toMatchObject([{ wrId: 1, status: 'success', byteLength: PAYLOAD }]);
  expect(world.server.events.at(-1)).toMatchObject({ type: 'disconnected', cause: 'graceful' });
  expect(world.network.count(FIN)).toBeGreaterThan(0);
});
