/**
 * CRC and marker negotiation, FPDU sizes on the wire, MPA errors in operation and the close: RFC 5044 4, 5,
 * 7.1.1, 7.2 and 8.
 */
import { describe, expect, it } from 'vitest';
import type { ConnectionPolicy } from '../../src/cm/index.ts';
import {
  taggedUlpdu,
  untaggedUlpdu,
  type NaiveFpduInput,
  type NaiveStartupInput,
} from '../support/naive/encoder.ts';
import {
  rawInitiatorUp,
  rawResponderUp,
  type RawBench,
  type RawOptions,
  type RawPeer,
} from '../support/raw-peer.ts';
import { count } from '../support/framing.ts';

const WRITE_0 = taggedUlpdu({ opcode: 0, stag: 1, to: 0n });
const send = (msn: number, payload: Uint8Array = new Uint8Array(0)): Uint8Array =>
  untaggedUlpdu({ opcode: 3, qn: 0, msn }, payload);
type Role = 'initiator' | 'responder';
const ROLES: readonly Role[] = ['initiator', 'responder'];

/** Our stack in `role`, in full operation, free to send; the peer's frame as given. */
async function up(
  role: Role,
  policy: Partial<ConnectionPolicy>,
  frame: Omit<NaiveStartupInput, 'kind'>,
  options: RawOptions = {},
): Promise<{ bench: RawBench; peer: RawPeer }> {
  const all: RawOptions = { ...options, policy: { mpaRevision: 1, silentPeerNudge: 0, ...policy } };
  const made = role === 'initiator' ? rawResponderUp(all, frame) : await rawInitiatorUp(all, frame);
  if (role === 'responder') made.peer.sendFpdus([WRITE_0]);
  made.bench.settle();
  expect(made.bench.side.event('established')).toBeDefined();
  return made;
}

const receive = (bench: RawBench, length: number, wrId = 1): Uint8Array => {
  const mr = bench.side.register(length);
  bench.side.qp.postRecv({ wrId, sges: [{ mr, length }] });
  return mr.bytes;
};

describe('CRC', () => {
  const cases = [true, false].flatMap((ours) =>
    [true, false].flatMap((theirs) => ROLES.map((role) => ({ ours, theirs, role }))),
  );
  it.each(cases)(
    'ours $ours, theirs $theirs, as $role (MPA-051, MPA-054, MPA-055, MPA-057, MPA-058)',
    async ({ ours, theirs, role }) => {
      const { bench, peer } = await up(role, { crc: ours ? 'preferred' : 'off' }, { crc: theirs });
      const on = ours || theirs;
      expect(bench.side.event('established')!.negotiated.crc).toBe(on);
      // A responder says C=1 also where only the Request asked: a Linux siw built to require CRC refuses a
      // Reply without it.
      expect(peer.startup().frame.crc).toBe(role === 'responder' ? on : ours);
      bench.side.qp.postSend({
        wrId: 1,
        opcode: 'send',
        sges: [{ mr: bench.side.register(count(21)), length: 21 }],
      });
      bench.settle();
      const [fpdu] = peer.fpdus();
      expect(fpdu!.problems).toEqual([]);
      expect(peer.behind().length).toBe(2 + 39 + 3 + 4); // with the field in either case
      expect(fpdu!.crcOk).toBe(on);
      // An FPDU with a wrong field is refused only where CRC is in use.
      const memory = receive(bench, 8);
      peer.sendFpdus([{ ulpdu: send(1, count(8)), crcFlip: 1 }].map((input) => (on ? input : input.ulpdu)));
      bench.settle();
      expect(peer.terminates()).toEqual(on ? ['2/0/02'] : []);
      expect(memory).toEqual(on ? new Uint8Array(8) : count(8));
      peer.end();
      bench.run();
      expect(bench.side.received().map((wc) => wc.status)).toEqual([on ? 'flushed' : 'success']);
    },
  );

  it('with C=0 in both frames the fields 00000000 and DEADBEEF are both taken (MPA-055)', async () => {
    for (const role of ROLES) {
      const { bench, peer } = await up(role, { crc: 'off' }, { crc: false });
      for (const [i, field] of [0, 0xdead_beef].entries()) {
        const memory = receive(bench, 5);
        const octets = peer.encode([send(i + 1, count(5, i))]);
        new DataView(octets.buffer).setUint32(octets.length - 4, field);
        peer.sendRaw(octets);
        bench.settle();
        expect(memory).toEqual(count(5, i));
      }
      expect(bench.side.received().length).toBe(2);
    }
  });
});

