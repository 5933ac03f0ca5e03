/**
 * What start-up settles, function by function: segment sizes, depths, RTR kinds, room for private data, and
 * frames that are answered without a program. RFC 5044 5, 7.1; RFC 6581 9.
 */
import { describe, expect, it } from 'vitest';
import type { DepthRequest } from '../../src/llp/startup.ts';
import { resolveEmss } from '../../src/mpa/emss.ts';
import { initiatorDepths, negotiateAsInitiator, negotiateAsResponder } from '../../src/mpa/negotiate.ts';
import {
  DEFAULT_POLICY,
  privateDataRoom,
  requestRevision,
  resolvePolicy,
  type ConnectionPolicy,
} from '../../src/mpa/policy.ts';
import { StartupExchange } from '../../src/mpa/startup-exchange.ts';
import { StartupFrameReader } from '../../src/mpa/startup.ts';
import type { EnhancedData, StartupFrame } from '../../src/mpa/wire.ts';
import { decodeStartup } from '../support/naive/decoder.ts';
import { encodeStartup } from '../support/naive/encoder.ts';
import { count } from '../support/framing.ts';

const OPEN = 0x3fff;
const NONE = new Uint8Array(0);

const enhanced = (fields: Partial<EnhancedData> = {}): EnhancedData => ({
  peerToPeer: true,
  rtrSend: false,
  rtrWrite: false,
  rtrRead: false,
  ird: 8,
  ord: 8,
  ...fields,
});

const frame = (kind: 'request' | 'reply', fields: Partial<StartupFrame> = {}): StartupFrame => ({
  kind,
  markers: false,
  crc: true,
  reject: false,
  revision: fields.enhanced === undefined || fields.enhanced === null ? 1 : 2,
  enhanced: null,
  privateData: NONE,
  ...fields,
});

describe('the segment size of a path (MPA-081)', () => {
  const size = (address: string, family: string, mtu?: number): number =>
    resolveEmss({ emss: 'auto' }, { localAddress: { address, family }, mtu });

  it('is nearly 64 KiB over loopback, in any notation, and nowhere else', () => {
    for (const address of ['127.0.0.1', '127.9.9.9']) expect(size(address, 'IPv4', 1500)).toBe(65_483);
    for (const address of ['::1', '::ffff:127.0.0.1']) expect(size(address, 'IPv6', 1500)).toBe(65_483);
    for (const address of ['10.127.0.1', '1.0.127.0']) expect(size(address, 'IPv4', 1500)).toBe(1448);
    expect(size('::ffff:10.127.0.1', 'IPv6', 1500)).toBe(1448);
    expect(size('fe80::127.0.0.1', 'IPv6', 1500)).toBe(1428);
    expect(size('::10', 'IPv6', 1500)).toBe(1428);
  });

  it('leaves room for the headers of the family; a mapped address has those of IPv4', () => {
    expect(size('10.0.0.1', 'IPv4', 9000)).toBe(8948);
    expect(size('fe80::1', 'IPv6', 9000)).toBe(8928);
    expect(size('::ffff:10.0.0.1', 'IPv6', 9000)).toBe(8948);
    expect(size('fe80::ffff:1', 'IPv6', 9000)).toBe(8928);
  });

  it('is that of Ethernet where no MTU is known, and stays within 128 and 65535', () => {
    expect(size('10.0.0.1', 'IPv4')).toBe(1448);
    expect([size('10.0.0.1', 'IPv4', 100), size('10.0.0.1', 'IPv4', 70_000)]).toEqual([128, 65_535]);
    expect(resolveEmss({ emss: 777 }, { localAddress: { address: '::1', family: 'IPv6' } })).toBe(777);
  });
});

