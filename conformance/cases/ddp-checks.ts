// DDP: what a receiver makes of headers, queues, numbers, offsets and STags. RFC 5041 4, 5, 7, 8.

import type { Connection } from '../probe/connection.ts';
import { Unsuited, check, same, sameBytes } from '../probe/deviation.ts';
import { parseReadRequest, tagged, untagged } from '../probe/messages.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { NORMAL, describeOutcomes, terms } from '../probe/trial.ts';
import type { Outcome, Trial } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { fromHex, pattern } from '../profiles/protocol.ts';
import type { RegionOptions } from '../profiles/protocol.ts';
import type { Region } from '../profiles/tester.ts';
import {
  INVALIDATE_FOREIGN,
  INVALIDATE_UNKNOWN,
  MO,
  MSN,
  NO_BUFFER,
  OPCODE_ERROR,
  QN_ERROR,
  TOO_LONG,
  VERSION,
  WRITE_ACCESS,
  WRITE_ASSOCIATION,
  WRITE_BOUNDS,
  WRITE_STAG,
  WRITE_WRAP,
} from './codes.ts';
import { established, hex2, range, stimulus } from './define.ts';
import type { Case } from './define.ts';

const LAST = 0x40;
const FOUR = Uint8Array.of(1, 2, 3, 4);
const DV_WORDS = ['0, as the RDMA Consortium numbered it', '1', '2', '3'];

const headers: Case[] = [
  ...[0x04, 0x08, 0x10, 0x20, 0x3c].map((bits) =>
    established(
      `ddp.header.reserved-bits-${hex2(bits)}`,
      `A Send with reserved DDP control bits 0x${hex2(bits)}`,
      'DDP-005',
      'the Send is delivered',
      async (trial, connection) => {
        const payload = trial.acceptableSend();
        connection.send(
          untagged({
            opcode: OPCODE.SEND,
            qn: 0,
            msn: connection.takeMsn(0),
            payload,
            ddpControl: LAST | bits | 1,
          }),
        );
        await trial.delivered(connection, payload);
      },
      { needs: ['send'] },
    ),
  ),
  stimulus(
    'ddp.header.reserved-bits-write',
    'A zero-length Write with all reserved DDP control bits set',
    'DDP-005',
    [NORMAL],
    (_trial, connection) =>
      connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n, ddpControl: 0xfd })),
  ),
  ...[0, 2, 3].flatMap((dv) => [
    stimulus(
      `ddp.header.dv-${dv}-write`,
      `A zero-length Write with DV ${DV_WORDS[dv]}`,
      'DDP-007 DDP-056',
      terms(TERM.DDP_TAGGED_VERSION),
      (_trial, connection) =>
        connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n, ddpControl: 0xc0 | dv })),
    ),
    stimulus(
      `ddp.header.dv-${dv}-send`,
      `A Send with DV ${DV_WORDS[dv]}`,
      'DDP-008 DDP-056',
      terms(TERM.DDP_UNTAGGED_VERSION),
      (trial, connection) =>
        connection.send(
          untagged({
            opcode: OPCODE.SEND,
            qn: 0,
            msn: connection.msn[0]!,
            payload: trial.acceptableSend(),
            ddpControl: LAST | dv,
          }),
        ),
    ),
    stimulus(
      `ddp.header.dv-${dv}-read-request`,
      `A zero-length Read Request with DV ${DV_WORDS[dv]}`,
      'DDP-008',
      terms(TERM.DDP_UNTAGGED_VERSION),
      (_trial, connection) =>
        connection.send(
          untagged({
            opcode: OPCODE.READ_REQUEST,
            qn: 1,
            msn: connection.msn[1]!,
            payload: new Uint8Array(28),
            ddpControl: LAST | dv,
          }),
        ),
    ),
  ]),
];

