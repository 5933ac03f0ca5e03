/** Datagrams that no honest peer has sent. Each costs bounded memory and work, and no completion. */
import { describe, expect, it } from 'vitest';
import type { TrpOptions } from '../../src/trp/profile.ts';
import { encodeTrpHeader, encodeTrpSetup } from '../../src/trp/wire.ts';
import { outcomes, pattern } from '../verbs/support.ts';
import { ACCEPT, DATA, FIN, REJECT, REQUEST, World } from './support.ts';

const SACK = 0x5000;
const FIRST = 1_000_000;

/** A connected world of which both first sequence numbers are known, and a way to speak in a peer's name. */
class Attack {
  readonly world: World;
  readonly toServer: { readonly address: string; readonly port: number };
  readonly client: { readonly address: string; readonly port: number; readonly family: 'IPv4' };

  /** The first sequence number of either side. */
  readonly first: number;

  constructor(options: Pick<TrpOptions, 'profile' | 'receiver'> = {}) {
    this.first = options.profile === 'urdma' ? 0 : FIRST;
    const trp = { ...options, firstPsn: this.first };
    this.world = World.connected({ network: { latency: 1 }, client: trp, server: trp });
    this.world.run(50);
    const { remoteAddress, localAddress } = this.world.client.connection!;
    this.toServer = remoteAddress!;
    this.client = { address: '127.0.0.1', port: localAddress!.port, family: 'IPv4' };
  }

  /** A datagram to the server's port, in the client's name if nothing else is said. */
  say(bytes: Uint8Array, from = this.client, to = this.toServer): this {
    this.world.memory.carry(bytes, from, to, () => undefined);
    this.world.run(5);
    return this;
  }

  /** A DDP segment behind a header. */
  segment(psn: number, ulpdu: Uint8Array, ack = FIRST): this {
    return this.say(new Uint8Array(Buffer.concat([encodeTrpHeader(FIRST + psn, ack, DATA), ulpdu])));
  }

  /** Both ends still work. */
  expectAlive(): void {
    const { server, client } = this.world;
    server.qp.postRecv({ wrId: 77, sges: [{ mr: server.memory, offset: 0, length: 100 }] });
    client.qp.postSend({ wrId: 78, opcode: 'send', inline: pattern(64) });
    this.world.run(30_000, () => client.poll().some(({ wrId }) => wrId === 78));
    expect(client.completions.at(-1)).toMatchObject({ wrId: 78, status: 'success' });
    expect(server.completions.at(-1)).toMatchObject({ wrId: 77, status: 'success', byteLength: 64 });
  }
}

/** An untagged segment of a Send. */
function send(msn: number, mo: number, payload: Uint8Array, last = true): Uint8Array {
  const bytes = new Uint8Array(18 + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, last ? 0x4143 : 0x0143);
  view.setUint32(10, msn);
  view.setUint32(14, mo);
  bytes.set(payload, 18);
  return bytes;
}

/** A tagged segment of an RDMA Write. */
function write(stag: number, to: bigint, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(14 + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, 0xc140);
  view.setUint32(2, stag);
  view.setBigUint64(6, to);
  bytes.set(payload, 14);
  return bytes;
}