describe('a policy', () => {
  it('keeps its base where an option is undefined', () => {
    const given = { ird: undefined, crc: undefined, rtrOffered: undefined };
    expect(resolvePolicy(given as unknown as Partial<ConnectionPolicy>)).toEqual(DEFAULT_POLICY);
  });

  it('asks for the revision that it needs (ENH-007)', () => {
    const revision = (mpaRevision: 0 | 1 | 2, peerToPeer: boolean, negotiateDepths: boolean): number =>
      requestRevision(resolvePolicy({ mpaRevision, peerToPeer, negotiateDepths }));
    for (const mpaRevision of [0, 1, 2] as const) {
      for (const [peerToPeer, depths] of [
        [false, false],
        [false, true],
        [true, false],
        [true, true],
      ] as const) {
        const plain = mpaRevision === 2 && !peerToPeer && !depths;
        expect(revision(mpaRevision, peerToPeer, depths)).toBe(plain ? 1 : mpaRevision);
      }
    }
  });

  it('has room for private data beside what start-up puts in front of it (MPA-018, ENH-004)', () => {
    const room = (legacyDepths: boolean, maxPrivateData?: number): number[] => {
      const policy = resolvePolicy({
        legacyDepths,
        ...(maxPrivateData === undefined ? {} : { maxPrivateData }),
      });
      return [0, 1, 2].map((revision) => privateDataRoom(policy, revision));
    };
    expect(room(false, 512)).toEqual([512, 512, 508]);
    expect(room(true, 512)).toEqual([512, 504, 508]);
    expect(room(true, 6)).toEqual([6, 0, 2]);
    expect(room(true, 3)).toEqual([3, 0, 0]);
  });
});

describe('the depths of a Request', () => {
  it('have an ORD of 1 at least where a Read may be the RTR message, and only there (ENH-044)', () => {
    const ord = (fields: Partial<ConnectionPolicy>): number[] => {
      const depths = initiatorDepths(resolvePolicy({ ord: 0, ...fields }), {});
      return [depths.ord, depths.ordUntold];
    };
    expect(ord({ rtrOffered: ['write', 'read'] })).toEqual([1, 1]);
    expect(ord({ rtrOffered: ['write', 'send'] })).toEqual([0, 0]);
    expect(ord({ rtrOffered: ['read'], peerToPeer: false })).toEqual([0, 0]);
    expect(ord({ rtrOffered: ['read'], mpaRevision: 1 })).toEqual([0, 0]);
    expect(ord({ rtrOffered: ['read'], ord: 5 })).toEqual([5, 5]);
  });
});

describe('the reading of a Reply', () => {
  const read = (
    mine: EnhancedData | null,
    theirs: EnhancedData | null,
    policy: Partial<ConnectionPolicy> = {},
    wishes: DepthRequest = {},
  ): ReturnType<typeof negotiateAsInitiator> =>
    negotiateAsInitiator(
      resolvePolicy(policy),
      frame('request', { enhanced: mine }),
      frame('reply', { enhanced: theirs }),
      wishes,
    );

  it('is enhanced if both frames are (ENH-013)', () => {
    const seen = (mine: EnhancedData | null, theirs: EnhancedData | null): unknown => {
      const { negotiated } = read(mine, theirs);
      return [negotiated.enhanced, negotiated.peerIrd, negotiated.peerOrd, negotiated.rtr];
    };
    const both = enhanced({ rtrWrite: true });
    expect(seen(both, both)).toEqual([true, 8, 8, 'write']);
    expect(seen(both, null)).toEqual([false, undefined, undefined, null]);
    expect(seen(null, both)).toEqual([false, undefined, undefined, null]);
  });

  it('takes a Read as RTR only with an ORD, and the other kinds without (ENH-044)', () => {
    const rtr = (theirs: Partial<EnhancedData>, ord: number): unknown =>
      read(enhanced(), enhanced(theirs), { ord, rtrOffered: ['read', 'write'] }, { ord }).negotiated.rtr;
    expect(rtr({ rtrRead: true, rtrWrite: true }, 2)).toBe('read');
    expect(rtr({ rtrRead: true, rtrWrite: true, ird: 0 }, 2)).toBe('write');
    expect(rtr({ rtrRead: true, ird: 0 }, 2)).toBeNull();
  });
});