const queues: Case[] = [
  ...[4, 5, 0xff, 0x0100_0000, 0xffff_ffff].map((qn) =>
    stimulus(
      `ddp.qn.send-on-${qn}`,
      `A Send on queue ${qn}`,
      'DDP-039 DDP-056',
      QN_ERROR,
      (trial, connection) =>
        connection.send(untagged({ opcode: OPCODE.SEND, qn, msn: 1, payload: trial.acceptableSend() })),
    ),
  ),
  ...[1, 2, 3].map((qn) =>
    stimulus(
      `ddp.qn.send-on-${qn}`,
      `A Send on queue ${qn}`,
      'RDMAP-009 DDP-039',
      QN_ERROR,
      (trial, connection) =>
        connection.send(untagged({ opcode: OPCODE.SEND, qn, msn: 1, payload: trial.acceptableSend() })),
    ),
  ),
  ...[0, 2, 3, 4, 0xffff_ffff].map((qn) =>
    stimulus(
      `ddp.qn.read-request-on-${qn}`,
      `A zero-length Read Request on queue ${qn}`,
      'RDMAP-009 DDP-039',
      QN_ERROR,
      (_trial, connection) =>
        connection.send(untagged({ opcode: OPCODE.READ_REQUEST, qn, msn: 1, payload: new Uint8Array(28) })),
    ),
  ),
];

/**
 * Differences that show how many bits of an MSN are compared: its lower half, three octets, all but the sign.
 */
const HIGH_BITS = [0x0001_0000, 0x0100_0000, 0x8000_0000] as const;

const numbers: Case[] = [
  ...[0, 2, 3, 1000, 0x8000_0000, 0xffff_ffff, ...HIGH_BITS.map((bit) => bit + 1)].map((msn) =>
    stimulus(
      `ddp.msn.first-send-${msn}`,
      `The first Send has MSN ${msn}`,
      'DDP-043',
      MSN,
      (trial, connection) => {
        // A Send as RTR message was the first.
        if (msn === connection.msn[0]) throw new Unsuited(`the next Send has MSN ${msn}`);
        connection.send(untagged({ opcode: OPCODE.SEND, qn: 0, msn, payload: trial.acceptableSend() }));
      },
    ),
  ),
  stimulus(
    'ddp.msn.repeated',
    'Two Sends with the same MSN',
    'DDP-043 DDP-032',
    MSN,
    (trial, connection) => {
      const msn = connection.takeMsn(0);
      connection.send(untagged({ opcode: OPCODE.SEND, qn: 0, msn, payload: trial.acceptableSend() }));
      connection.send(untagged({ opcode: OPCODE.SEND, qn: 0, msn, payload: Uint8Array.of(9, 9) }));
    },
    { needs: ['tester'] },
  ),
  stimulus(
    'ddp.msn.skipped',
    'Two Sends between whose MSNs one is missing',
    'DDP-043',
    MSN,
    (trial, connection) => {
      const msn = connection.takeMsn(0);
      connection.send(untagged({ opcode: OPCODE.SEND, qn: 0, msn, payload: trial.acceptableSend() }));
      connection.send(untagged({ opcode: OPCODE.SEND, qn: 0, msn: msn + 2, payload: Uint8Array.of(9, 9) }));
    },
    { needs: ['tester'] },
  ),
  ...[-1, 1, 1000, ...HIGH_BITS].map((step) =>
    stimulus(
      `ddp.msn.read-request-${step < 0 ? 'minus' : 'plus'}-${Math.abs(step)}`,
      `A zero-length Read Request whose MSN is ${step} from the one due`,
      'DDP-043',
      MSN,
      (_trial, connection) =>
        connection.send(
          untagged({
            opcode: OPCODE.READ_REQUEST,
            qn: 1,
            msn: (connection.msn[1]! + step) >>> 0,
            payload: new Uint8Array(28),
          }),
        ),
    ),
  ),
  established(
    'ddp.msn.wrap-received',
    'Sends with MSN 0xFFFFFFFF, 0 and 1',
    'DDP-015 DDP-043',
    'all are delivered',
    async (trial, connection) => {
      await connection.ping();
      for (const length of [3, 4, 5]) connection.send(connection.makeSend(pattern(length)));
      same('completions', (await trial.tester.received(3)).length, 3);
    },
    { needs: ['first-msn'], setup: { firstMsn: 0xffff_ffff } },
  ),
  established(
    'ddp.msn.wrap-of-reads-received',
    'Zero-length Reads with MSN 0xFFFFFFFF, 0 and 1',
    'DDP-015 DDP-016 DDP-043',
    'all are answered',
    async (trial, connection) => {
      for (let i = 0; i < 3; i++) await connection.ping();
    },
    { needs: ['first-msn'], setup: { firstMsn: 0xffff_ffff } },
  ),
  established(
    'ddp.msn.wrap-of-reads-sent',
    'The peer reads with MSN 0xFFFFFFFF, 0 and 1',
    'DDP-015 DDP-016',
    'MSN 0xFFFFFFFF, 0, 1',
    async (trial, connection) => {
      await connection.ping();
      for (const msn of [0xffff_ffff, 0, 1]) {
        await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0' });
        const segment = await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request');
        same('MSN', segment.msn, msn);
        const request = parseReadRequest(segment.payload)!;
        connection.send(
          tagged({ opcode: OPCODE.READ_RESPONSE, stag: request.sinkStag, to: request.sinkTo, payload: FOUR }),
        );
      }
      same(
        'Reads completed with success',
        (await trial.tester.completions(3)).filter((wc) => wc.status === 'success').length,
        3,
      );
    },
    { needs: ['first-msn'], setup: { firstMsn: 0xffff_ffff } },
  ),
  established(
    'ddp.msn.wrap-sent',
    'The peer sends with MSN 0xFFFFFFFF, 0 and 1',
    'DDP-015',
    'MSN 0xFFFFFFFF, 0, 1',
    async (trial, connection) => {
      await connection.ping();
      await trial.tester.post({ kind: 'send', length: 5, count: 3 });
      for (const msn of [0xffff_ffff, 0, 1])
        same('MSN', (await connection.expectOpcode(OPCODE.SEND, 'a Send')).msn, msn);
    },
    { needs: ['first-msn'], setup: { firstMsn: 0xffff_ffff } },
  ),
];

