// RDMA Reads, in both directions: what a responder answers, what it refuses, and what a requester makes of
// Read Responses. RFC 5040 4.4, 5.2, 5.5, 6.1, 7.

import { pause } from '../probe/connection.ts';
import type { Connection } from '../probe/connection.ts';
import { describeSegment } from '../probe/decode.ts';
import { Deviation, check, same, sameBytes } from '../probe/deviation.ts';
import { parseReadRequest, parseSegment, readRequestHeader, tagged, untagged } from '../probe/messages.ts';
import type { ReadRequestFields } from '../probe/messages.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { NORMAL, describeOutcomes, terms } from '../probe/trial.ts';
import type { Outcome, Trial } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { fromHex, pattern } from '../profiles/protocol.ts';
import type { RegionOptions } from '../profiles/protocol.ts';
import type { Region } from '../profiles/tester.ts';
import {
  MALFORMED_REQUEST,
  MO,
  READ_ACCESS,
  READ_ASSOCIATION,
  READ_BOUNDS,
  READ_STAG,
  READ_WRAP,
  TOO_MANY_READS,
} from './codes.ts';
import { established, range, stimulus } from './define.ts';
import type { Case } from './define.ts';

/** For cases with a few Reads at a time. */
const SOME_READS = { ird: 4, maxIrd: 4 } as const;

const SINK = { sinkStag: 0x5a5a_5a00, sinkTo: 0x1000n } as const;