describe('the answer to a Request', () => {
  const answer = (
    theirs: EnhancedData | null,
    policy: Partial<ConnectionPolicy> = {},
    wishes: DepthRequest = {},
  ): ReturnType<typeof negotiateAsResponder> =>
    negotiateAsResponder(resolvePolicy(policy), frame('request', { enhanced: theirs }), NONE, wishes);

  it('is enhanced if the Request is', () => {
    const seen = (theirs: EnhancedData | null): unknown => {
      const { negotiated, frame: reply } = answer(theirs);
      return [negotiated!.enhanced, negotiated!.peerIrd, reply.enhanced !== null];
    };
    expect([seen(enhanced()), seen(null)]).toEqual([
      [true, 8, true],
      [false, undefined, false],
    ]);
  });

  it('names a Read as RTR only where a Read can be served (ENH-018)', () => {
    const read = enhanced({ rtrRead: true, ord: 0 });
    const rtr = (policy: Partial<ConnectionPolicy>, wishes: DepthRequest = {}): unknown => {
      const { negotiated } = answer(read, { rtrAccepted: ['read', 'send'], ...policy }, wishes);
      return [negotiated!.rtr, negotiated!.ird];
    };
    expect(rtr({ ird: 4, maxIrd: 0 })).toEqual(['read', 4]);
    expect(rtr({ ird: 0, maxIrd: 8 })).toEqual(['read', 1]);
    expect(rtr({ ird: 0, maxIrd: 8 }, { maxIrd: 2 })).toEqual(['read', 1]);
    expect(rtr({ ird: 0, maxIrd: 8 }, { maxIrd: 0 })).toEqual(['send', 0]);
    expect(rtr({ ird: 0, maxIrd: 0 })).toEqual(['send', 0]);
  });

  it('names the first kind that it can do where none of those asked for is one (ENH-036)', () => {
    const rtr = (rtrAccepted: ConnectionPolicy['rtrAccepted'], ird: number): unknown =>
      answer(enhanced({ rtrSend: true }), { rtrAccepted, ird, maxIrd: ird }).negotiated!.rtr;
    expect(rtr(['read', 'write'], 1)).toBe('read');
    expect(rtr(['write', 'read'], 1)).toBe('write');
    expect(rtr(['read', 'write'], 0)).toBe('write');
    expect(rtr(['read'], 0)).toBe('read');
  });

  it('is a rejection where the peer serves fewer Reads than the policy requires (ENH-019)', () => {
    const refused = (ird: number, requiredOrd: number): unknown => {
      const { frame: reply, negotiated } = answer(enhanced({ ird }), { requiredOrd, ord: 20 });
      return [reply.reject, negotiated === null, reply.enhanced!.ord];
    };
    expect(refused(3, 4)).toEqual([true, true, 4]);
    expect(refused(4, 4)).toEqual([false, false, 4]);
    expect(refused(0, 0)).toEqual([false, false, 0]);
    expect(refused(OPEN, 16_382)).toEqual([false, false, OPEN]);
  });
});

