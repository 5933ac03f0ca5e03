/**
 * What a stream makes of single inputs: counters, Terminates that name work of ours or none, and timers that
 * a role does not need. RFC 5040 4.8, 7.1; verbs draft 8.2.
 */
import { describe, expect, it } from 'vitest';
import type { RdmaStream } from '../../src/stream/stream.ts';
import { encodeTerminate, taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import { expectTerminate, OP, pattern, scripted, send, write, type Script } from '../rdmap/scripted.ts';

const streamOf = (script: Script): RdmaStream =>
  (script.side.connection!.link as unknown as { stream: RdmaStream }).stream;

describe('the counters of a stream', () => {
  it('are those of both directions, with no error on a connection without one', async () => {
    const script = await scripted();
    const { mr } = script.region(16);
    script.receives(1, 16);
    const octetsIn = (): number => script.peer.encode([]).length;
    expect(octetsIn()).toBe(0);
    const before = streamOf(script).counters();
    script.send(write(mr.rkey, 0n, pattern(16)), send(1, pattern(3))).settle();
    script.side.qp.postSend({ opcode: 'send', inline: pattern(5) });
    script.settle();
    const after = streamOf(script).counters();
    // Headers of 14 and 18 octets, ULPDU_Length, PAD and CRC.
    expect(after.octetsIn - before.octetsIn).toBe(36 + 28);
    expect(after.octetsOut - before.octetsOut).toBe(32);
    expect([after.fpdusIn - before.fpdusIn, after.fpdusOut, after.payloadOut]).toEqual([2, 1, 5]);
    expect([after.payloadIn, after.crcErrors, after.markerErrors, after.nudges]).toEqual([19, 0, 0, 0]);
    expect(after.messagesIn).toMatchObject({ writes: 2, sends: 1, terminates: 0 });
    expect(after.messagesOut).toMatchObject({ sends: 1, writes: 0, terminates: 0 });
  });

  it('tell a CRC error from a marker error', async () => {
    const script = await scripted();
    script.send({ ulpdu: send(1), crcFlip: 1 }).settle();
    expect(streamOf(script).counters()).toMatchObject({ crcErrors: 1, markerErrors: 0 });
    expectTerminate(script, { layer: 2, etype: 0, code: 2 });
    const marked = await scripted({ policy: { markers: true }, open: false });
    marked.send({ ulpdu: write(0, 0n), pointer: () => 4 }).settle();
    expect(streamOf(marked).counters()).toMatchObject({ crcErrors: 0, markerErrors: 1 });
  });
});

describe('a Terminate of the peer', () => {
  const base = { layer: 0, etype: 1, code: 0, m: true, d: true, r: false, reserved: 0, segmentLength: 46 };
  const request = untaggedUlpdu({ opcode: OP.readRequest, qn: 1, msn: 1 }, new Uint8Array(28));
  const rows: [string, Partial<typeof base>, Uint8Array, string][] = [
    ['for a Read Request, of RDMAP protection', {}, request, 'remote-access-error'],
    ['for a Read Request, of RDMAP operation', { etype: 2, code: 7 }, request, 'remote-operation-error'],
    ['for a Read Request, of DDP', { layer: 1, etype: 1 }, request, 'remote-operation-error'],
    ['for a Send with the MSN of the Read', {}, untaggedUlpdu({ opcode: OP.send, qn: 0, msn: 1 }), 'flushed'],
    ['for another Read', {}, untaggedUlpdu({ opcode: OP.readRequest, qn: 1, msn: 2 }), 'flushed'],
    [
      'for a Write whose tagged offset looks like queue and MSN',
      {},
      taggedUlpdu({ opcode: OP.write, stag: 1, to: 0x1_0000_0001n }),
      'flushed',
    ],
  ];
  for (const [name, fields, blamed, status] of rows) {
    it(`${name}, ends our Read as ${status} (VERBS-112)`, async () => {
      const script = await scripted({ role: 'responder' });
      const { mr } = script.region(16);
      script.side.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
      script.settle();
      const header = blamed.slice(0, blamed[0]! >= 0x80 ? 14 : 18);
      const info = { ...base, ...fields };
      const fixed = encodeTerminate({ ...info, m: false, d: false });
      const body = Uint8Array.from([...fixed.subarray(0, 2), 0xc0, 0, 0, 46, ...header]);
      script
        .send(untaggedUlpdu({ opcode: OP.terminate, qn: 2, msn: 1 }, body))
        .settle()
        .finish();
      expect(script.side.sent()).toMatchObject([{ wrId: 1, status }]);
    });
  }

  it('of a version that is not spoken is answered like any segment (RDMAP-004)', async () => {
    const script = await scripted();
    const blamed = untaggedUlpdu({ opcode: OP.terminate, qn: 2, msn: 1, rv: 2 }, new Uint8Array(4));
    script.send(blamed).settle();
    expectTerminate(script, { layer: 0, etype: 2, code: 5, blamed });
  });
});

describe('a relaxed responder', () => {
  it('waits before it sends; an initiator with the same policy has nothing to wait for', async () => {
    const due = async (role: 'initiator' | 'responder'): Promise<number> => {
      const policy = { responder: 'relaxed', responderDelay: 5000 } as const;
      const script = await scripted({ role, open: false, policy });
      return streamOf(script).pollTimeout() - script.time.now();
    };
    // The script's role is the peer's.
    expect(await due('responder')).toBe(Number.POSITIVE_INFINITY);
    expect(await due('initiator')).toBeGreaterThan(4000);
  });
});