/** A message to queue 0 in two segments. */
function twoSegments(connection: Connection, first: number, mo: number, second: number): Uint8Array[] {
  const msn = connection.takeMsn(0);
  return [
    untagged({ opcode: OPCODE.SEND, qn: 0, msn, last: false, payload: pattern(first) }),
    untagged({ opcode: OPCODE.SEND, qn: 0, msn, mo, payload: pattern(second) }),
  ];
}

const offsets: Case[] = [
  stimulus(
    'ddp.mo.beyond-the-buffer',
    'A Send in two segments, the second far beyond the buffer',
    'DDP-041',
    MO,
    (_trial, connection) =>
      twoSegments(connection, 8, 0x1000_0000, 8).forEach((ulpdu) => connection.send(ulpdu)),
    { needs: ['send'] },
  ),
  stimulus(
    'ddp.mo.single-beyond-the-buffer',
    'A Send in one segment whose MO is beyond the buffer',
    'DDP-041',
    MO,
    (trial, connection) =>
      connection.send(
        untagged({
          opcode: OPCODE.SEND,
          qn: 0,
          msn: connection.msn[0]!,
          mo: trial.receiveSize + 4,
          payload: FOUR,
        }),
      ),
    { needs: ['send'] },
  ),
  stimulus(
    'ddp.mo.maximal',
    'A Send with MO 0xFFFFFFFF',
    'DDP-041',
    MO,
    (_trial, connection) =>
      connection.send(
        untagged({ opcode: OPCODE.SEND, qn: 0, msn: connection.msn[0]!, mo: 0xffff_ffff, payload: FOUR }),
      ),
    { needs: ['send'] },
  ),
  stimulus(
    'ddp.mo.wraps',
    'A Send whose MO and length together wrap 32 bits',
    'DDP-041 DDP-042',
    MO,
    (_trial, connection) =>
      connection.send(
        untagged({ opcode: OPCODE.SEND, qn: 0, msn: connection.msn[0]!, mo: 0xffff_fffe, payload: FOUR }),
      ),
    { needs: ['send'] },
  ),
  ...(
    [
      ['gap', 20],
      ['overlap', 4],
      ['repeated', 0],
    ] as const
  ).map(([name, mo]) =>
    stimulus(
      `ddp.mo.${name}`,
      `A Send in two segments, 8 octets and then MO ${mo}`,
      'DDP-027 DDP-041',
      [...terms(TERM.DDP_INVALID_MO), NORMAL],
      (_trial, connection) => twoSegments(connection, 8, mo, 8).forEach((ulpdu) => connection.send(ulpdu)),
      { needs: ['tester'] },
    ),
  ),
];

