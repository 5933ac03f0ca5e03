// iWARP over UDP opposite a peer in another language: both roles, both profiles, and a network that loses.
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic, type EngineKind, type Rnic } from '../../src/api/environment.ts';
import type { CmEvent } from '../../src/cm/events.ts';
import type { TrpReadsName } from '../../src/trp/profile.ts';
import { ACCESS, type QueuePair, type WorkCompletion } from '../../src/verbs/index.ts';
import { PEER, PythonPeer, type PeerEvent } from './python-peer.ts';

type Profile = 'urdma' | 'fixed';

const OCTETS = 5000;
/** Six transmissions, which are all that `urdma` has else, take 60 ms; a busy machine stands still longer. */
const PATIENCE_MS = 10_000;
const pattern = (seed: number, length = OCTETS): Uint8Array =>
  Uint8Array.from({ length }, (_, i) => (i * 7 + seed) & 255);
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

let peer: PythonPeer | undefined;
const over: (() => void)[] = [];
afterEach(async () => {
  await peer?.stop();
  for (const end of over.splice(0)) end();
});

/** Our side: a queue pair, whose completions are awaited one by one. */
class Ours {
  readonly rnic: Rnic;
  readonly qp: QueuePair;
  readonly #waiting: ((completion: WorkCompletion) => void)[] = [];
  readonly #done: WorkCompletion[] = [];
  readonly pd;

  constructor(profile: Profile, engine: EngineKind, reads: TrpReadsName = 'ordered') {
    this.rnic = openRnic({ wire: 'trp', engine, trp: { profile, deadPeer: PATIENCE_MS, reads } });
    const channel = this.rnic.device.createCompletionChannel();
    const cq = this.rnic.device.createCq(256, { channel });
    this.pd = this.rnic.device.allocatePd();
    this.qp = this.pd.createQp({ sendCq: cq, recvCq: cq });
    const look = (): void => {
      const batch: WorkCompletion[] = [];
      cq.poll(batch, 64);
      for (const one of batch) {
        const wants = this.#waiting.shift();
        if (wants === undefined) this.#done.push(one);
        else wants(one);
      }
    };
    const timer = setInterval(look, 1);
    over.push(() => clearInterval(timer));
  }

  completion(): Promise<WorkCompletion> {
    const done = this.#done.shift();
    return done === undefined ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve(done);
  }

  memory(bytes: Uint8Array) {
    const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = ACCESS;
    const memory = this.rnic.device.allocateMemory(bytes.length);
    memory.set(bytes);
    return this.pd.registerMemory(memory, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE);
  }
}

interface Meeting {
  readonly ours: Ours;
  readonly other: PythonPeer;
  readonly established: PeerEvent;
  readonly privateData: string;
  readonly ended: Promise<void>;
  /** The port that the client has asked, and the one that it is connected to. */
  readonly askedPort: number;
  readonly peerPort: number;
}

/** Our stack and the peer, connected; `role` is ours. */
async function meet(
  role: 'active' | 'passive',
  profile: Profile,
  engine: EngineKind = 'thread',
  args: readonly string[] = [],
  reads: TrpReadsName = 'ordered',
): Promise<Meeting> {
  const ours = new Ours(profile, engine, reads);
  const patience = ['--dead-after', String(PATIENCE_MS / 1000)];
  const options = ['--profile', profile, '--private', hex(Buffer.from('theirs')), ...patience, ...args];
  const host = args.includes('::1') ? '::1' : '127.0.0.1';
  let end!: () => void;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const privateData = Buffer.from('ours');
  if (role === 'active') {
    const other = (peer = new PythonPeer(['listen', ...options]));
    const { port } = await other.next('listening');
    const connection = ours.rnic.cm.connect(ours.qp, { host, port: port as number, privateData });
    const got = await new Promise<string>((resolve, reject) => {
      connection.setHandler((event) => {
        if (event.type === 'established') resolve(Buffer.from(event.parameters.privateData).toString());
        else if (event.type === 'disconnected') end();
        else if (event.type !== 'closing' && event.type !== 'terminate') reject(new Error(event.type));
      });
    });
    over.push(() => connection.disconnect());
    const established = await other.next('established');
    const ports = { askedPort: port as number, peerPort: connection.remoteAddress!.port };
    return { ours, other, established, privateData: got, ended, ...ports };
  }
  let got = '';
  const listener = await ours.rnic.cm.listen({ host, port: 0 }, (request) => {
    got = Buffer.from(request.parameters!.privateData).toString();
    request.setHandler((event) => {
      if (event.type === 'disconnected') end();
    });
    request.accept(ours.qp, { privateData });
    over.push(() => request.disconnect());
  });
  over.push(() => listener.close());
  const { port } = listener.address;
  const other = (peer = new PythonPeer(['connect', host, String(port), ...options]));
  const established = await other.next('established');
  const ports = { askedPort: port, peerPort: established['peerPort'] as number };
  return { ours, other, established, privateData: got, ended, ...ports };
}