const answered: Case[] = [
  ...[1, 2, 3, 4, 5, 63, 64, 1427, 1428, 1429, 2856, 2857, 65_536, 1_048_576].map((size) =>
    established(
      `rdmap.read.size-${size}`,
      `A Read of ${size} octets`,
      'RDMAP-029 RDMAP-031 RDMAP-025 DDP-023 DDP-021',
      'just these octets, in segments that fit EMSS 1448',
      async (trial, connection) => {
        const MULPDU = 1442;
        const region = await trial.tester.region({ length: size });
        connection.send(connection.makeRead({ ...SINK, size, sourceStag: region.stag, sourceTo: region.to }));
        const { segments, payload } = await connection.expectMessage(
          OPCODE.READ_RESPONSE,
          `a Read Response of ${size} octets`,
        );
        sameBytes('octets read', payload, pattern(size));
        const longest = segments.reduce((most, segment) => Math.max(most, segment.ulpdu.length), 0);
        check(longest <= MULPDU, `ULPDU_Length up to ${MULPDU}`, String(longest), ['DDP-021']);
      },
      { setup: { emss: 1448 } },
    ),
  ),
  ...[1, 16, 23].map((size) =>
    established(
      `rdmap.read.written-${size}`,
      `Write ${size} octets, then read them`,
      'RDMAP-041 RDMAP-029',
      'the octets just written',
      async (trial, connection) => {
        const region = await trial.region(connection);
        const data = trial.random.octets(size);
        connection.send(connection.makeWrite(region.stag, region.to, data));
        sameBytes('octets read', await connection.read(region.stag, region.to, size), data);
      },
      { needs: ['region'] },
    ),
  ),
  established(
    'rdmap.read.written-long',
    'Write 100000 octets in many segments and read them, all in one TCP write',
    'RDMAP-041 RDMAP-063',
    'the octets just written',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 100_000 });
      const data = trial.random.octets(100_000);
      const writes = range(100).map((i) =>
        tagged({
          opcode: OPCODE.RDMA_WRITE,
          stag: region.stag,
          to: region.to + BigInt(i * 1000),
          last: i === 99,
          payload: data.subarray(i * 1000, i * 1000 + 1000),
        }),
      );
      connection.sendTogether([
        ...writes,
        connection.makeRead({ ...SINK, size: 100_000, sourceStag: region.stag, sourceTo: region.to }),
      ]);
      sameBytes(
        'octets read',
        (await connection.expectMessage(OPCODE.READ_RESPONSE, 'a Read Response')).payload,
        data,
      );
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.read.empty-behind-a-write',
    'A Write, then a zero-length Read',
    'RDMAP-042',
    'the answer comes when the Write has been placed',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 5000, fill: 0 });
      connection.send(connection.makeWrite(region.stag, region.to, pattern(5000)));
      await connection.ping();
      sameBytes('memory', await trial.tester.peek(region), pattern(5000));
    },
    { needs: ['tester'] },
  ),
  ...(
    [
      ['maximal', 0xffff_ffff, 0x0123_4567_89ab_cdefn],
      ['zero', 0, 0n],
      ['one', 1, 1n],
    ] as const
  ).map(([name, sinkStag, sinkTo]) =>
    established(
      `rdmap.read.sink-${name}`,
      `A Read with sink STag 0x${sinkStag.toString(16)} and TO 0x${sinkTo.toString(16)}`,
      'RDMAP-030',
      'both come back unchanged',
      async (trial, connection) => {
        const region = await trial.region(connection);
        connection.send(
          connection.makeRead({ sinkStag, sinkTo, size: 8, sourceStag: region.stag, sourceTo: region.to }),
        );
        const segment = await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a Read Response');
        same('STag', segment.stag, sinkStag);
        same('TO', segment.to, sinkTo);
      },
      { needs: ['region'] },
    ),
  ),
  established(
    'rdmap.read.sink-to-near-2-32',
    'A Read of 5000 octets whose sink TO passes 2^32',
    'RDMAP-030 DDP-018',
    'TO carries into the upper half',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 5000 });
      connection.send(
        connection.makeRead({
          sinkStag: 1,
          sinkTo: 0xffff_fff0n,
          size: 5000,
          sourceStag: region.stag,
          sourceTo: region.to,
        }),
      );
      sameBytes(
        'octets read',
        (await connection.expectMessage(OPCODE.READ_RESPONSE, 'a Read Response')).payload,
        pattern(5000),
      );
    },
    { setup: { emss: 1448 } },
  ),
  established(
    'rdmap.read.three-in-order',
    'Three Reads of 3000, 1 and 70 octets in one TCP write',
    'RDMAP-028 RDMAP-043',
    'three answers in this order',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 3000 });
      connection.sendTogether(
        [3000, 1, 70].map((size, i) =>
          connection.makeRead({
            sinkStag: 100 + i,
            sinkTo: 0n,
            size,
            sourceStag: region.stag,
            sourceTo: region.to,
          }),
        ),
      );
      for (const size of [3000, 1, 70])
        same(
          'octets',
          (await connection.expectMessage(OPCODE.READ_RESPONSE, 'a Read Response')).payload.length,
          size,
        );
    },
    { setup: SOME_READS },
  ),
  established(
    'rdmap.read.unaligned',
    'A Read of 7 octets from an odd offset',
    'RDMAP-055 RDMAP-029',
    'just these octets',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64 });
      sameBytes(
        'octets read',
        await connection.read(region.stag, region.to + 3n, 7),
        pattern(64).subarray(3, 10),
      );
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.read.then-write',
    'A Read, then a Write to the same octets',
    'RDMAP-044',
    'all old or all new octets',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, fill: 0x11 });
      const request = connection.makeRead({
        ...SINK,
        size: 64,
        sourceStag: region.stag,
        sourceTo: region.to,
      });
      connection.sendTogether([
        request,
        connection.makeWrite(region.stag, region.to, new Uint8Array(64).fill(0x22)),
      ]);
      const { payload } = await connection.expectMessage(OPCODE.READ_RESPONSE, 'a Read Response');
      check(
        payload.every((octet) => octet === 0x11 || octet === 0x22),
        'old or new octets',
        'others',
      );
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.read.both-directions',
    'The peer and the probe read from each other at the same time',
    'RDMAP-053 RDMAP-025',
    'both are answered',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 500 });
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0' });
      connection.send(
        connection.makeRead({ ...SINK, size: 500, sourceStag: region.stag, sourceTo: region.to }),
      );
      const seen: number[] = [];
      while (seen.length < 2) {
        const segment = await connection.expectSegment('a Read Request and a Read Response');
        if (segment.last) seen.push(segment.opcode);
      }
      check(
        seen.includes(OPCODE.READ_REQUEST) && seen.includes(OPCODE.READ_RESPONSE),
        'a Read Request and a Read Response',
        seen.join(' '),
      );
    },
    { needs: ['tester'] },
  ),
];