const buffers: Case[] = [
  stimulus(
    'ddp.send.too-long',
    'A Send one octet longer than the buffer',
    'DDP-042 RDMAP-061',
    TOO_LONG,
    (trial, connection) => connection.send(connection.makeSend(pattern(trial.receiveSize + 1))),
    { needs: ['send'] },
  ),
  stimulus(
    'ddp.send.too-long-second-segment',
    'A Send whose second segment passes the end of the buffer by one octet',
    'DDP-042 RDMAP-061',
    TOO_LONG,
    (trial, connection) =>
      twoSegments(connection, 12, 12, trial.receiveSize - 11).forEach((ulpdu) => connection.send(ulpdu)),
    { needs: ['send'] },
  ),
  established(
    'ddp.send.exactly-fits',
    'A Send as long as the buffer',
    'DDP-024 DDP-042',
    'it is delivered',
    async (trial, connection) => {
      connection.send(connection.makeSend(pattern(100)));
      const [wc] = await trial.tester.received(1);
      sameBytes('message', fromHex(wc?.data ?? ''), pattern(100));
    },
    { setup: { receiveSize: 100 } },
  ),
  stimulus(
    'ddp.send.no-buffer',
    'A Send without a posted receive',
    'DDP-040',
    NO_BUFFER,
    (_trial, connection) => connection.send(connection.makeSend(FOUR)),
    { setup: { receives: 0 } },
  ),
  stimulus(
    'ddp.send.one-too-many',
    'Two Sends into one posted receive',
    'DDP-040',
    [...NO_BUFFER, ...terms(TERM.DDP_MSN_RANGE)],
    (_trial, connection) => {
      connection.send(connection.makeSend(FOUR));
      connection.send(connection.makeSend(FOUR));
    },
    { setup: { receives: 1 } },
  ),
];

/** A Write that must be refused, and must leave the region as it was. */
function refusedWrite(
  id: string,
  title: string,
  requirements: string,
  outcomes: readonly Outcome[],
  aim: (region: Region, trial: Trial) => { stag?: number; to?: bigint; payload?: Uint8Array },
  region: Partial<RegionOptions> | null = null,
): Case {
  return established(
    `ddp.write.${id}`,
    title,
    requirements,
    describeOutcomes(outcomes),
    async (trial, connection) => {
      const target =
        region === null
          ? await trial.region(connection)
          : await trial.tester.region({ length: 64, fill: 0xee, ...region });
      const { stag = target.stag, to = target.to, payload = FOUR } = aim(target, trial);
      connection.send(connection.makeWrite(stag, to, payload));
      await trial.expect(connection, outcomes);
      if (region !== null)
        sameBytes('memory', await trial.tester.peek(target), new Uint8Array(64).fill(0xee));
    },
    { needs: [region === null ? 'region' : 'tester'] },
  );
}

const end = (region: Region): bigint => region.to + BigInt(region.length);