async function exchange({ ours, other }: Meeting, rounds: number): Promise<void> {
  const { stag } = await other.ask({ do: 'region', length: OCTETS }, 'region');
  const remote = { rkey: stag as number, remoteAddr: 0 };
  const sink = ours.memory(new Uint8Array(OCTETS));
  const inbox = ours.memory(new Uint8Array(OCTETS));
  for (let round = 1; round <= rounds; round++) {
    const data = pattern(round);
    const sges = [{ mr: ours.memory(data) }];
    await other.ask({ do: 'recv', length: OCTETS }, 'posted');
    ours.qp.postSend([
      { wrId: 1, opcode: 'send', sges },
      { wrId: 2, opcode: 'rdma-write', sges, ...remote },
      { wrId: 3, opcode: 'rdma-read', sges: [{ mr: sink }], ...remote },
    ]);
    for (const wrId of [1, 2, 3]) {
      const { status, wrId: got } = await ours.completion();
      expect([status, Number(got)]).toEqual(['success', wrId]);
    }
    expect((await other.next('recv'))['hex']).toBe(hex(data));
    expect(sink.bytes).toEqual(data);
    // Their Send, Write and Read.
    ours.qp.postRecv([{ wrId: 9, sges: [{ mr: inbox }] }]);
    const theirs = pattern(100 + round);
    other.tell({ do: 'write', stag: sink.rkey, to: 0, hex: hex(theirs) });
    const read = await other.ask({ do: 'read', stag: sink.rkey, to: 0, length: OCTETS }, 'read');
    expect(read['hex']).toBe(hex(theirs));
    other.tell({ do: 'send', hex: hex(theirs) });
    const received = await ours.completion();
    expect([received.status, received.byteLength]).toEqual(['success', OCTETS]);
    expect(inbox.bytes).toEqual(theirs);
  }
}

describe('golden datagrams and the peer of another language', () => {
  it('reads and writes each of them with its own codec', () => {
    const file = fileURLToPath(new URL('golden.json', import.meta.url));
    expect(execFileSync('python3', [PEER, 'golden', file], { encoding: 'utf8' })).toMatch(/^\d+ vectors\n$/);
  });
});