/** A Read of no octets, whose source names are not looked at. */
function emptyRead(
  id: string,
  title: string,
  aim: (trial: Trial) => Promise<{ stag: number; to: bigint }>,
  tester: boolean,
  requirements = 'RDMAP-032 RDMAP-033 SEC-017',
): Case {
  return established(
    `rdmap.empty-read.${id}`,
    title,
    requirements,
    'a zero-length Read Response that echoes the sink',
    async (trial, connection) => {
      const { stag, to } = await aim(trial);
      connection.send(
        connection.makeRead({ sinkStag: 0x0c0f_fe00, sinkTo: 77n, size: 0, sourceStag: stag, sourceTo: to }),
      );
      const segment = await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a zero-length Read Response');
      same('ULPDU_Length', segment.ulpdu.length, 14);
      same('STag', segment.stag, 0x0c0f_fe00);
      same('TO', segment.to, 77n);
      same('L', segment.last, true);
    },
    tester ? { needs: ['tester'] } : {},
  );
}

const empty: Case[] = [
  emptyRead('stag-0', 'A zero-length Read from STag 0', async () => ({ stag: 0, to: 0n }), false),
  emptyRead(
    'unknown-stag',
    'A zero-length Read from an STag nobody knows',
    async (trial) => ({ stag: trial.random.u32(), to: 0n }),
    false,
  ),
  emptyRead(
    'highest-to',
    'A zero-length Read from TO 0xFFFFFFFFFFFFFFFF',
    async () => ({ stag: 0xffff_ffff, to: 0xffff_ffff_ffff_ffffn }),
    false,
  ),
  emptyRead(
    'write-only',
    'A zero-length Read from a region without remote read right',
    async (trial) => trial.tester.region({ access: ['local-write', 'remote-write'] }),
    true,
    'RDMAP-032 SEC-016 SEC-017',
  ),
  emptyRead(
    'other-pd',
    'A zero-length Read from an STag of another protection domain',
    async (trial) => trial.tester.region({ pd: 'b' }),
    true,
  ),
  emptyRead(
    'out-of-bounds',
    'A zero-length Read beyond the end of a region',
    async (trial) => {
      const region = await trial.tester.region({ length: 64 });
      return { stag: region.stag, to: region.to + 65n };
    },
    true,
  ),
];

/** A Read that must be refused. */
function refused(
  id: string,
  title: string,
  requirements: string,
  outcomes: readonly Outcome[],
  aim: (region: Region, trial: Trial) => { stag?: number; to?: bigint; size?: number },
  region: Partial<RegionOptions> | null = null,
): Case {
  return established(
    `rdmap.read.${id}`,
    title,
    requirements,
    describeOutcomes(outcomes),
    async (trial, connection) => {
      const target =
        region === null
          ? await trial.region(connection)
          : await trial.tester.region({ length: 64, ...region });
      const { stag = target.stag, to = target.to, size = 4 } = aim(target, trial);
      connection.send(connection.makeRead({ ...SINK, size, sourceStag: stag, sourceTo: to }, false));
      await trial.expect(connection, outcomes);
    },
    { needs: [region === null ? 'region' : 'tester'] },
  );
}

const end = (region: Region): bigint => region.to + BigInt(region.length);