describe('markers', () => {
  const cases = [true, false].flatMap((ours) =>
    [true, false].flatMap((theirs) => ROLES.map((role) => ({ ours, theirs, role }))),
  );
  it.each(cases)(
    "ours $ours, theirs $theirs, as $role: each direction follows the other side's bit (MPA-059/060/062)",
    async ({ ours, theirs, role }) => {
      const { bench, peer } = await up(role, { markers: ours }, { markers: theirs });
      expect(peer.startup().frame.markers).toBe(ours);
      expect(bench.side.event('established')!.negotiated).toMatchObject({
        sendMarkers: theirs,
        receiveMarkers: ours,
      });
      bench.side.qp.postSend({
        wrId: 1,
        opcode: 'send',
        sges: [{ mr: bench.side.register(count(5000)), length: 5000 }],
      });
      const memory = receive(bench, 5000);
      peer.sendFpdus([
        untaggedUlpdu({ opcode: 3, qn: 0, msn: 1, last: false }, count(1000)),
        untaggedUlpdu({ opcode: 3, qn: 0, msn: 1, mo: 1000 }, count(4000, 1000)),
      ]);
      bench.settle();
      expect(memory).toEqual(count(5000));
      expect(peer.problems()).toEqual([]);
      const seen = peer.fpdus().flatMap((fpdu) => fpdu.markersSeen);
      expect(seen.length).toBe(theirs ? Math.ceil(peer.behind().length / 512) : 0);
      if (theirs) expect([...peer.behind().slice(0, 4)]).toEqual([0, 0, 0, 0]); // MPA-094
      expect(Buffer.concat(peer.segments().map((segment) => segment.payload))).toEqual(
        Buffer.from(count(5000)),
      );
    },
  );

  it('no marker is sent before the first FPDU (MPA-094)', async () => {
    const { peer, bench } = await up('responder', { markers: true }, { markers: true });
    expect(peer.behind().length).toBe(0);
    bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    bench.settle();
    expect(peer.behind().length).toBe(4 + 24);
  });

  it('an FPDU that ends at a marker position completes at once (MPA-106)', async () => {
    const { bench, peer } = await up('initiator', { markers: true }, {});
    const memory = receive(bench, 484);
    const octets = peer.sendFpdus([send(1, count(484))]);
    expect(octets.length).toBe(512);
    bench.settle();
    expect(memory).toEqual(count(484));
    expect(bench.side.received()).toMatchObject([{ status: 'success' }]);
  });

  it.each(ROLES)(
    'a marker that points elsewhere is answered by 2/0/03, then FIN, as %s (MPA-104, MPA-110, MPA-074)',
    async (role) => {
      for (const crc of [true, false]) {
        const { bench, peer } = await up(role, { markers: true, crc: crc ? 'preferred' : 'off' }, { crc });
        const memory = receive(bench, 900);
        // The first FPDU of an initiator's direction is not under test here.
        peer.sendFpdus([{ ulpdu: send(1, count(900)), pointer: (right) => right + 4 }]);
        bench.settle();
        expect(peer.terminates()).toEqual(['2/0/03']);
        expect(peer.ending).toBe('fin');
        expect(memory).toEqual(new Uint8Array(900));
        expect(bench.side.connection!.counters().markerErrors).toBe(1);
      }
    },
  );
});