describe.each(['fixed', 'urdma'] as const)('profile %s', (profile) => {
  it.each(['active', 'passive'] as const)(
    'moves Sends, Writes and Reads both ways, our side %s',
    async (role) => {
      const meeting = await meet(role, profile);
      expect(meeting.privateData).toBe('theirs');
      expect(meeting.established['privateData']).toBe(hex(Buffer.from('ours')));
      await exchange(meeting, 3);
      meeting.other.tell({ do: 'fin' });
      await meeting.ended;
    },
    20_000,
  );

  it.each(['active', 'passive'] as const)(
    'goes on at a port that the client did not send to, our side %s',
    async (role) => {
      const meeting = await meet(role, profile);
      const { established, askedPort, peerPort } = meeting;
      expect(peerPort).not.toBe(askedPort);
      if (role === 'active') expect(peerPort).toBe(established['port']);
      await exchange(meeting, 1);
    },
    20_000,
  );

  it('ends in the peer when our side disconnects', async () => {
    const { other } = await meet('active', profile);
    for (const end of over.splice(1)) end();
    expect((await other.next('closed').catch((error: Error) => ({ why: error.message })))['why']).toMatch(
      /fin/,
    );
  }, 60_000);

  it('names a rejection by the peer with its private data', async () => {
    const ours = new Ours(profile, 'thread');
    const reason = ['--private', hex(Buffer.from('no'))];
    const other = (peer = new PythonPeer(['listen', '--reject', '--profile', profile, ...reason]));
    const { port } = await other.next('listening');
    const connection = ours.rnic.cm.connect(ours.qp, { host: '127.0.0.1', port: port as number });
    const event = await new Promise<CmEvent>((resolve) => connection.setHandler(resolve));
    if (event.type !== 'rejected') throw new Error(event.type);
    expect(Buffer.from(event.parameters.privateData).toString()).toBe('no');
  }, 60_000);

  it('rejects the peer with private data', async () => {
    const ours = new Ours(profile, 'thread');
    const listener = await ours.rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) =>
      request.reject(Buffer.from('not you')),
    );
    over.push(() => listener.close());
    const { port } = listener.address;
    const other = (peer = new PythonPeer(['connect', '127.0.0.1', String(port), '--profile', profile]));
    expect((await other.next('rejected'))['privateData']).toBe(hex(Buffer.from('not you')));
  }, 60_000);

  it('takes a Terminate for an STag that does not exist', async () => {
    const meeting = await meet('active', profile);
    const { ours, other } = meeting;
    const sges = [{ mr: ours.memory(pattern(1, 10)) }];
    ours.qp.postSend({ wrId: 1, opcode: 'rdma-write', sges, rkey: 0x7f00_0001, remoteAddr: 0 });
    const sent = await other.next('sent-terminate');
    expect([sent['layerType'], sent['code']]).toEqual([0x11, 0]);
    if (profile === 'fixed') await meeting.ended;
  }, 60_000);
});