const stags: Case[] = [
  stimulus(
    'ddp.write.unknown-stag',
    'A Write of 4 octets to an STag nobody knows',
    'DDP-045 RDMAP-019 SEC-034',
    WRITE_STAG,
    (trial, connection) =>
      connection.send(connection.makeWrite((trial.random.u32() | 0x0100_0000) >>> 0, 0n, FOUR)),
  ),
  ...[0, 1, 0xffff_ffff].map((stag) =>
    stimulus(
      `ddp.write.stag-${stag.toString(16)}`,
      `A Write of 4 octets to STag 0x${stag.toString(16)}`,
      'DDP-045',
      WRITE_STAG,
      (_trial, connection) => connection.send(connection.makeWrite(stag, 0n, FOUR)),
    ),
  ),
  ...range(8).map((bit) =>
    refusedWrite(
      `key-bit-${bit}`,
      `A Write to a good index with bit ${bit} of the key flipped`,
      'DDP-045 SEC-034',
      WRITE_STAG,
      ({ stag }) => ({ stag: (stag ^ (1 << bit)) >>> 0 }),
    ),
  ),
  ...[8, 15, 23, 31].map((bit) =>
    refusedWrite(
      `index-bit-${bit}`,
      `A Write with bit ${bit} of the STag flipped`,
      'DDP-045 SEC-034',
      WRITE_STAG,
      ({ stag }) => ({ stag: (stag ^ (1 << bit)) >>> 0 }),
    ),
  ),
  refusedWrite(
    'other-pd',
    'A Write to an STag of another protection domain',
    'DDP-046 DDP-067 DDP-068 SEC-001',
    WRITE_ASSOCIATION,
    () => ({}),
    { pd: 'b' },
  ),
  refusedWrite(
    'read-only',
    'A Write to a region without remote write right',
    'DDP-047',
    WRITE_ACCESS,
    () => ({}),
    { access: ['local-write', 'remote-read'] },
  ),
  refusedWrite(
    'local-only',
    'A Write to a region without any remote right',
    'DDP-047',
    WRITE_ACCESS,
    () => ({}),
    { access: ['local-write'] },
  ),
  established(
    'ddp.write.other-stream',
    'A Write to an STag limited to another stream of the same protection domain',
    'DDP-046 DDP-067 DDP-068 SEC-002',
    describeOutcomes(WRITE_ASSOCIATION),
    async (trial, connection) => {
      const other = await trial.tester.listen('127.0.0.1', {});
      const region = await trial.tester.region({ length: 64, fill: 0xee, endpoint: other.endpoint });
      connection.send(connection.makeWrite(region.stag, region.to, FOUR));
      await trial.expect(connection, WRITE_ASSOCIATION);
      sameBytes('memory', await trial.tester.peek(region), new Uint8Array(64).fill(0xee));
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.write.own-stream',
    'A Write to an STag limited to this stream',
    'DDP-067',
    'it is placed',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, endpoint: trial.tester.endpoint });
      connection.send(connection.makeWrite(region.stag, region.to, FOUR));
      sameBytes('memory', await connection.read(region.stag, region.to, 4), FOUR);
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.write.deregistered',
    'A Write to a region that has been deregistered',
    'DDP-070 DDP-045',
    describeOutcomes(WRITE_STAG),
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64 });
      connection.send(connection.makeWrite(region.stag, region.to, FOUR));
      await connection.ping();
      await trial.tester.deregister(region);
      connection.send(connection.makeWrite(region.stag, region.to, FOUR));
      await trial.expect(connection, WRITE_STAG);
    },
    { needs: ['tester'] },
  ),
];