describe('sizes', () => {
  /** ULPDU lengths of one long Write. */
  async function sizes(
    policy: Partial<ConnectionPolicy>,
    markers: boolean,
    octets: number,
  ): Promise<{ lengths: number[]; peer: RawPeer; bench: RawBench }> {
    const { bench, peer } = await up('initiator', policy, { markers });
    const mr = bench.side.register(count(octets));
    bench.side.qp.postSend({
      wrId: 1,
      opcode: 'rdma-write',
      sges: [{ mr, length: octets }],
      rkey: 1,
      remoteAddr: 0,
    });
    bench.settle();
    expect(peer.problems()).toEqual([]);
    return { lengths: peer.fpdus().map((fpdu) => fpdu.ulpduLength), peer, bench };
  }

  it('EMSS 1448 without markers: 1442 each, only the last one shorter (MPA-078, MPA-082)', async () => {
    const { lengths } = await sizes({ emss: 1448 }, false, 14_280 + 5);
    expect(lengths).toEqual([...new Array(10).fill(1442), 19]);
  });

  it('EMSS 1448 with markers: 1430 each (MPA-079, MPA-082)', async () => {
    const { lengths } = await sizes({ emss: 1448 }, true, 1416 * 10 + 5);
    expect(lengths).toEqual([...new Array(10).fill(1430), 19]);
  });

  it('EMSS 100: FPDUs up to ULPDU_Length 128 (MPA-080)', async () => {
    expect((await sizes({ emss: 100 }, false, 300)).lengths).toEqual([128, 128, 86]);
    expect((await sizes({ emss: 100 }, true, 300)).lengths).toEqual([128, 128, 86]);
  });

  it('the largest EMSS gives 64768 octets and no more (MPA-076, MPA-077)', async () => {
    expect(Math.max(...(await sizes({ emss: 65_535 }, false, 200_000)).lengths)).toBe(64_768);
    expect(Math.max(...(await sizes({ emss: 65_535 }, true, 200_000)).lengths)).toBe(64_768);
  });

  it('by default the size fits a TCP segment of a 1500-octet MTU with timestamps (MPA-081)', async () => {
    const { lengths } = await sizes({}, false, 10_000);
    expect(Math.max(...lengths)).toBe(1442);
  });

  it('Sends of 0 to 8 octets, one ULPDU an FPDU, packed and unpacked (MPA-063/064/065/066)', async () => {
    const { bench, peer } = await up('initiator', {}, {});
    const mr = bench.side.register(count(8));
    for (let length = 0; length <= 8; length++)
      bench.side.qp.postSend({ wrId: length, opcode: 'send', sges: length === 0 ? [] : [{ mr, length }] });
    bench.settle();
    const fpdus = peer.fpdus();
    expect(fpdus.map((fpdu) => fpdu.ulpduLength)).toEqual([18, 19, 20, 21, 22, 23, 24, 25, 26]);
    expect(fpdus.map((fpdu) => fpdu.padLength)).toEqual([0, 3, 2, 1, 0, 3, 2, 1, 0]);
    expect(fpdus.map((fpdu) => fpdu.segment!.payload)).toEqual(
      [0, 1, 2, 3, 4, 5, 6, 7, 8].map((length) => count(length)),
    );
    expect(peer.problems()).toEqual([]);
  });

  it('each write begins with an FPDU; a burst of posts goes out as one (MPA-084, MPA-085)', async () => {
    const { bench, peer } = await up('initiator', {}, {});
    const mr = bench.side.register(count(8));
    const before = peer.deliveries.length;
    for (let wrId = 0; wrId < 10; wrId++)
      bench.side.qp.postSend({ wrId, opcode: 'send', sges: [{ mr, length: 8 }] });
    bench.settle();
    expect(peer.deliveries.slice(before).map((delivery) => delivery.octets)).toEqual([10 * 32]);
    for (let wrId = 0; wrId < 3; wrId++) {
      bench.side.qp.postSend({ wrId, opcode: 'send', sges: [{ mr, length: 8 }] });
      bench.settle();
    }
    expect(peer.deliveries.slice(before + 1).map((delivery) => delivery.octets)).toEqual([32, 32, 32]);
    expect(peer.problems()).toEqual([]);
  });

  it('Reads and atomics posted singly leave in batches of 16, unlike Sends (MPA-085)', async () => {
    const { bench, peer } = await up('initiator', { ord: 128 }, {});
    const mr = bench.side.register(64);
    const { qp } = bench.side;
    const posts = {
      read: () => qp.postSend({ opcode: 'rdma-read', sges: [{ mr, length: 8 }], rkey: 7, remoteAddr: 0 }),
      atomic: () =>
        qp.postSend({
          opcode: 'atomic-fetch-add',
          sges: [{ mr, length: 8 }],
          rkey: 7,
          remoteAddr: 0,
          add: 1n,
        }),
      write: () => qp.postSend({ opcode: 'rdma-write', inline: count(8), rkey: 7, remoteAddr: 0 }),
      send: () => qp.postSend({ opcode: 'send', inline: count(8) }),
    };
    /** Octets of one FPDU of each kind: length, headers, body, padding, CRC. */
    const octets = { read: 52, atomic: 76, write: 28, send: 32 };
    const arrived = (kinds: readonly (keyof typeof posts)[]): number[] => {
      const before = peer.deliveries.length;
      for (const kind of kinds) posts[kind]();
      bench.settle();
      return peer.deliveries.slice(before).map((delivery) => delivery.octets);
    };
    const times = <T>(n: number, kind: T): T[] => Array.from({ length: n }, () => kind);
    expect(arrived(times(15, 'read'))).toEqual([15 * octets.read]);
    expect(arrived(times(3, 'read'))).toEqual([3 * octets.read]); // counted anew in each turn
    expect(arrived(times(16, 'read'))).toEqual([16 * octets.read]);
    expect(arrived(times(20, 'read'))).toEqual([16 * octets.read, 4 * octets.read]);
    expect(arrived(times(24, 'atomic'))).toEqual([16 * octets.atomic, 8 * octets.atomic]);
    expect(arrived(times(40, 'write'))).toEqual([40 * octets.write]);
    expect(arrived(times(40, 'send'))).toEqual([40 * octets.send]);
    // Order is that of the queue: what stands in front of a lot leaves with it.
    expect(arrived([...times(5, 'send' as const), ...times(17, 'read' as const)])).toEqual([
      5 * octets.send + 16 * octets.read,
      octets.read,
    ]);
  });

  it('a fault met when a batch leaves is reported after the call that posted it (VERBS-049)', async () => {
    const { bench, peer } = await up('initiator', { ord: 128 }, {});
    const [mr, gone] = [bench.side.register(64), bench.side.register(64)];
    const { qp } = bench.side;
    const post = (wrId: number, sink = mr): void =>
      void qp.postSend({
        wrId,
        opcode: 'rdma-read',
        sges: [{ mr: sink, length: 8 }],
        rkey: 7,
        remoteAddr: 0,
      });
    for (let wrId = 0; wrId < 14; wrId++) post(wrId);
    post(14, gone);
    gone.deregister();
    post(15);
    expect([qp.state, bench.side.sendCq.length]).toEqual(['rts', 0]);
    bench.settle();
    expect(peer.terminates()).toEqual(['0/0/00']);
    expect(peer.segments().filter((segment) => segment.opcode === 1).length).toBe(14);
    peer.end();
    bench.run();
    const statuses = bench.side.sent().map(({ status }) => status);
    expect(statuses).toEqual([
      ...Array.from({ length: 14 }, () => 'flushed'),
      'local-protection-error',
      'flushed',
    ]);
    expect(qp.state).toBe('error');
  });

  it('DDP and RDMAP version are 1 on revisions 1 and 2 (MPA-092)', async () => {
    for (const mpaRevision of [1, 2] as const) {
      const { bench, peer } = await up('responder', { mpaRevision }, {});
      bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
      bench.settle();
      expect(peer.segments()).toMatchObject([{ dv: 1, rv: 1 }]);
      expect(bench.side.event('established')!.negotiated.ddpVersion).toBe(1);
    }
  });
});