const faults: Case[] = [
  ...(
    [
      ['unknown-stag', (trial: Trial) => (trial.random.u32() | 0x0100_0000) >>> 0],
      ['stag-0', () => 0],
      ['stag-ffffffff', () => 0xffff_ffff],
    ] as const
  ).map(([id, stag]) =>
    stimulus(
      `rdmap.read.${id}`,
      `A Read of 4 octets from ${id === 'unknown-stag' ? 'an STag nobody knows' : id.replace('-', ' ')}`,
      'RDMAP-034 RDMAP-035 SEC-034',
      READ_STAG,
      (trial, connection) =>
        connection.send(
          connection.makeRead({ ...SINK, size: 4, sourceStag: stag(trial), sourceTo: 0n }, false),
        ),
    ),
  ),
  ...range(8).map((bit) =>
    refused(
      `key-bit-${bit}`,
      `A Read from a good index with bit ${bit} of the key flipped`,
      'RDMAP-035 SEC-034',
      READ_STAG,
      ({ stag }) => ({ stag: (stag ^ (1 << bit)) >>> 0 }),
    ),
  ),
  refused(
    'other-pd',
    'A Read from an STag of another protection domain',
    'RDMAP-036 SEC-001 DDP-067',
    READ_ASSOCIATION,
    () => ({}),
    { pd: 'b' },
  ),
  refused(
    'write-only',
    'A Read from a region without remote read right',
    'RDMAP-040 SEC-016',
    READ_ACCESS,
    () => ({}),
    { access: ['local-write', 'remote-write'] },
  ),
  refused(
    'local-only',
    'A Read from a region without any remote right',
    'RDMAP-040',
    READ_ACCESS,
    () => ({}),
    { access: ['local-write'] },
  ),
  refused(
    'below-base',
    'A Read that begins one octet below the region',
    'RDMAP-037 SEC-004',
    READ_BOUNDS,
    ({ to }) => ({ to: to - 1n }),
    {},
  ),
  refused(
    'at-end',
    'A Read that begins after the last octet',
    'RDMAP-037 RDMAP-038',
    READ_BOUNDS,
    (region) => ({ to: end(region), size: 1 }),
  ),
  refused(
    'passes-end-by-one',
    'A Read whose last octet is outside',
    'RDMAP-038 SEC-004',
    READ_BOUNDS,
    (region) => ({ to: end(region) - 3n }),
  ),
  refused(
    'size-maximal',
    'A Read of 2^32 - 1 octets from a region of 64',
    'RDMAP-038',
    READ_BOUNDS,
    () => ({ size: 0xffff_ffff }),
    {},
  ),
  refused('wraps', 'A Read of 8 octets from TO 0xFFFFFFFFFFFFFFFC', 'RDMAP-039', READ_WRAP, () => ({
    to: 0xffff_ffff_ffff_fffcn,
    size: 8,
  })),
  established(
    'rdmap.read.other-stream',
    'A Read from an STag limited to another stream of the same protection domain',
    'RDMAP-036 SEC-002 DDP-067',
    describeOutcomes(READ_ASSOCIATION),
    async (trial, connection) => {
      const other = await trial.tester.listen('127.0.0.1', {});
      const region = await trial.tester.region({ length: 64, endpoint: other.endpoint });
      connection.send(
        connection.makeRead({ ...SINK, size: 4, sourceStag: region.stag, sourceTo: region.to }, false),
      );
      await trial.expect(connection, READ_ASSOCIATION);
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.read.deregistered',
    'A Read from a region that has been deregistered',
    'RDMAP-035 DDP-070',
    describeOutcomes(READ_STAG),
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64 });
      await trial.tester.deregister(region);
      connection.send(
        connection.makeRead({ ...SINK, size: 4, sourceStag: region.stag, sourceTo: region.to }, false),
      );
      await trial.expect(connection, READ_STAG);
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.read.answers-owed-come-first',
    'A good Read and a bad one in one TCP write',
    'RDMAP-043 RDMAP-075 RDMAP-028',
    'the answer to the first, then the Terminate',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 5000 });
      const good = connection.makeRead({ ...SINK, size: 5000, sourceStag: region.stag, sourceTo: region.to });
      const bad = connection.makeRead({ ...SINK, size: 4, sourceStag: 0x0202_0200, sourceTo: 0n }, false);
      connection.sendTogether([good, bad]);
      sameBytes(
        'the answer to the first',
        (await connection.expectMessage(OPCODE.READ_RESPONSE, 'the answer to the first')).payload,
        pattern(5000),
      );
      await trial.expect(connection, READ_STAG, bad);
    },
    { setup: SOME_READS },
  ),
  established(
    'rdmap.read.report-contents',
    'What the Terminate about a bad Read carries',
    'RDMAP-074 RDMAP-082 RDMAP-084',
    'M, D, R, both headers as sent, the segment length',
    async (trial, connection) => {
      const bad = connection.makeRead(
        {
          sinkStag: 0x1111_1111,
          sinkTo: 0x2222_2222_3333_3333n,
          size: 44,
          sourceStag: 0x4444_4400,
          sourceTo: 0x5555_5555_6666_6666n,
        },
        false,
      );
      connection.send(bad);
      const got = (await trial.expect(connection, READ_STAG))!.terminate!;
      check(
        got.m && got.d && got.r,
        'M=1 D=1 R=1',
        `M=${Number(got.m)} D=${Number(got.d)} R=${Number(got.r)}`,
      );
      same('DDP Segment Length', got.segmentLength!, bad.length);
      sameBytes('DDP header', got.ddpHeader!, bad.subarray(0, 18));
      sameBytes('Read Request header', got.rdmapHeader ?? new Uint8Array(0), bad.subarray(18));
    },
  ),
  established(
    'rdmap.read.ddp-error-without-rdmap-header',
    'What the Terminate about a Read Request on a wrong queue carries',
    'RDMAP-074',
    'no RDMAP header',
    async (trial, connection) => {
      connection.send(untagged({ opcode: OPCODE.READ_REQUEST, qn: 4, msn: 1, payload: new Uint8Array(28) }));
      const got = (await trial.expect(connection, terms(TERM.DDP_INVALID_QN)))!.terminate!;
      same('R', got.r, false);
    },
  ),
];