describe('what only the profile fixed has', () => {
  it('Sends with a solicited event or an invalidation, and Immediate Data, both ways', async () => {
    const { ours, other } = await meet('active', 'fixed');
    const [target, inbox] = [ours.memory(pattern(1, 10)), ours.memory(new Uint8Array(100))];
    for (let i = 0; i < 5; i++) await other.ask({ do: 'recv', length: 100 }, 'posted');
    ours.qp.postSend([
      { wrId: 1, opcode: 'send', inline: pattern(2, 20), solicited: true },
      { wrId: 2, opcode: 'send', inline: pattern(3, 20), invalidate: 0x1234_5678 },
      { wrId: 3, opcode: 'send', inline: pattern(4, 20), solicited: true, invalidate: 0x77 },
      { wrId: 4, opcode: 'immediate', immediate: 0x0102_0304_0506_0708n },
      { wrId: 5, opcode: 'immediate', immediate: 9n, solicited: true },
    ]);
    const sends: unknown[][] = [];
    for (let i = 0; i < 3; i++) {
      const { hex: body, opcode, invalidate } = await other.next('recv');
      sends.push([body, opcode, invalidate]);
    }
    expect(sends).toEqual([
      [hex(pattern(2, 20)), 5, 0],
      [hex(pattern(3, 20)), 4, 0x1234_5678],
      [hex(pattern(4, 20)), 6, 0x77],
    ]);
    expect(await other.next('immediate')).toMatchObject({ hex: '0102030405060708', opcode: 8 });
    expect(await other.next('immediate')).toMatchObject({ hex: '0000000000000009', opcode: 9 });
    for (let wrId = 1; wrId <= 5; wrId++)
      expect(await ours.completion()).toMatchObject({ wrId, status: 'success' });

    for (let i = 0; i < 4; i++)
      ours.qp.postRecv({ wrId: 10 + i, sges: [{ mr: inbox, offset: 20 * i, length: 20 }] });
    other.tell({ do: 'send', hex: hex(pattern(5, 20)), opcode: 5 });
    other.tell({ do: 'send', hex: hex(pattern(6, 20)), opcode: 6, invalidate: target.rkey });
    other.tell({ do: 'immediate', hex: 'a1b2c3d4e5f60718', opcode: 8 });
    other.tell({ do: 'immediate', hex: '000000000000000a', opcode: 9 });
    const got: WorkCompletion[] = [];
    while (got.length < 4) got.push(await ours.completion());
    expect(got).toMatchObject([
      { wrId: 10, opcode: 'receive', solicited: true, byteLength: 20 },
      { wrId: 11, opcode: 'receive', solicited: true, invalidatedStag: target.rkey },
      { wrId: 12, opcode: 'receive-immediate', solicited: false, immediate: 0xa1b2_c3d4_e5f6_0718n },
      { wrId: 13, opcode: 'receive-immediate', solicited: true, immediate: 10n },
    ]);
    expect(target.valid).toBe(false);
    expect(inbox.bytes.subarray(0, 40)).toEqual(Uint8Array.of(...pattern(5, 20), ...pattern(6, 20)));
  }, 60_000);

  it.each(['active', 'passive'] as const)(
    'Reads that are placed, which the peer answers by their aliases before their turn, our side %s',
    async (role) => {
      const faults = ['--placed', '--lose', '0.1', '--miss', '0.2', '--seed', '5'];
      const { ours, other } = await meet(role, 'fixed', 'thread', faults, 'placed');
      const data = pattern(11);
      const { stag } = await other.ask({ do: 'region', hex: hex(data) }, 'region');
      const sink = ours.memory(new Uint8Array(OCTETS));
      const COUNT = 50;
      const length = OCTETS / COUNT;
      for (let i = 0; i < COUNT; i++)
        ours.qp.postSend({
          wrId: i,
          opcode: 'rdma-read',
          sges: [{ mr: sink, offset: i * length, length }],
          rkey: stag as number,
          remoteAddr: BigInt(i * length),
        });
      const done = new Set<number>();
      for (let i = 0; i < COUNT; i++) {
        const { status, wrId } = await ours.completion();
        expect(status).toBe('success');
        done.add(Number(wrId));
      }
      expect(done.size).toBe(COUNT);
      expect(sink.bytes).toEqual(data);
      // The peer's own Reads name its memory itself, as any peer's may.
      const read = await other.ask({ do: 'read', stag: sink.rkey, to: 0, length: OCTETS }, 'read');
      expect(read['hex']).toBe(hex(data));
      const { aliases, answeredEarly } = await other.ask({ do: 'stats' }, 'stats');
      expect(aliases).toBe(COUNT);
      expect(Number(answeredEarly)).toBeGreaterThan(0);
    },
    40_000,
  );
});

describe('a peer whose network loses, repeats and reorders', () => {
  it.each(['active', 'passive'] as const)(
    'loses nothing, our side %s',
    async (role) => {
      const faults = ['--lose', '0.1', '--repeat', '0.1', '--reorder', '0.1', '--seed', '7'];
      const meeting = await meet(role, 'fixed', 'thread', faults);
      await exchange(meeting, 4);
      const stats = await meeting.other.ask({ do: 'stats' }, 'stats');
      expect(Number(stats['lost']) + Number(stats['repeated'])).toBeGreaterThan(0);
    },
    40_000,
  );

  it.each(['active', 'passive'] as const)(
    'puts pieces together and sends them, our side %s',
    async (role) => {
      const meeting = await meet(role, 'fixed', 'thread', ['--narrow', '1172', '--pieces', '400']);
      await exchange(meeting, 2);
      const { piecesIn, piecesOut } = await meeting.other.ask({ do: 'stats' }, 'stats');
      expect(Number(piecesIn)).toBeGreaterThan(0);
      expect(Number(piecesOut)).toBeGreaterThan(0);
    },
    40_000,
  );

  it('works in an engine of its own, over IPv6, from a sequence number near the wrap', async () => {
    const args = ['--host', '::1', '--first', '0xfffffffa', '--lose', '0.05'];
    await exchange(await meet('passive', 'fixed', 'worker', args), 2);
  }, 40_000);
});