describe('receiving in operation', () => {
  it('two Sends in one write are two completions; a cut one is none (MPA-086/087/088)', async () => {
    const { bench, peer } = await up('initiator', {}, {});
    for (const wrId of [1, 2, 3]) receive(bench, 100, wrId);
    peer.sendFpdus([send(1, count(10)), send(2, count(77))]);
    bench.settle();
    expect(bench.side.received().map((wc) => [wc.wrId, wc.byteLength])).toEqual([
      [1, 10],
      [2, 77],
    ]);
    const octets = peer.encode([send(3, count(31))]);
    peer.sendRaw(octets.slice(0, -1));
    bench.settle(1000);
    expect(bench.side.received()).toEqual([]);
    peer.sendRaw(octets.slice(-1));
    bench.settle();
    expect(bench.side.received().map((wc) => [wc.wrId, wc.byteLength])).toEqual([[3, 31]]);
  });

  it('a ULPDU of 65535 octets is taken, with and without markers (MPA-091)', async () => {
    for (const markers of [false, true]) {
      const { bench, peer } = await up('initiator', { markers }, {});
      const payload = 65_535 - 18;
      const memory = receive(bench, payload);
      peer.sendFpdus([send(1, count(payload))]);
      bench.settle();
      expect(bench.side.received()).toMatchObject([{ status: 'success', byteLength: payload }]);
      expect(Buffer.compare(memory, count(payload))).toBe(0);
    }
  });

  it('ULPDUs too short for a DDP header are an error, not a read beyond them (MPA-090)', async () => {
    for (const length of [0, 1, 2, 13, 17]) {
      const { bench, peer } = await up('initiator', {}, {});
      const memory = receive(bench, 64);
      peer.sendFpdus([untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }).slice(0, length), send(1, count(5))]);
      bench.settle();
      expect(peer.terminates()).toEqual(['1/0/00']);
      expect(peer.ending).toBe('fin');
      expect(memory).toEqual(new Uint8Array(64));
    }
  });

  const flips: readonly (readonly [string, (octets: Uint8Array) => void])[] = [
    [
      'the length, 1 to 0',
      (o) => {
        o[1]! &= ~0x20;
      },
    ],
    [
      'the header',
      (o) => {
        o[5]! ^= 0x01;
      },
    ],
    [
      'the payload',
      (o) => {
        o[25]! ^= 0x80;
      },
    ],
    [
      'the PAD',
      (o) => {
        o[o.length - 5]! ^= 0x01;
      },
    ],
    [
      'the CRC',
      (o) => {
        o[o.length - 1]! ^= 0x40;
      },
    ],
  ];
  it.each(flips)(
    'a bit flipped in %s: 2/0/02, then FIN; nothing placed, the rest ignored (MPA-071/072/073/074/110)',
    async (_, flip) => {
      for (const role of ROLES) {
        const { bench, peer } = await up(role, {}, {});
        const target = bench.side.register(64);
        const memory = receive(bench, 64);
        const octets = peer.encode([taggedUlpdu({ opcode: 0, stag: target.rkey, to: 0n }, count(33, 1))]);
        flip(octets);
        peer.sendRaw(octets);
        peer.sendFpdus([
          send(1, count(9, 1)),
          taggedUlpdu({ opcode: 0, stag: target.rkey, to: 0n }, count(33, 1)),
        ]);
        bench.settle();
        expect(peer.terminates()).toEqual(['2/0/02']);
        expect(peer.segments().length).toBe(1);
        expect(peer.problems()).toEqual([]);
        expect(peer.ending).toBe('fin');
        expect(target.bytes).toEqual(new Uint8Array(64));
        expect(memory).toEqual(new Uint8Array(64));
        peer.end();
        bench.run();
        expect(bench.side.received().map((wc) => wc.status)).toEqual(['flushed']);
        expect(bench.side.connection!.counters().crcErrors).toBe(1);
        expect(bench.side.event('terminate')!.terminate).toMatchObject({ layer: 2, type: 0, code: 2 });
      }
    },
  );

  it('PAD octets of FF with a CRC over them are taken (MPA-068)', async () => {
    const { bench, peer } = await up('initiator', {}, {});
    const memory = receive(bench, 5);
    peer.sendFpdus([{ ulpdu: send(1, count(5, 3)), padValue: 0xff } satisfies NaiveFpduInput]);
    bench.settle();
    expect(memory).toEqual(count(5, 3));
  });
});