describe('datagrams that are none of the connection', () => {
  it('from another address or port are dropped', () => {
    const attack = new Attack();
    const { port } = attack.client;
    const data = new Uint8Array(Buffer.concat([encodeTrpHeader(FIRST, FIRST, DATA), send(1, 0, pattern(8))]));
    attack.say(data, { address: '127.0.0.1', port: port + 1, family: 'IPv4' });
    attack.say(data, { address: '10.0.0.1', port, family: 'IPv4' });
    expect(attack.world.server.trp.received).toBe(0);
    attack.expectAlive();
  });

  it.each([
    ['nine octets', new Uint8Array(9)],
    ['a reserved bit', encodeTrpHeader(FIRST, FIRST, DATA | 1)],
    ['an unknown opcode', encodeTrpHeader(FIRST, FIRST, 0xf000)],
    ['a FIN with a body', new Uint8Array([...encodeTrpHeader(FIRST, FIRST, FIN), 0])],
    ['a FIN far outside', encodeTrpHeader(FIRST + 100_000, FIRST, FIN)],
    ['a FIN of before the connection', encodeTrpHeader(FIRST - 5, FIRST, FIN)],
    [
      'a reject',
      encodeTrpSetup({ opcode: REJECT, psn: 0, ack: FIRST, ird: 0, ord: 0, privateData: new Uint8Array(0) }),
    ],
    [
      'an accept',
      encodeTrpSetup({ opcode: ACCEPT, psn: 0, ack: FIRST, ird: 0, ord: 0, privateData: new Uint8Array(0) }),
    ],
    [
      'a request whose length disagrees',
      encodeTrpSetup({
        opcode: REQUEST,
        psn: 0,
        ack: 0,
        ird: 0,
        ord: 0,
        privateData: new Uint8Array(4),
      }).subarray(0, 19),
    ],
  ])('%s is counted and dropped', (_name, bytes) => {
    const attack = new Attack();
    attack.say(bytes);
    expect(attack.world.server.trp.dropped).toBe(1);
    attack.expectAlive();
  });

  it('a FIN of before the last datagram, as a replay is, ends nothing', () => {
    const attack = new Attack();
    attack.expectAlive();
    attack.world.run(50);
    const { dropped } = attack.world.server.trp;
    attack.say(encodeTrpHeader(FIRST, FIRST, FIN));
    expect(attack.world.server.trp.dropped).toBe(dropped + 1);
    attack.expectAlive();
  });

  it.each([
    ['reject', REJECT],
    ['accept', ACCEPT],
  ])('a spoofed %s that does not name the request neither ends nor moves a connection', (_name, opcode) => {
    const world = new World({ network: { latency: 1 }, client: { firstPsn: FIRST } }).listen();
    let left = 1;
    // The first answer is lost, so that there is time for the forged one.
    world.network.mayPass = (one) => one.opcode !== ACCEPT || left-- <= 0;
    const { client } = world;
    client.watch(client.rnic.cm.connect(client.qp, { host: world.host, port: 7000 }));
    world.run(10);
    const { fromPort } = world.network.passed.find((one) => one.opcode === REQUEST)!;
    const to = { address: '127.0.0.1', port: fromPort };
    for (const ack of [0, 1, FIRST - 1, FIRST + 1]) {
      const forged = encodeTrpSetup({ opcode, psn: 9, ack, ird: 0, ord: 0, privateData: pattern(3) });
      for (const port of [7000, 5555])
        world.memory.carry(forged, { address: '127.0.0.1', port, family: 'IPv4' }, to, () => undefined);
    }
    world.run(10_000, () => client.events.length > 0);
    expect(client.eventTypes).toEqual(['established']);
    expect(client.connection!.remoteAddress!.port).not.toBe(5555);
  });

  it('a spoofed reject does not end an established client', () => {
    const attack = new Attack();
    const reject = encodeTrpSetup({
      opcode: REJECT,
      psn: 0,
      ack: FIRST,
      ird: 0,
      ord: 0,
      privateData: new Uint8Array(0),
    });
    attack.say(reject, { ...attack.toServer, family: 'IPv4' } as never, attack.client);
    attack.expectAlive();
  });
});

describe.each(['fixed', 'urdma'] as const)('a spoofed FIN, profile %s', (profile) => {
  it('with the right number from another source is dropped', () => {
    const attack = new Attack({ profile });
    const { world, client, first } = attack;
    const fin = encodeTrpHeader(first, first, FIN);
    for (const from of [
      { ...client, port: client.port + 1 },
      { ...client, address: '10.0.0.1' },
      { ...client, port: 7000 },
    ])
      attack.say(fin, from);
    world.run(20_000);
    expect(world.server.trp.dropped).toBe(0);
    expect(world.network.count(FIN)).toBe(0);
    attack.expectAlive();
  });

  it('to the client, from another port of the server, is dropped', () => {
    const attack = new Attack({ profile });
    const { world, client, toServer, first } = attack;
    const fin = encodeTrpHeader(first, first, FIN);
    for (const port of [7000, toServer.port + 1])
      attack.say(fin, { address: '127.0.0.1', port, family: 'IPv4' }, client);
    world.run(20_000);
    expect(world.client.eventTypes).toEqual(['established']);
    attack.expectAlive();
  });

  it("within the window, in the peer's name, ends nothing before the data below it has come", () => {
    const attack = new Attack({ profile });
    const { world, first } = attack;
    const { client, server } = world;
    for (let i = 0; i < 8; i++)
      server.qp.postRecv({ wrId: i, sges: [{ mr: server.memory, offset: i * 100, length: 100 }] });
    attack.say(encodeTrpHeader(first + 4, first, FIN));
    world.run(1_000);
    expect([client.qp.state, server.qp.state]).toEqual(['rts', 'rts']);
    // When its number has its turn it is as if the peer had said it: all that is posted ends, and once.
    for (let i = 0; i < 5; i++) client.qp.postSend({ wrId: i, opcode: 'send', inline: pattern(64, i) });
    world.run(60_000);
    for (const { eventTypes } of [client, server]) expect(eventTypes.at(-1)).toBe('disconnected');
    // The fifth was not taken, and Sends that go out together complete together.
    expect(outcomes(client.poll())).toEqual([0, 1, 2, 3, 4].map((wrId) => `${wrId} flushed`));
    expect(outcomes(server.poll())).toEqual([
      ...['0 success', '1 success', '2 success', '3 success'],
      ...['4 flushed', '5 flushed', '6 flushed', '7 flushed'],
    ]);
    for (let i = 0; i < 4; i++)
      expect(server.memory.bytes.subarray(i * 100, i * 100 + 64)).toEqual(pattern(64, i));
    expect(world.time.pending).toBe(0);
  });

  it("within the window, in the peer's name, whose number never comes, ends the connection in time", () => {
    const attack = new Attack({ profile });
    const { world, first } = attack;
    const { server } = world;
    server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, length: 100 }] });
    attack.say(encodeTrpHeader(first + 100, first, FIN));
    const began = world.time.now();
    world.run(60_000, () => server.eventTypes.includes('disconnected'));
    const took = world.time.now() - began;
    expect(took).toBeGreaterThan(14_000);
    expect(took).toBeLessThan(16_000);
    world.run(60_000);
    expect(server.poll()).toMatchObject([{ wrId: 1, status: 'flushed' }]);
    expect(world.client.eventTypes.at(-1)).toBe('disconnected');
    expect(world.time.pending).toBe(0);
  });
});