/** A Read Request that is not what RFC 5040 4.4 has. */
function malformed(
  id: string,
  title: string,
  make: (msn: number) => Uint8Array,
  outcomes: readonly Outcome[] = MALFORMED_REQUEST,
): Case {
  return stimulus(`rdmap.read.${id}`, title, 'RDMAP-015', outcomes, (_trial, connection) => {
    connection.needsRead();
    connection.send(make(connection.takeMsn(1)));
  });
}

const READ = { opcode: OPCODE.READ_REQUEST, qn: 1 } as const;
const malformedRequests: Case[] = [
  ...[1, 16, 27, 29, 32, 100].map((octets) =>
    malformed(
      `request-of-${octets}-octets`,
      `A Read Request with ${octets} octets after the DDP header`,
      (msn) => untagged({ ...READ, msn, payload: new Uint8Array(octets) }),
    ),
  ),
  malformed('request-not-last', 'A Read Request with L=0', (msn) =>
    untagged({ ...READ, msn, last: false, payload: new Uint8Array(28) }),
  ),
  malformed(
    'request-at-mo-4',
    'A Read Request with MO 4',
    (msn) => untagged({ ...READ, msn, mo: 4, payload: new Uint8Array(28) }),
    [...MO, ...MALFORMED_REQUEST],
  ),
];

