/**
 * RDMA Consortium peers, MPA revision 0: RFC 5044 appendix C. Strict by default; with `mpaRevision: 0`
 * permissive: markers and CRC in both directions and version 0 of DDP and RDMAP. The naive decoder knows
 * version 1 only, so versions are compared field by field here.
 */
import { describe, expect, it } from 'vitest';
import { taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import {
  rawInitiator,
  rawInitiatorUp,
  rawResponder,
  rawResponderUp,
  type RawPeer,
} from '../support/raw-peer.ts';
import { connectedPair } from '../support/pair.ts';
import { count } from '../support/framing.ts';

const V0 = { dv: 0, rv: 0 } as const;
const PERMISSIVE = { policy: { mpaRevision: 0, silentPeerNudge: 0 } } as const;
/** A Request or Reply of such a peer. */
const RDMAC = { revision: 0, markers: true, crc: true } as const;
const write0 = taggedUlpdu({ opcode: 0, stag: 1, to: 0n, ...V0 });
const send0 = (msn: number, payload: Uint8Array): Uint8Array =>
  untaggedUlpdu({ opcode: 3, qn: 0, msn, ...V0 }, payload);

/** Faults of the FPDUs received, beside the versions. */
const problems = (peer: RawPeer): string[] =>
  peer.problems().filter((problem) => !/^(DDP|RDMAP) version 0$/.test(problem));

describe('strict', () => {
  it('a Request of revision 0 gets a rejecting Reply of revision 1, then FIN (MPA-048)', async () => {
    const { bench, peer } = await rawInitiatorUp({}, RDMAC);
    expect(peer.startup().frame).toMatchObject({
      kind: 'reply',
      revision: 1,
      reject: true,
      enhancedData: false,
      pdLength: 0,
    });
    expect(peer.startup().problems).toEqual([]);
    expect(peer.ending).toBe('fin');
    expect(peer.behind().length).toBe(0);
    expect(bench.incoming).toEqual([]);
    expect(bench.failures).toMatchObject([{ reason: 'unusable-revision' }]);
    const other = bench.dial();
    other.request();
    bench.settle();
    expect(other.startup().frame.reject).toBe(false);
  });

  it('a Reply of revision 0 leads to a close in order, without an FPDU (MPA-049)', () => {
    const { bench, peer } = rawResponderUp({}, RDMAC);
    expect(peer.behind().length).toBe(0);
    expect(peer.ending).toBe('fin');
    expect(bench.side.event('connect-error')).toMatchObject({ reason: 'unusable-revision' });
  });
});

describe('permissive', () => {
  it('as responder: revision 0, M=1, C=1 in the Reply, then markers and CRC (MPA-050/092)', async () => {
    // Whatever the peer's own bits and our policy say: appendix C has both on.
    for (const bits of [
      { markers: true, crc: true },
      { markers: false, crc: false },
    ]) {
      const { bench, peer } = await rawInitiator({
        policy: { ...PERMISSIVE.policy, crc: 'off', markers: false },
      });
      peer.request({ revision: 0, ...bits, privateData: count(3) });
      bench.settle();
      expect(peer.startup().frame).toMatchObject({
        revision: 0,
        markers: true,
        crc: true,
        reject: false,
        enhancedData: false,
      });
      expect(bench.side.event('established')!.negotiated).toMatchObject({
        revision: 0,
        crc: true,
        sendMarkers: true,
        receiveMarkers: true,
        ddpVersion: 0,
      });
      expect(bench.incoming[0]!.connection.parameters).toMatchObject({ revision: 0, privateData: count(3) });
    }
    const { bench, peer } = await rawInitiatorUp(PERMISSIVE, RDMAC);
    const mr = bench.side.register(count(2000));
    const memory = bench.side.register(2000);
    bench.side.qp.postRecv({ wrId: 1, sges: [{ mr: memory, length: 2000 }] });
    bench.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr, length: 2000 }] });
    peer.sendFpdus([write0, send0(1, count(1999, 5))]);
    bench.settle();
    expect(memory.bytes.slice(0, 1999)).toEqual(count(1999, 5));
    expect(bench.side.received()).toMatchObject([{ status: 'success', byteLength: 1999 }]);
    expect(peer.segments().every((segment) => segment.dv === 0 && segment.rv === 0)).toBe(true);
    expect(peer.fpdus().flatMap((fpdu) => fpdu.markersSeen).length).toBe(
      Math.ceil(peer.behind().length / 512),
    );
    expect(problems(peer)).toEqual([]);
    expect(Buffer.concat(peer.segments().map((segment) => segment.payload))).toEqual(
      Buffer.from(count(2000)),
    );
  });

  it('as initiator: markers and CRC both ways after a Reply of revision 0 (MPA-050)', () => {
    const { bench, peer } = rawResponder(PERMISSIVE);
    expect(peer.startup().frame).toMatchObject({
      revision: 0,
      markers: true,
      crc: true,
      enhancedData: false,
    });
    peer.reply(RDMAC);
    bench.settle();
    expect(bench.side.event('established')!.negotiated).toMatchObject({
      revision: 0,
      crc: true,
      sendMarkers: true,
      receiveMarkers: true,
      ddpVersion: 0,
      rtr: null,
    });
    const memory = bench.side.register(700);
    bench.side.qp.postRecv({ wrId: 1, sges: [{ mr: memory, length: 700 }] });
    bench.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr: memory, length: 700 }] });
    bench.settle();
    expect(peer.segments()).toMatchObject([{ opcode: 3, ...V0, payload: new Uint8Array(700) }]);
    expect(problems(peer)).toEqual([]);
    peer.sendFpdus([send0(1, count(700))]);
    bench.settle();
    expect(memory.bytes).toEqual(count(700));

    const bare = rawResponderUp(PERMISSIVE, { revision: 0, markers: false, crc: false });
    expect(bare.bench.side.event('established')!.negotiated).toMatchObject({
      crc: true,
      sendMarkers: true,
      receiveMarkers: true,
    });
  });

  it('on such a connection version 1 is the wrong one (MPA-092)', async () => {
    const { bench, peer } = await rawInitiatorUp(PERMISSIVE, RDMAC);
    peer.sendFpdus([write0, taggedUlpdu({ opcode: 0, stag: 1, to: 0n })]);
    bench.settle();
    expect(peer.terminates()).toEqual(['1/1/04']);
    expect(peer.ending).toBe('fin');
  });

  it('revisions 1 and 2 are served as ever (MPA-050)', async () => {
    for (const revision of [1, 2]) {
      const { bench, peer } = await rawInitiatorUp(PERMISSIVE, { revision });
      expect(peer.startup().frame).toMatchObject({ revision, markers: false, reject: false });
      expect(bench.side.event('established')!.negotiated.ddpVersion).toBe(1);
    }
  });

  it('two permissive ends of ours exchange Sends, Writes and Reads in version 0 (MPA-050)', async () => {
    const pair = await connectedPair({ client: PERMISSIVE, server: PERMISSIVE });
    const { client, server } = pair;
    const source = client.register(count(9000));
    const target = server.register(9000);
    const back = client.register(9000);
    server.qp.postRecv({ wrId: 7, sges: [] });
    client.qp.postSend([
      { wrId: 1, opcode: 'rdma-write', sges: [{ mr: source }], rkey: target.rkey, remoteAddr: 0 },
      { wrId: 2, opcode: 'rdma-read', sges: [{ mr: back }], rkey: target.rkey, remoteAddr: 0 },
      { wrId: 3, opcode: 'send', sges: [] },
    ]);
    pair.run();
    expect(client.sent().map((wc) => wc.status)).toEqual(['success', 'success', 'success']);
    expect(server.received()).toMatchObject([{ wrId: 7, status: 'success' }]);
    expect(back.bytes).toEqual(count(9000));
    expect(client.event('established')!.negotiated).toMatchObject({ ddpVersion: 0, revision: 0 });
  });
});