describe('sequence numbers', () => {
  it('outside of the window take nothing', () => {
    const attack = new Attack();
    for (const psn of [4096, 100_000, 2 ** 31 - 1]) attack.segment(psn, send(1, 0, pattern(8)));
    expect(attack.world.server.trp).toMatchObject({ outside: 3, received: 0, heldOctets: 0 });
    attack.expectAlive();
  });

  it('acknowledgements beyond what was sent, and far behind, are counted and change nothing', () => {
    const attack = new Attack();
    for (const ack of [FIRST + 1, FIRST + 1000, FIRST - 10_000])
      attack.say(encodeTrpHeader(FIRST, ack >>> 0, DATA));
    expect(attack.world.server.trp.badAcks).toBe(3);
    attack.expectAlive();
  });

  it('ranges that are empty, backwards or were never sent are counted', () => {
    const attack = new Attack();
    const ranges = [
      [0, 0],
      [5, 3],
      [0, 1],
      [4000, 5000],
    ] as const;
    for (const [start, end] of ranges) attack.say(encodeTrpHeader(FIRST + start, FIRST + end, SACK));
    expect(attack.world.server.trp.badAcks).toBe(ranges.length);
    attack.expectAlive();
  });

  it('an ordered receiver keeps four MiB of what is above a hole, whatever comes', () => {
    const attack = new Attack({ receiver: 'ordered' });
    const long = send(2, 0, pattern(60_000));
    for (let psn = 1; psn <= 300; psn++) attack.segment(psn, long);
    const { heldOctets, refused, mostHeld } = attack.world.server.trp;
    expect(refused).toBeGreaterThan(200);
    expect(heldOctets).toBeGreaterThan(4_000_000);
    expect(mostHeld).toBeLessThanOrEqual(1 << 22);
  });

  it('a flood with holes keeps 64 ranges and no more', () => {
    const attack = new Attack();
    const { server } = attack.world;
    server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, length: 4000 }] });
    for (let psn = 2; psn < 2000; psn += 2) attack.segment(psn, send(1, psn, pattern(1), false));
    expect(server.trp.placedEarly).toBe(64);
    expect(server.trp.mostHeld).toBe(64 * 18);
    expect(server.trp.outside).toBe(999 - 64);
  });

  it('messages far ahead of the posted receives are refused', () => {
    const attack = new Attack();
    const { server } = attack.world;
    for (const msn of [2, 500, 0x8000_0000, 0]) attack.segment(5, send(msn, 0, pattern(8)));
    expect(server.trp).toMatchObject({ refused: 4, heldOctets: 0 });
    attack.expectAlive();
  });
});