const depth: Case[] = [
  established(
    'rdmap.read.as-many-as-ird',
    'As many Reads of 20000 octets as the peer offered',
    'RDMAP-050 ENH-021',
    'all are answered',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 20_000 });
      connection.sendTogether(
        range(4).map((i) =>
          connection.makeRead({
            sinkStag: i,
            sinkTo: 0n,
            size: 20_000,
            sourceStag: region.stag,
            sourceTo: region.to,
          }),
        ),
      );
      for (let i = 0; i < 4; i++) await connection.expectMessage(OPCODE.READ_RESPONSE, `Read Response ${i}`);
    },
    { setup: { ird: 4, maxIrd: 4 }, startup: { ord: 4, rtr: ['write'] } },
  ),
  established(
    'rdmap.read.more-than-ird',
    'Twelve Reads of 1 MiB to a peer that offered 2, from a probe that does not take the answers',
    'RDMAP-052 SEC-014 SEC-026',
    describeOutcomes(TOO_MANY_READS),
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 1_048_576 });
      connection.channel.pause();
      const requests = range(12).map((i) =>
        connection.makeRead(
          { sinkStag: i, sinkTo: 0n, size: 1_048_576, sourceStag: region.stag, sourceTo: region.to },
          true,
          true,
        ),
      );
      connection.sendTogether(requests);
      await pause(trial.limits.quiet);
      connection.channel.resume();
      const { terminate, end: ended } = await connection.reaction();
      if (terminate === null)
        throw new Deviation(
          describeOutcomes(TOO_MANY_READS),
          ended === null ? 'all were answered' : `${ended.toUpperCase()} without a Terminate`,
        );
      const code = (terminate.layer << 12) | (terminate.etype << 8) | terminate.code;
      check(
        TOO_MANY_READS.some((o) => o.kind === 'terminate' && o.code === code),
        describeOutcomes(TOO_MANY_READS),
        `Terminate 0x${code.toString(16)}`,
      );
    },
    { setup: { ird: 2, maxIrd: 2 }, startup: { ord: 2 } },
  ),
  established(
    'rdmap.read.outstanding-at-most-ord',
    'The peer posts ten Reads; the probe offered 2 and does not answer',
    'RDMAP-051 ENH-015 ENH-020',
    'two Read Requests, a third after the first answer',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0', count: 10 });
      const first = await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request');
      await connection.expectOpcode(OPCODE.READ_REQUEST, 'a second Read Request');
      await connection.expectQuiet('no third Read Request before an answer');
      answer(connection, first.payload, pattern(4));
      await connection.expectOpcode(OPCODE.READ_REQUEST, 'a third Read Request');
      await connection.expectQuiet('no fourth Read Request before an answer');
    },
    { setup: { ord: 4 }, startup: { ird: 2, rtr: ['write'] }, enhanced: true },
  ),
  established(
    'rdmap.read.ord-one',
    'The peer posts Read, Read, Send; the probe offered 1',
    'RDMAP-051 ENH-015 ENH-020 RDMAP-093',
    'one Read Request at a time, in the order posted',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0', count: 2 });
      await trial.tester.post({ kind: 'send', length: 4 });
      const first = await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request');
      await connection.expectQuiet('nothing after the stalled Read');
      answer(connection, first.payload, pattern(4));
      await connection.expectOpcode(OPCODE.READ_REQUEST, 'the second Read Request');
      await connection.expectOpcode(OPCODE.SEND, 'the Send after it');
    },
    { needs: ['tester'], startup: { ird: 1, rtr: ['write'] }, enhanced: true },
  ),
];

/** A lawful answer to a Read Request of the peer. */
function answer(connection: Connection, header: Uint8Array, data: Uint8Array): void {
  const request = parseReadRequest(header)!;
  connection.send(
    tagged({ opcode: OPCODE.READ_RESPONSE, stag: request.sinkStag, to: request.sinkTo, payload: data }),
  );
}

/** The code to send first, then what other readings of RFC 5040 5.2.2 send. */
const badResponse = (first: number): Outcome[] =>
  terms(first, ...BAD_RESPONSE_CODES.filter((code) => code !== first));
const BAD_RESPONSE_CODES = [
  TERM.DDP_BOUNDS,
  TERM.DDP_INVALID_STAG,
  TERM.RDMAP_UNEXPECTED_OPCODE,
  TERM.DDP_LOCAL_CATASTROPHIC,
] as const;
const WRONG_PLACE = badResponse(TERM.DDP_BOUNDS);
const WRONG_STAG = badResponse(TERM.DDP_INVALID_STAG);
const UNASKED = badResponse(TERM.RDMAP_UNEXPECTED_OPCODE);

/** The peer reads 16 octets; the probe answers wrongly. */
function wrongAnswer(
  id: string,
  title: string,
  requirements: string,
  outcomes: readonly Outcome[],
  reply: (connection: Connection, request: ReadRequestFields) => void,
): Case {
  return established(
    `rdmap.response.${id}`,
    title,
    requirements,
    describeOutcomes(outcomes),
    async (trial, connection) => {
      await trial.tester.post({ kind: 'read', length: 16, stag: 9, to: '0' });
      const segment = await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request');
      reply(connection, parseReadRequest(segment.payload)!);
      await trial.expect(connection, outcomes);
      const done = await trial.tester.completions(0, trial.limits.quiet);
      if (!outcomes.includes(NORMAL))
        same(
          'Reads completed with success',
          done.filter((wc) => wc.opcode === 'rdma-read' && wc.status === 'success').length,
          0,
        );
    },
    { needs: ['tester'] },
  );
}

const response = (stag: number, to: bigint, payload: Uint8Array, last = true): Uint8Array =>
  tagged({ opcode: OPCODE.READ_RESPONSE, stag, to, payload, last });