const bounds: Case[] = [
  refusedWrite(
    'below-base',
    'A Write that begins one octet below the region',
    'DDP-048 SEC-004',
    WRITE_BOUNDS,
    ({ to }) => ({ to: to - 1n }),
    {},
  ),
  refusedWrite(
    'at-end',
    'A Write that begins after the last octet',
    'DDP-048 SEC-004',
    WRITE_BOUNDS,
    (region) => ({ to: end(region) }),
  ),
  refusedWrite(
    'passes-end-by-one',
    'A Write whose last octet is outside',
    'DDP-049 SEC-004',
    WRITE_BOUNDS,
    (region) => ({ to: end(region) - 3n }),
  ),
  refusedWrite(
    'longer-than-region',
    'A Write of one octet more than the region has',
    'DDP-049 SEC-004 DDP-052',
    WRITE_BOUNDS,
    () => ({ payload: pattern(65) }),
    {},
  ),
  refusedWrite(
    'half-outside',
    'A Write half inside, half outside: nothing is placed',
    'DDP-052 SEC-038',
    WRITE_BOUNDS,
    (region) => ({ to: end(region) - 32n, payload: pattern(64) }),
    {},
  ),
  refusedWrite('plus-2-32', 'A Write 4 GiB above the region', 'DDP-048', WRITE_BOUNDS, ({ to }) => ({
    to: (to + 0x1_0000_0000n) & 0xffff_ffff_ffff_ffffn,
  })),
  refusedWrite('plus-2-63', 'A Write 2^63 above the region', 'DDP-048', WRITE_BOUNDS, ({ to }) => ({
    to: to ^ 0x8000_0000_0000_0000n,
  })),
  refusedWrite(
    'to-zero',
    'A Write at TO 0 to a region that begins higher',
    'DDP-048',
    WRITE_BOUNDS,
    () => ({ to: 0n }),
    {},
  ),
  refusedWrite('wraps', 'A Write of 8 octets at TO 0xFFFFFFFFFFFFFFFC', 'DDP-050', WRITE_WRAP, () => ({
    to: 0xffff_ffff_ffff_fffcn,
    payload: pattern(8),
  })),
  refusedWrite(
    'ends-at-2-64',
    'A Write of 4 octets at TO 0xFFFFFFFFFFFFFFFC',
    'DDP-048 DDP-050',
    [...WRITE_BOUNDS, ...WRITE_WRAP],
    () => ({ to: 0xffff_ffff_ffff_fffcn }),
  ),
  ...(
    [
      ['all-of-it', 0, 64],
      ['first-octet', 0, 1],
      ['last-octet', 63, 1],
      ['unaligned', 3, 7],
      ['odd-length', 1, 61],
    ] as const
  ).map(([name, at, length]) =>
    established(
      `ddp.write.${name}`,
      `A Write of ${length} octets at offset ${at} of a region of 64`,
      'DDP-019 DDP-024 DDP-049 RDMAP-023',
      'just these octets change',
      async (trial, connection) => {
        const region = await trial.tester.region({ length: 64, fill: 0xee });
        const data = trial.random.octets(length);
        connection.send(connection.makeWrite(region.stag, region.to + BigInt(at), data));
        await connection.ping();
        const wanted = new Uint8Array(64).fill(0xee);
        wanted.set(data, at);
        sameBytes('memory', await trial.tester.peek(region), wanted);
      },
      { needs: ['tester'] },
    ),
  ),
  established(
    'ddp.write.high-base',
    'A Write to a region whose tagged offsets reach 2^64',
    'DDP-048 DDP-050',
    'it is placed',
    async (trial, connection) => {
      const region = await trial.tester.region({
        length: 64,
        fill: 0,
        base: 0xffff_ffff_ffff_ffc0n.toString(),
      });
      connection.send(connection.makeWrite(region.stag, region.to + 60n, FOUR));
      await connection.ping();
      sameBytes('the last octets', await trial.tester.peek(region, 60, 4), FOUR);
    },
    { needs: ['tester'] },
  ),
];

/** A Write of no octets: names are not looked at. */
function emptyWrite(
  id: string,
  title: string,
  requirements: string,
  aim: (trial: Trial, connection: Connection) => Promise<{ stag: number; to: bigint }>,
  tester: boolean,
): Case {
  return established(
    `ddp.empty-write.${id}`,
    title,
    requirements,
    'normal operation',
    async (trial, connection) => {
      const { stag, to } = await aim(trial, connection);
      connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag, to }));
      await connection.ping();
    },
    tester ? { needs: ['tester'] } : {},
  );
}

const IDS = 'DDP-026 RDMAP-021';
const empty: Case[] = [
  emptyWrite('stag-0', 'A zero-length Write to STag 0', IDS, async () => ({ stag: 0, to: 0n }), false),
  emptyWrite(
    'unknown-stag',
    'A zero-length Write to an STag nobody knows',
    IDS,
    async (trial) => ({ stag: trial.random.u32(), to: 0n }),
    false,
  ),
  emptyWrite(
    'highest-to',
    'A zero-length Write at TO 0xFFFFFFFFFFFFFFFF',
    IDS,
    async () => ({ stag: 0xffff_ffff, to: 0xffff_ffff_ffff_ffffn }),
    false,
  ),
  emptyWrite(
    'other-pd',
    'A zero-length Write to an STag of another protection domain',
    IDS,
    async (trial) => trial.tester.region({ pd: 'b' }),
    true,
  ),
  emptyWrite(
    'read-only',
    'A zero-length Write to a region without remote write right',
    IDS,
    async (trial) => trial.tester.region({ access: ['remote-read'] }),
    true,
  ),
  emptyWrite(
    'out-of-bounds',
    'A zero-length Write beyond the end of a region',
    IDS,
    async (trial) => {
      const region = await trial.tester.region({ length: 64 });
      return { stag: region.stag, to: region.to + 65n };
    },
    true,
  ),
];