describe('segments that are wrong end the stream in their turn, whatever the order', () => {
  const wrong: readonly [string, (attack: Attack) => readonly Uint8Array[], string][] = [
    [
      'overlapping message offsets',
      () => [send(1, 0, pattern(10), false), send(1, 10, pattern(10), false), send(1, 5, pattern(10))],
      '1/2/04',
    ],
    [
      'an unknown STag',
      ({ world: { server } }) => [
        send(1, 0, pattern(10), false),
        write(server.memory.rkey, server.memory.addr, pattern(4)),
        write(0xdead_be00, 0n, pattern(10)),
      ],
      '1/1/00',
    ],
    [
      'a Write beyond its region',
      ({ world: { server } }) => [
        send(1, 0, pattern(10), false),
        write(server.memory.rkey, server.memory.addr, pattern(4)),
        write(server.memory.rkey, server.memory.addr + BigInt(server.memory.length - 2), pattern(4)),
      ],
      '1/1/01',
    ],
    [
      'a message longer than its receive',
      () => [send(1, 0, pattern(10), false), send(1, 10, pattern(10), false), send(1, 20, pattern(500))],
      '1/2/05',
    ],
  ];
  it.each(wrong)('%s', (_name, make, code) => {
    const outcomes = new Set<string>();
    for (const order of [
      [0, 1, 2],
      [0, 2, 1],
      [1, 0, 2],
      [1, 2, 0],
      [2, 0, 1],
      [2, 1, 0],
    ]) {
      const attack = new Attack();
      const { server } = attack.world;
      server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, offset: 512, length: 100 }] });
      const segments = make(attack);
      // A sender repeats the segments that were refused before their turn.
      for (const psn of [...order, 0, 1, 2]) attack.segment(psn, segments[psn]!);
      attack.world.run(20_000);
      const { terminate } = server.qp.query();
      const { layer, type, code: number } = terminate!;
      outcomes.add(
        `${layer}/${type}/${number.toString(16).padStart(2, '0')} ${server
          .poll()
          .map(({ status }) => status)
          .join()}`,
      );
    }
    expect([...outcomes]).toHaveLength(1);
    expect([...outcomes][0]).toMatch(new RegExp(`^${code} `));
  });
});

describe('set-up', () => {
  const request = (privateData: Uint8Array, psn = 5): Uint8Array =>
    encodeTrpSetup({ opcode: REQUEST, psn, ack: 0, ird: 1, ord: 1, privateData });
  const at = (port: number) => ({ address: '10.1.2.3', port, family: 'IPv4' }) as const;
  const listener = { address: '127.0.0.1', port: 7000 };

  it('repeated requests with other private data make one connection, with the first', () => {
    const world = new World().listen(() => undefined);
    for (const octet of [1, 2, 3])
      world.memory.carry(request(Uint8Array.of(octet)), at(99), listener, () => undefined);
    world.run(100);
    expect(world.requests).toHaveLength(1);
    expect(world.requests[0]!.parameters!.privateData).toEqual(Uint8Array.of(1));
  });

  it.each([
    ['five times, with long answers', 5, 500],
    ['five times, with short ones, and a FIN after them', 5, 0],
    ['once', 1, 0],
  ])('a source that only asks gets at most three times its octets: %s', (_how, times, octets) => {
    const world = new World().listen((one) => one.accept(world.server.qp, { privateData: pattern(octets) }));
    let asked = 0;
    for (let i = 0; i < times; i++) {
      const bytes = request(new Uint8Array(0));
      asked += bytes.length;
      world.memory.carry(bytes, at(99), listener, () => undefined);
      world.run(20);
    }
    world.run(20_000);
    const answered = world.network.passed.reduce((sum, { bytes }) => sum + bytes.length, 0);
    expect(answered).toBeLessThanOrEqual(3 * asked);
    // And is forgotten.
    expect(world.server.eventTypes.at(-1)).toBe('disconnected');
    expect(world.server.rnic.cm.connections.size).toBe(0);
  });

  it('a replayed request of a connection that is over begins nothing', () => {
    const world = World.connected({ network: { latency: 1 } });
    const { bytes, fromPort } = world.network.passed.find(({ opcode }) => opcode === REQUEST)!;
    world.client.connection!.disconnect();
    world.run(2_000);
    const from = { address: '127.0.0.1', port: fromPort, family: 'IPv4' } as const;
    for (let i = 0; i < 10; i++) world.memory.carry(bytes, from, listener, () => undefined);
    world.run(1_000);
    expect(world.requests).toHaveLength(1);
    expect(world.server.rnic.cm.connections.size).toBe(0);
  });

  it('anything but a request is nothing to a listener', () => {
    const world = new World().listen();
    for (const opcode of [DATA, ACCEPT, REJECT, FIN, SACK])
      world.memory.carry(encodeTrpHeader(1, 2, opcode), at(5), listener, () => undefined);
    world.run(100);
    expect(world.requests).toHaveLength(0);
    expect(world.network.passed).toHaveLength(0);
  });
});