const responses: Case[] = [
  wrongAnswer(
    'longer-than-asked',
    'A Read Response of 17 octets to a Read of 16',
    'RDMAP-047 RDMAP-048',
    WRONG_PLACE,
    (c, r) => c.send(response(r.sinkStag, r.sinkTo, pattern(17))),
  ),
  wrongAnswer(
    'much-longer',
    'A Read Response of 4000 octets to a Read of 16',
    'RDMAP-047 RDMAP-048',
    WRONG_PLACE,
    (c, r) => c.send(response(r.sinkStag, r.sinkTo, pattern(4000))),
  ),
  wrongAnswer(
    'second-segment-too-long',
    'A Read Response in two segments, the second too long by one',
    'RDMAP-047 RDMAP-048 DDP-051',
    WRONG_PLACE,
    (c, r) => {
      c.send(response(r.sinkStag, r.sinkTo, pattern(8), false));
      c.send(response(r.sinkStag, r.sinkTo + 8n, pattern(9)));
    },
  ),
  wrongAnswer(
    'shorter',
    'A Read Response of 15 octets with L to a Read of 16',
    'RDMAP-048',
    [...WRONG_PLACE, NORMAL],
    (c, r) => c.send(response(r.sinkStag, r.sinkTo, pattern(15))),
  ),
  wrongAnswer('unknown-stag', 'A Read Response to an STag nobody knows', 'RDMAP-047', WRONG_STAG, (c) =>
    c.send(response(0x3333_3300, 0n, pattern(16))),
  ),
  wrongAnswer(
    'wrong-key',
    'A Read Response to the right index with another key',
    'RDMAP-047',
    WRONG_STAG,
    (c, r) => c.send(response((r.sinkStag ^ 1) >>> 0, r.sinkTo, pattern(16))),
  ),
  wrongAnswer(
    'outside',
    'A Read Response at a TO outside the sink',
    'RDMAP-047 RDMAP-048',
    WRONG_PLACE,
    (c, r) => c.send(response(r.sinkStag, r.sinkTo + 0x1000_0000n, pattern(16))),
  ),
];