describe('the close', () => {
  it.each(ROLES)(
    'FIN between FPDUs is told, answered by FIN, and flushes the receives, as %s (MPA-108, MPA-109)',
    async (role) => {
      const { bench, peer } = await up(role, {}, {});
      receive(bench, 8);
      peer.end();
      bench.settle();
      expect(peer.ending).toBe('closed');
      expect(peer.behind().length).toBe(0);
      expect(bench.side.events.map((event) => event.type)).toEqual([
        'established',
        'closing',
        'disconnected',
      ]);
      expect(bench.side.event('closing')!.by).toBe('peer');
      expect(bench.side.event('disconnected')!.cause).toBe('graceful');
      expect(bench.side.received().map((wc) => wc.status)).toEqual(['flushed']);
      expect(bench.side.qp.state).toBe('idle');
    },
  );

  it('our FIN comes after the last FPDU of the work posted before the close (MPA-109)', async () => {
    const { bench, peer } = await up('initiator', {}, {});
    const mr = bench.side.register(count(100_000));
    for (let wrId = 1; wrId <= 3; wrId++)
      bench.side.qp.postSend({ wrId, opcode: 'send', sges: [{ mr, length: 100_000 }] });
    bench.side.connection!.disconnect();
    bench.settle(100);
    expect(peer.ending).toBe('fin');
    expect(Buffer.concat(peer.segments().map((segment) => segment.payload)).length).toBe(300_000);
    expect(bench.side.sent().map((wc) => wc.status)).toEqual(['success', 'success', 'success']);
    peer.end();
    bench.run();
    expect(bench.side.event('disconnected')).toMatchObject({ cause: 'graceful' });
  });

  it.each(['end', 'reset'] as const)(
    'the loss of TCP (%s) inside an FPDU: everything flushed, the part without effect (MPA-107, MPA-110)',
    async (leave) => {
      const { bench, peer } = await up('initiator', {}, {});
      const target = bench.side.register(64);
      const memory = receive(bench, 64);
      const octets = peer.encode([
        send(1, count(10, 1)),
        taggedUlpdu({ opcode: 0, stag: target.rkey, to: 0n }, count(60, 1)),
      ]);
      peer.sendRaw(octets.slice(0, -1));
      bench.settle();
      bench.side.qp.postRecv({ wrId: 2, sges: [] });
      expect(bench.side.received().map((wc) => wc.status)).toEqual(['success']);
      peer[leave]();
      bench.run();
      expect(memory.slice(0, 10)).toEqual(count(10, 1));
      expect(target.bytes).toEqual(new Uint8Array(64));
      expect(peer.behind().length).toBe(0);
      expect(bench.side.received().map((wc) => wc.status)).toEqual(['flushed']);
      expect(bench.side.event('disconnected')!.cause).toBe(leave === 'end' ? 'lost' : 'reset');
      expect(bench.side.qp.state).toBe('error');
    },
  );

  it('a peer that never closes after our Terminate is reset after the time-out (VERBS-045/053)', async () => {
    const { bench, peer } = await up('initiator', {}, {});
    peer.sendFpdus([{ ulpdu: send(1), crcFlip: 4 }, send(1), send(2), send(3)]);
    bench.settle(4900);
    expect(peer.ending).toBe('fin');
    expect(peer.terminates()).toEqual(['2/0/02']);
    peer.sendFpdus([send(4)]);
    bench.settle(200);
    expect(peer.ending).toBe('reset');
    expect(peer.fpdus().length).toBe(1);
    expect(bench.side.event('disconnected')).toMatchObject({ cause: 'terminated' });
  });

  it('a Terminate received, even without FIN, is reported; FIN answers (RDMAP-079, VERBS-050)', async () => {
    for (const fin of [true, false]) {
      const { bench, peer } = await up('initiator', {}, {});
      receive(bench, 8);
      peer.sendFpdus([untaggedUlpdu({ opcode: 7, qn: 2, msn: 1 }, Uint8Array.of(0x10, 0x00, 0, 0)), send(1)]);
      if (fin) peer.end();
      bench.settle();
      expect(peer.behind().length).toBe(0);
      expect(peer.ending).toBe(fin ? 'closed' : 'fin');
      if (!fin) peer.end();
      bench.run();
      expect(bench.side.event('terminate')!.terminate).toMatchObject({ layer: 1, type: 0, code: 0 });
      expect(bench.side.event('disconnected')).toMatchObject({
        cause: 'terminated',
        terminate: { layer: 1 },
      });
      expect(bench.side.received().map((wc) => wc.status)).toEqual(['flushed']);
    }
  });
});