const errors: Case[] = [
  established(
    'ddp.error.first-segment-out-of-bounds',
    'A Write whose first segment, not its last, is out of bounds',
    'DDP-051 DDP-049',
    describeOutcomes(WRITE_BOUNDS),
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, fill: 0xee });
      connection.send(
        tagged({
          opcode: OPCODE.RDMA_WRITE,
          stag: region.stag,
          to: end(region) - 4n,
          last: false,
          payload: pattern(8),
        }),
      );
      await trial.expect(connection, WRITE_BOUNDS);
      sameBytes('memory', await trial.tester.peek(region), new Uint8Array(64).fill(0xee));
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.error.later-segment-out-of-bounds',
    'A Write in two segments, the second out of bounds',
    'DDP-051',
    describeOutcomes(WRITE_BOUNDS),
    async (trial, connection) => {
      const region = await trial.region(connection);
      connection.send(
        tagged({
          opcode: OPCODE.RDMA_WRITE,
          stag: region.stag,
          to: end(region) - 8n,
          last: false,
          payload: pattern(8),
        }),
      );
      connection.send(
        tagged({ opcode: OPCODE.RDMA_WRITE, stag: region.stag, to: end(region), payload: pattern(8) }),
      );
      await trial.expect(connection, WRITE_BOUNDS);
    },
    { needs: ['region'] },
  ),
  established(
    'ddp.error.later-segment-unknown-stag',
    'A Write in two segments, the second to an unknown STag',
    'DDP-051',
    describeOutcomes(WRITE_STAG),
    async (trial, connection) => {
      const region = await trial.region(connection);
      connection.send(
        tagged({
          opcode: OPCODE.RDMA_WRITE,
          stag: region.stag,
          to: region.to,
          last: false,
          payload: pattern(8),
        }),
      );
      connection.send(
        tagged({
          opcode: OPCODE.RDMA_WRITE,
          stag: (region.stag ^ 0x55) >>> 0,
          to: region.to + 8n,
          payload: pattern(8),
        }),
      );
      await trial.expect(connection, WRITE_STAG);
    },
    { needs: ['region'] },
  ),
  established(
    'ddp.error.nothing-behind-it-counts',
    'A bad Write, then a good Write and a good Send in one TCP write',
    'DDP-054 RDMAP-091',
    'neither is placed nor delivered',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, fill: 0xee });
      const bad = connection.makeWrite(0x7777_7700, 0n, FOUR);
      connection.sendTogether([
        bad,
        connection.makeWrite(region.stag, region.to, FOUR),
        connection.makeSend(FOUR),
      ]);
      await trial.expect(connection, WRITE_STAG, bad);
      sameBytes('memory', await trial.tester.peek(region), new Uint8Array(64).fill(0xee));
      same('delivered messages', (await trial.tester.deliveredWithin(trial.limits.quiet)).length, 0);
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.error.report-contents',
    'What the Terminate about a bad Write carries',
    'DDP-053 DDP-055 RDMAP-073 RDMAP-082 RDMAP-084',
    'M, D, the DDP header as sent, the segment length',
    async (trial, connection) => {
      const bad = connection.makeWrite(0x7777_7700, 0x1122_3344_5566_7788n, pattern(9));
      connection.send(bad);
      const terminate = (await trial.expect(connection, WRITE_STAG))!.terminate!;
      check(
        terminate.m && terminate.d && !terminate.r,
        'M=1 D=1 R=0',
        `M=${Number(terminate.m)} D=${Number(terminate.d)} R=${Number(terminate.r)}`,
      );
      same('DDP Segment Length', terminate.segmentLength!, bad.length);
      sameBytes('DDP header', terminate.ddpHeader!, bad.subarray(0, 14));
    },
  ),
  established(
    'ddp.error.report-contents-long',
    'What the Terminate about a bad Write of 700 octets carries',
    'DDP-053 RDMAP-084',
    'the segment length in both its octets',
    async (trial, connection) => {
      const bad = connection.makeWrite(0x7777_7700, 0n, pattern(700));
      connection.send(bad);
      const terminate = (await trial.expect(connection, WRITE_STAG))!.terminate!;
      check(terminate.m, 'M=1', 'M=0');
      same('DDP Segment Length', terminate.segmentLength!, bad.length);
    },
  ),
  established(
    'ddp.error.report-contents-long-untagged',
    'What the Terminate about a Send of 700 octets with a bad MSN carries',
    'DDP-053 RDMAP-084',
    'the segment length in both its octets',
    async (trial, connection) => {
      const bad = untagged({ opcode: OPCODE.SEND, qn: 0, msn: 77, payload: pattern(700) });
      connection.send(bad);
      const terminate = (await trial.expect(connection, MSN))!.terminate!;
      check(terminate.m, 'M=1', 'M=0');
      same('DDP Segment Length', terminate.segmentLength!, bad.length);
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.error.report-contents-untagged',
    'What the Terminate about a Send with a bad MSN carries',
    'DDP-053 RDMAP-073 RDMAP-084',
    'M, D, the DDP header as sent, the segment length',
    async (trial, connection) => {
      const bad = untagged({ opcode: OPCODE.SEND, qn: 0, msn: 77, payload: trial.acceptableSend() });
      connection.send(bad);
      const terminate = (await trial.expect(connection, MSN))!.terminate!;
      check(
        terminate.m && terminate.d && !terminate.r,
        'M=1 D=1 R=0',
        `M=${Number(terminate.m)} D=${Number(terminate.d)} R=${Number(terminate.r)}`,
      );
      same('DDP Segment Length', terminate.segmentLength!, bad.length);
      sameBytes('DDP header', terminate.ddpHeader!, bad.subarray(0, 18));
    },
  ),
  ...(
    [
      [
        'version',
        'a Send with RV 0',
        VERSION,
        (connection) =>
          untagged({
            opcode: OPCODE.SEND,
            qn: 0,
            msn: connection.takeMsn(0),
            payload: FOUR,
            rdmapControl: OPCODE.SEND,
          }),
      ],
      [
        'opcode',
        'a tagged segment with opcode 0xf',
        OPCODE_ERROR,
        () => tagged({ opcode: 0xf, stag: 1, to: 2n, payload: FOUR }),
      ],
      [
        'invalidate',
        'a Send that invalidates an STag nobody knows',
        INVALIDATE_UNKNOWN,
        (connection) => connection.makeSend(FOUR, OPCODE.SEND_INVALIDATE, 0x0707_0700),
      ],
      [
        'foreign',
        'a Send that invalidates an STag of another protection domain',
        INVALIDATE_FOREIGN,
        (connection, stag) => connection.makeSend(FOUR, OPCODE.SEND_INVALIDATE, stag),
      ],
    ] satisfies [string, string, readonly Outcome[], (connection: Connection, stag: number) => Uint8Array][]
  ).map(([name, words, outcomes, make]) =>
    established(
      `ddp.error.report-contents-${name}`,
      `What the Terminate about ${words} carries`,
      'RDMAP-073 RDMAP-082 RDMAP-084',
      'M, D, the DDP header as sent, the segment length',
      async (trial, connection) => {
        const bad = make(connection, (await trial.tester.region({ length: 64, pd: 'b' })).stag);
        connection.send(bad);
        const terminate = (await trial.expect(connection, outcomes))!.terminate!;
        check(
          terminate.m && terminate.d && !terminate.r,
          'M=1 D=1 R=0',
          `M=${Number(terminate.m)} D=${Number(terminate.d)} R=${Number(terminate.r)}`,
        );
        same('DDP Segment Length', terminate.segmentLength!, bad.length);
      },
      { needs: ['tester'] },
    ),
  ),
];

export const ddpChecks: readonly Case[] = [
  ...headers,
  ...queues,
  ...numbers,
  ...offsets,
  ...buffers,
  ...stags,
  ...bounds,
  ...empty,
  ...errors,
];