const solicited: Case[] = [
  established(
    'rdmap.response.one-too-many',
    'Two Read Responses to one Read',
    'RDMAP-049 RDMAP-047',
    describeOutcomes(UNASKED),
    async (trial, connection) => {
      await trial.tester.post({ kind: 'read', length: 16, stag: 9, to: '0' });
      const request = parseReadRequest(
        (await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request')).payload,
      )!;
      connection.send(response(request.sinkStag, request.sinkTo, pattern(16)));
      const again = response(request.sinkStag, request.sinkTo, pattern(16));
      connection.send(again);
      await trial.expect(connection, UNASKED);
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.response.unasked',
    'A Read Response to a region that the peer offered only for reading',
    'RDMAP-049',
    'an error; memory unchanged',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, fill: 0xee, access: ['remote-read'] });
      connection.send(response(region.stag, region.to, pattern(16)));
      await trial.expect(
        connection,
        terms(
          TERM.RDMAP_UNEXPECTED_OPCODE,
          TERM.DDP_LOCAL_CATASTROPHIC,
          TERM.DDP_INVALID_STAG,
          TERM.DDP_NOT_ASSOCIATED,
          TERM.DDP_BOUNDS,
        ),
      );
      sameBytes('memory', await trial.tester.peek(region), new Uint8Array(64).fill(0xee));
    },
    { needs: ['tester'] },
  ),
  stimulus(
    'rdmap.response.unasked-unknown',
    'A Read Response that nobody asked for, to an STag nobody knows',
    'RDMAP-049',
    terms(TERM.RDMAP_UNEXPECTED_OPCODE, TERM.DDP_LOCAL_CATASTROPHIC, TERM.DDP_INVALID_STAG),
    (_trial, connection) => connection.send(response(0x3333_3300, 0n, pattern(16))),
  ),
  stimulus(
    'rdmap.response.unasked-empty',
    'A zero-length Read Response that nobody asked for',
    'RDMAP-049',
    [...terms(TERM.RDMAP_UNEXPECTED_OPCODE, TERM.DDP_LOCAL_CATASTROPHIC, TERM.DDP_INVALID_STAG)],
    (_trial, connection) => connection.send(response(0, 0n, new Uint8Array(0))),
  ),
  stimulus(
    'rdmap.response.unasked-writable',
    'A Read Response that nobody asked for, to a writable region',
    'RDMAP-049',
    terms(TERM.RDMAP_UNEXPECTED_OPCODE, TERM.DDP_LOCAL_CATASTROPHIC, TERM.DDP_INVALID_STAG),
    async (trial, connection) => {
      const region = await trial.region(connection);
      connection.send(response(region.stag, region.to, pattern(16)));
    },
    { needs: ['region'] },
  ),
  established(
    'rdmap.response.in-segments',
    'A Read of 3000 octets answered in four segments',
    'RDMAP-045 RDMAP-046 RDMAP-025',
    'complete after the last',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'read', length: 3000, stag: 9, to: '0' });
      const request = parseReadRequest(
        (await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request')).payload,
      )!;
      const data = pattern(3000);
      for (let at = 0; at < 3000; at += 1000) {
        if (at === 2000)
          same(
            'completions before the last segment',
            (await trial.tester.completions(1, trial.limits.quiet)).length,
            0,
          );
        connection.send(
          response(request.sinkStag, request.sinkTo + BigInt(at), data.subarray(at, at + 1000), at === 2000),
        );
      }
      const [wc] = await trial.tester.completions(1);
      sameBytes('data read', fromHex(wc?.data ?? ''), data);
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.response.reads-complete-in-order',
    'Three Reads of different size, answered one after the other',
    'RDMAP-046 RDMAP-094',
    'three completions in this order',
    async (trial, connection) => {
      for (const length of [7, 1, 300]) await trial.tester.post({ kind: 'read', length, stag: 9, to: '0' });
      for (const length of [7, 1, 300])
        answer(
          connection,
          (await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request')).payload,
          pattern(length),
        );
      same('lengths', (await trial.tester.completions(3)).map((wc) => wc.length).join(' '), '7 1 300');
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.response.partly-answered',
    'The source is deregistered while a Read of 32 MiB is being answered',
    'RDMAP-086 DDP-070 RDMAP-035',
    'Terminate 0/1/00 whose Read Request header is advanced by the octets sent',
    async (trial, connection) => {
      await partlyAnswered(trial, connection);
    },
    { needs: ['tester'] },
  ),
];

async function partlyAnswered(trial: Trial, connection: Connection): Promise<void> {
  const size = 32 * 1024 * 1024;
  const region = await trial.tester.region({ length: size, fill: 0x33 });
  const fields = {
    sinkStag: 0x0707_0700,
    sinkTo: 0xffff_0000n,
    size,
    sourceStag: region.stag,
    sourceTo: region.to,
  };
  const request = connection.makeRead(fields);
  connection.channel.pause();
  connection.send(request);
  await pause(3 * trial.limits.quiet);
  await trial.tester.deregister(region);
  connection.channel.resume();
  let octets = 0;
  for (;;) {
    const segment = await connection.expectSegment('the rest of the answer and a Terminate');
    if (segment.opcode === OPCODE.READ_RESPONSE) {
      octets += segment.payload.length;
      check(!segment.last, 'an answer that breaks off', 'a complete answer');
      continue;
    }
    same('opcode', segment.opcode, OPCODE.TERMINATE);
    const { payload } = segment;
    check(
      payload[0] === 0x01 && payload.length === 52,
      'Terminate 0/1/xx with both headers',
      describeSegment(segment),
    );
    sameBytes('DDP header', payload.subarray(6, 24), parseSegment(request)!.header);
    const wanted = readRequestHeader({
      ...fields,
      sinkTo: fields.sinkTo + BigInt(octets),
      sourceTo: fields.sourceTo + BigInt(octets),
      size: size - octets,
    });
    sameBytes('advanced Read Request header', payload.subarray(24), wanted);
    return;
  }
}

export const rdmapReads: readonly Case[] = [
  ...answered,
  ...empty,
  ...faults,
  ...malformedRequests,
  ...depth,
  ...responses,
  ...solicited,
];