describe('frames without a program', () => {
  const exchange = (policy: Partial<ConnectionPolicy>): StartupExchange =>
    new StartupExchange('responder', resolvePolicy(policy), NONE, {});
  const give = (to: StartupExchange, bytes: Uint8Array): void =>
    expect(to.handleBytes(bytes, 0, bytes.length)).toBe(bytes.length);
  const decoded = (bytes: Uint8Array): unknown => {
    const { markers, crc, reject, revision, enhanced: data } = decodeStartup(bytes)!.frame;
    return { markers, crc, reject, revision, enhanced: data !== undefined && data !== null };
  };

  it('a Request is reported with revision, depths and private data (ENH-023)', () => {
    const request = (of: StartupExchange): unknown =>
      of.verdict?.kind === 'request' ? of.verdict.request : null;
    const plain = exchange({});
    give(plain, encodeStartup({ kind: 'request', revision: 1, privateData: count(9) }));
    expect(request(plain)).toEqual({
      revision: 1,
      privateData: count(9),
      peerIrd: undefined,
      peerOrd: undefined,
    });
    expect(plain.peerPrivateData).toEqual(count(9));
    const both = exchange({});
    const depths = { a: false, b: false, c: false, d: false, ird: 3, ord: 5 };
    give(both, encodeStartup({ kind: 'request', revision: 2, enhanced: depths, privateData: count(4) }));
    expect(request(both)).toEqual({ revision: 2, privateData: count(4), peerIrd: 3, peerOrd: 5 });
  });

  it('an RDMA Consortium Request gets the revision that is spoken, without markers (MPA-048)', () => {
    const responder = exchange({});
    give(responder, encodeStartup({ kind: 'request', revision: 0, markers: true }));
    expect(responder.verdict).toEqual({ kind: 'failed', reason: 'unusable-revision' });
    expect(decoded(responder.farewell!)).toEqual({
      markers: false,
      crc: true,
      reject: true,
      revision: 1,
      enhanced: false,
    });
  });

  it('a rejecting Reply has no markers, and CRC as the policy has it (MPA-031)', () => {
    for (const crc of ['off', 'preferred'] as const) {
      const responder = exchange({ crc, markers: true });
      give(responder, encodeStartup({ kind: 'request', revision: 1, markers: true, crc: true }));
      expect(decoded(responder.reject(count(3)))).toEqual({
        markers: false,
        crc: crc !== 'off',
        reject: true,
        revision: 1,
        enhanced: false,
      });
    }
  });

  it("SMB Direct's header is looked for in revision 1 alone, and where the policy asks for it", () => {
    const header = Uint8Array.of(0, 0, 0, 7, 0, 0, 0, 9, 1, 2);
    const seen = (policy: Partial<ConnectionPolicy>, revision: number): unknown => {
      const responder = exchange(policy);
      give(
        responder,
        encodeStartup({
          kind: 'request',
          revision,
          privateData: header,
          ...(revision === 2 ? { enhanced: { a: false, b: false, c: false, d: false, ird: 3, ord: 5 } } : {}),
        }),
      );
      const { verdict } = responder;
      if (verdict?.kind !== 'request') return null;
      return [verdict.request.peerIrd, verdict.request.peerOrd, verdict.request.privateData.length];
    };
    expect(seen({ legacyDepths: true }, 1)).toEqual([7, 9, 2]);
    expect(seen({ legacyDepths: false }, 1)).toEqual([undefined, undefined, 10]);
    expect(seen({ legacyDepths: true }, 2)).toEqual([3, 5, 10]);
    for (const mpaRevision of [1, 2] as const) {
      const policy = resolvePolicy({ legacyDepths: true, mpaRevision, ird: 6, ord: 5 });
      const request = new StartupExchange('initiator', policy, count(3), {}).begin()!;
      expect(decodeStartup(request)!.frame.privateData.length).toBe(mpaRevision === 1 ? 11 : 3);
    }
  });
});

describe('the reader of start-up frames', () => {
  it('keeps the beginning of a frame while another connection reads its own', () => {
    const first = encodeStartup({ kind: 'request', revision: 1, privateData: count(40) });
    const second = encodeStartup({ kind: 'request', revision: 1, privateData: count(60, 100) });
    const readers = [new StartupFrameReader('request'), new StartupFrameReader('request')] as const;
    for (let at = 0; at < 80; at += 5) {
      readers[0].push(first, at, Math.min(first.length, at + 5));
      readers[1].push(second, at, Math.min(second.length, at + 5));
    }
    expect(readers.map(({ frame: of }) => of?.privateData)).toEqual([count(40), count(60, 100)]);
  });

  it('stops at private data that is too long, and makes no frame of it (MPA-019)', () => {
    const bytes = Uint8Array.from([
      ...encodeStartup({ kind: 'request', revision: 1, pdLength: 513 }),
      ...count(30),
    ]);
    const reader = new StartupFrameReader('request');
    expect(reader.push(bytes, 0, bytes.length)).toBe(20);
    expect([reader.failure, reader.frame]).toEqual(['private-data-too-long', null]);
    expect(reader.push(bytes, 20, bytes.length)).toBe(20);
  });

  it('stops at the end of the frame', () => {
    const bytes = Uint8Array.from([...encodeStartup({ kind: 'reply', revision: 1 }), ...count(30)]);
    const reader = new StartupFrameReader('reply');
    expect(reader.push(bytes, 0, bytes.length)).toBe(20);
    expect(reader.frame).toMatchObject({ kind: 'reply', revision: 1 });
    expect(reader.push(bytes, 20, bytes.length)).toBe(20);
  });
});
