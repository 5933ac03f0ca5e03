// The RDMAP extensions: Immediate Data and Atomics, both directions. RFC 7306 4 to 8.

import type { Connection } from '../probe/connection.ts';
import { check, same, sameBytes } from '../probe/deviation.ts';
import {
  atomicRequestHeader,
  atomicResponseHeader,
  parseAtomicRequest,
  tagged,
  untagged,
} from '../probe/messages.ts';
import type { AtomicRequestFields } from '../probe/messages.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { describeOutcomes, terms } from '../probe/trial.ts';
import type { Outcome, Trial } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { fromHex, pattern } from '../profiles/protocol.ts';
import type { RegionOptions } from '../profiles/protocol.ts';
import type { Region } from '../profiles/tester.ts';
import {
  NO_BUFFER,
  OPCODE_ERROR,
  QN_ERROR,
  READ_ACCESS,
  READ_ASSOCIATION,
  READ_BOUNDS,
  READ_STAG,
  TOO_LONG,
  VERSION,
} from './codes.ts';
import { established, range, stimulus } from './define.ts';
import type { Case } from './define.ts';
import { secondStream } from './rdmap-headers.ts';

const needs = ['extensions'] as const;
const EIGHT = Uint8Array.of(0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77);
const IMM_VALUE = 0x0011_2233_4455_6677n;
const MALFORMED = [...terms(TERM.RDMAP_STREAM_CATASTROPHIC), ...TOO_LONG];
const DATA = 0x0102_0304_0506_0708n;

const makeImmediate = (
  connection: Connection,
  payload: Uint8Array = EIGHT,
  opcode: number = OPCODE.IMMEDIATE,
  word = 0,
): Uint8Array => connection.makeSend(payload, opcode, word);

const immediate: Case[] = [
  ...(
    [
      ['plain', OPCODE.IMMEDIATE, false],
      ['solicited', OPCODE.IMMEDIATE_SE, true],
    ] as const
  ).map(([name, opcode, solicited]) =>
    established(
      `ext.immediate.${name}`,
      `Immediate Data${solicited ? ' with Solicited Event' : ''}`,
      'EXT-011 EXT-012 EXT-016',
      'one receive is used, the 8 octets are delivered',
      async (trial, connection) => {
        connection.send(makeImmediate(connection, EIGHT, opcode));
        const got = await trial.tester.received(1);
        same('completions', got.length, 1);
        same('Immediate Data', BigInt(got[0]!.immediate ?? '0'), IMM_VALUE);
        same('solicited', got[0]!.solicited ?? false, solicited);
      },
      { needs },
    ),
  ),
  ...[0, 1, 7, 9, 16].map((length) =>
    stimulus(
      `ext.immediate.of-${length}-octets`,
      `Immediate Data of ${length} octets`,
      'EXT-010 EXT-017',
      MALFORMED,
      (_trial, connection) => connection.send(makeImmediate(connection, pattern(length))),
      { needs },
    ),
  ),
  stimulus(
    'ext.immediate.not-last',
    'Immediate Data with L=0',
    'EXT-010',
    MALFORMED,
    (_trial, connection) =>
      connection.send(
        untagged({ opcode: OPCODE.IMMEDIATE, qn: 0, msn: connection.msn[0]!, last: false, payload: EIGHT }),
      ),
    { needs },
  ),
  stimulus(
    'ext.immediate.no-buffer',
    'Immediate Data without a posted receive',
    'EXT-011 EXT-017',
    NO_BUFFER,
    (_trial, connection) => connection.send(makeImmediate(connection)),
    { needs, setup: { receives: 0 } },
  ),
  established(
    'ext.immediate.invalidate-field-ignored',
    'Immediate Data whose Invalidate STag field names a region',
    'EXT-004',
    'delivered; the region stays usable',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64 });
      connection.send(makeImmediate(connection, EIGHT, OPCODE.IMMEDIATE, region.stag));
      same('completions', (await trial.tester.received(1)).length, 1);
      connection.send(connection.makeWrite(region.stag, region.to, EIGHT));
      await connection.ping();
    },
    { needs },
  ),
  established(
    'ext.immediate.among-sends',
    'Send, Immediate Data, Send',
    'EXT-013',
    'three completions in this order',
    async (trial, connection) => {
      connection.send(connection.makeSend(pattern(3)));
      connection.send(makeImmediate(connection));
      connection.send(connection.makeSend(pattern(4)));
      const got = await trial.tester.received(3);
      same(
        'kinds',
        got.map((wc) => (wc.immediate === undefined ? `send ${wc.length}` : 'immediate')).join(', '),
        'send 3, immediate, send 4',
      );
    },
    { needs },
  ),
  established(
    'ext.immediate.behind-a-write',
    'A Write of 20000 octets, then Immediate Data',
    'EXT-015',
    'the Write is placed when it is delivered',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 20_000, fill: 0 });
      connection.send(connection.makeWrite(region.stag, region.to, pattern(20_000)));
      connection.send(makeImmediate(connection));
      same('completions', (await trial.tester.received(1)).length, 1);
      sameBytes('memory', await trial.tester.peek(region), pattern(20_000));
    },
    { needs },
  ),
  established(
    'ext.immediate.before-a-read',
    'Immediate Data, then a zero-length Read',
    'EXT-019',
    'delivered no later than the answer',
    async (trial, connection) => {
      connection.send(makeImmediate(connection));
      await connection.ping();
      same('completions', (await trial.tester.received(1, 0)).length, 1);
    },
    { needs },
  ),
  stimulus(
    'ext.immediate.wrong-queue',
    'Immediate Data on queue 1',
    'EXT-005',
    QN_ERROR,
    (_trial, connection) =>
      connection.send(untagged({ opcode: OPCODE.IMMEDIATE, qn: 1, msn: connection.msn[1]!, payload: EIGHT })),
    { needs },
  ),
  stimulus(
    'ext.immediate.wrong-dv',
    'Immediate Data with DV 2',
    'EXT-005',
    terms(TERM.DDP_UNTAGGED_VERSION),
    (_trial, connection) =>
      connection.send(
        untagged({
          opcode: OPCODE.IMMEDIATE,
          qn: 0,
          msn: connection.msn[0]!,
          payload: EIGHT,
          ddpControl: 0x42,
        }),
      ),
    { needs },
  ),
  stimulus(
    'ext.immediate.wrong-rv',
    'Immediate Data with RV 0',
    'EXT-005',
    VERSION,
    (_trial, connection) =>
      connection.send(
        untagged({
          opcode: OPCODE.IMMEDIATE,
          qn: 0,
          msn: connection.msn[0]!,
          payload: EIGHT,
          rdmapControl: 0x08,
        }),
      ),
    { needs },
  ),
  stimulus(
    'ext.immediate.tagged',
    'Immediate Data with T=1',
    'EXT-005',
    OPCODE_ERROR,
    (_trial, connection) =>
      connection.send(tagged({ opcode: OPCODE.IMMEDIATE, stag: 0x0100_0000, to: 0n, payload: EIGHT })),
    { needs },
  ),
  ...(['imm', 'imm-se'] as const).map((kind) =>
    established(
      `ext.immediate.sent-${kind}`,
      `The peer posts ${kind === 'imm' ? 'Immediate Data' : 'Immediate Data with Solicited Event'} ` +
        'between two Sends',
      'EXT-003 EXT-008 EXT-009 EXT-014',
      'ULPDU_Length 26, the number in big-endian, the MSN after that of the Send',
      async (trial, connection) => {
        await connection.ping();
        await trial.tester.post({ kind: 'send', length: 1 });
        await trial.tester.post({ kind, value: IMM_VALUE.toString() });
        await trial.tester.post({ kind: 'send', length: 1 });
        const before = await connection.expectOpcode(OPCODE.SEND, 'a Send');
        const segment = await connection.expectOpcode(
          kind === 'imm' ? OPCODE.IMMEDIATE : OPCODE.IMMEDIATE_SE,
          'Immediate Data',
        );
        same('ULPDU_Length', segment.ulpdu.length, 26);
        same('MSN', segment.msn, before.msn + 1);
        sameBytes('Immediate Data', segment.payload, EIGHT);
        await connection.expectOpcode(OPCODE.SEND, 'a Send');
      },
      { needs },
    ),
  ),
];

/** An Atomic Request with the next MSN, whose answer the watch expects. */
function makeAtomic(connection: Connection, fields: AtomicRequestFields, answered = true): Uint8Array {
  connection.needsRead();
  if (answered) connection.watch.atomics.push(fields.id);
  return untagged({
    opcode: OPCODE.ATOMIC_REQUEST,
    qn: 1,
    msn: connection.takeMsn(1),
    payload: atomicRequestHeader(fields),
  });
}

/** Execute one atomic and return the original value. */
async function execute(connection: Connection, fields: AtomicRequestFields): Promise<bigint> {
  connection.send(makeAtomic(connection, fields));
  const segment = await connection.expectOpcode(OPCODE.ATOMIC_RESPONSE, 'an Atomic Response');
  return new DataView(segment.payload.buffer, segment.payload.byteOffset).getBigUint64(4);
}

const MANY = { ird: 16, maxIrd: 16 } as const;

const ADD = 0;
const SWAP = 2;
const MAX = 0xffff_ffff_ffff_ffffn;

const word = (trial: Trial): Promise<Region> => trial.tester.region({ length: 64, fill: 0 });

/**
 * One arithmetic step: the value before, the operation, the value afterwards. Values are set and read by
 * atomics alone.
 */
function arithmetic(
  id: string,
  title: string,
  requirements: string,
  before: bigint,
  fields: Omit<AtomicRequestFields, 'id' | 'stag' | 'to'>,
  after: bigint,
): Case {
  return established(
    `ext.atomic.${id}`,
    title,
    requirements,
    `original 0x${before.toString(16)}, then 0x${after.toString(16)}`,
    async (trial, connection) => {
      const { stag, to } = await word(trial);
      same('first original', await execute(connection, { aopcode: ADD, id: 1, stag, to, data: before }), 0n);
      same('original', await execute(connection, { ...fields, id: 2, stag, to }), before);
      same('value afterwards', await execute(connection, { aopcode: ADD, id: 3, stag, to, data: 0n }), after);
    },
    { needs },
  );
}

const results: Case[] = [
  arithmetic('add', 'FetchAdd of 5 to 37', 'EXT-020 EXT-026', 37n, { aopcode: ADD, data: 5n }, 42n),
  arithmetic('add-wraps', 'FetchAdd of 1 to 2^64 - 1', 'EXT-026', MAX, { aopcode: ADD, data: 1n }, 0n),
  arithmetic(
    'add-carries',
    'FetchAdd of 1 to 0xFFFFFFFF',
    'EXT-026',
    0xffff_ffffn,
    { aopcode: ADD, data: 1n },
    0x1_0000_0000n,
  ),
  arithmetic('add-zero', 'FetchAdd of 0', 'EXT-051 EXT-026', 99n, { aopcode: ADD, data: 0n }, 99n),
  arithmetic(
    'add-masked',
    'FetchAdd of 1 to 0x00000000FFFFFFFF with mask 0x8000000080000000',
    'EXT-027',
    0xffff_ffffn,
    { aopcode: ADD, data: 1n, mask: 0x8000_0000_8000_0000n },
    0n,
  ),
  arithmetic(
    'add-masked-octets',
    'FetchAdd of 1 to eight octets of FF at once',
    'EXT-027',
    MAX,
    { aopcode: ADD, data: 0x0101_0101_0101_0101n, mask: 0x8080_8080_8080_8080n },
    0n,
  ),
  arithmetic(
    'add-masked-two-fields',
    'FetchAdd in two fields of 32 bits',
    'EXT-027',
    0x0000_0005_ffff_fff0n,
    { aopcode: ADD, data: 0x0000_0002_0000_0020n, mask: 0x0000_0000_8000_0000n },
    0x0000_0007_0000_0010n,
  ),
  arithmetic(
    'add-every-bit-a-field',
    'FetchAdd with all mask bits set: exclusive or',
    'EXT-027',
    0xff00_ff00_1234_5678n,
    { aopcode: ADD, data: 0x0ff0_0ff0_ffff_0000n, mask: MAX },
    0xf0f0_f0f0_edcb_5678n,
  ),
  arithmetic(
    'add-ignores-compare',
    'FetchAdd with Compare Data and Mask fields set',
    'EXT-025',
    10n,
    { aopcode: ADD, data: 1n, compare: 77n, compareMask: 0n },
    11n,
  ),
  arithmetic(
    'add-reserved-bits',
    'FetchAdd with all 28 reserved bits set',
    'EXT-023',
    10n,
    { aopcode: ADD, data: 1n, reserved: 0xffff_fff0 },
    11n,
  ),
  arithmetic(
    'swap',
    'CmpSwap that matches',
    'EXT-020 EXT-028',
    5n,
    { aopcode: SWAP, data: 7n, mask: MAX, compare: 5n, compareMask: MAX },
    7n,
  ),
  arithmetic(
    'swap-mismatch',
    'CmpSwap that does not match',
    'EXT-028 EXT-029',
    5n,
    { aopcode: SWAP, data: 7n, mask: MAX, compare: 6n, compareMask: MAX },
    5n,
  ),
  arithmetic(
    'swap-compare-masked',
    'CmpSwap that compares the low octet only',
    'EXT-028',
    0x1234n,
    { aopcode: SWAP, data: 0xffn, mask: MAX, compare: 0xff34n, compareMask: 0xffn },
    0xffn,
  ),
  arithmetic(
    'swap-swap-masked',
    'CmpSwap that swaps the high half only',
    'EXT-028',
    DATA,
    {
      aopcode: SWAP,
      data: 0xaaaa_aaaa_bbbb_bbbbn,
      mask: 0xffff_ffff_0000_0000n,
      compare: DATA,
      compareMask: MAX,
    },
    0xaaaa_aaaa_0506_0708n,
  ),
  arithmetic(
    'swap-compare-nothing',
    'CmpSwap with Compare Mask 0',
    'EXT-028',
    5n,
    { aopcode: SWAP, data: 9n, mask: MAX, compare: MAX, compareMask: 0n },
    9n,
  ),
  arithmetic(
    'swap-nothing',
    'CmpSwap that matches with Swap Mask 0',
    'EXT-028',
    5n,
    { aopcode: SWAP, data: 9n, mask: 0n, compare: 5n, compareMask: MAX },
    5n,
  ),
];

const responder: Case[] = [
  established(
    'ext.atomic.response-format',
    'An Atomic Request with identifier 0xDEADBEEF',
    'EXT-022 EXT-030 EXT-040',
    'QN 3, MSN 1, ULPDU_Length 30, the identifier repeated',
    async (trial, connection) => {
      const { stag, to } = await word(trial);
      connection.send(makeAtomic(connection, { aopcode: ADD, id: 0xdead_beef, stag, to, data: 1n }));
      const segment = await connection.expectOpcode(OPCODE.ATOMIC_RESPONSE, 'an Atomic Response');
      same('QN', segment.qn, 3);
      same('MSN', segment.msn, 1);
      same('ULPDU_Length', segment.ulpdu.length, 30);
      sameBytes('identifier', segment.payload.subarray(0, 4), Uint8Array.of(0xde, 0xad, 0xbe, 0xef));
    },
    { needs },
  ),
  established(
    'ext.atomic.response-msn',
    'An Atomic Request to a peer whose own Read Requests are on the way',
    'EXT-022',
    'MSN 1 on queue 3',
    async (trial, connection) => {
      const { stag, to } = await word(trial);
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0', count: 2 });
      for (let i = 0; i < 2; i++) await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request');
      connection.send(makeAtomic(connection, { aopcode: ADD, id: 1, stag, to, data: 1n }));
      same('MSN', (await connection.expectOpcode(OPCODE.ATOMIC_RESPONSE, 'an Atomic Response')).msn, 1);
    },
    { needs, setup: { ord: 2 } },
  ),
  established(
    'ext.atomic.in-order',
    'Three FetchAdds of 1 in one TCP write',
    'EXT-039 EXT-041',
    'originals 0, 1, 2',
    async (trial, connection) => {
      const { stag, to } = await word(trial);
      connection.sendTogether(
        range(3).map((i) => makeAtomic(connection, { aopcode: ADD, id: 10 + i, stag, to, data: 1n })),
      );
      for (const original of [0n, 1n, 2n]) {
        const segment = await connection.expectOpcode(OPCODE.ATOMIC_RESPONSE, 'an Atomic Response');
        same('original', new DataView(segment.payload.buffer).getBigUint64(4), original);
      }
    },
    { needs, setup: { ird: 4, maxIrd: 4 } },
  ),
  established(
    'ext.atomic.among-reads',
    'Read, FetchAdd, Read in one TCP write',
    'EXT-043 EXT-046',
    'answers in this order',
    async (trial, connection) => {
      const { stag, to } = await word(trial);
      const read = (sinkStag: number): Uint8Array =>
        connection.makeRead({ sinkStag, sinkTo: 0n, size: 8, sourceStag: stag, sourceTo: to });
      connection.sendTogether([
        read(1),
        makeAtomic(connection, { aopcode: ADD, id: 5, stag, to, data: 1n }),
        read(2),
      ]);
      const opcodes = [];
      while (opcodes.length < 3) opcodes.push((await connection.expectSegment('three answers')).opcode);
      same(
        'order',
        opcodes.join(' '),
        [OPCODE.READ_RESPONSE, OPCODE.ATOMIC_RESPONSE, OPCODE.READ_RESPONSE].join(' '),
      );
    },
    { needs, setup: { ird: 4, maxIrd: 4 } },
  ),
  established(
    'ext.atomic.behind-a-write',
    'A Write to the word, then FetchAdd of 0',
    'EXT-042 EXT-031',
    'the original is the written value',
    async (trial, connection) => {
      const { stag, to } = await word(trial);
      // The same number in either byte order.
      connection.send(connection.makeWrite(stag, to, new Uint8Array(8).fill(0x3c)));
      same(
        'original',
        await execute(connection, { aopcode: ADD, id: 5, stag, to, data: 0n }),
        0x3c3c_3c3c_3c3c_3c3cn,
      );
    },
    { needs },
  ),
  established(
    'ext.atomic.behind-a-send',
    'A Send, then FetchAdd',
    'EXT-042',
    'the Send is delivered no later than the answer',
    async (trial, connection) => {
      const { stag, to } = await word(trial);
      connection.send(connection.makeSend(pattern(5)));
      await execute(connection, { aopcode: ADD, id: 5, stag, to, data: 0n });
      same('completions', (await trial.tester.received(1, 0)).length, 1);
    },
    { needs },
  ),
  established(
    'ext.atomic.other-words-untouched',
    'FetchAdd of 2^64 - 1 to the second of eight words',
    'EXT-026 SEC-004',
    'the words beside it stay 0',
    async (trial, connection) => {
      const region = await word(trial);
      await execute(connection, { aopcode: ADD, id: 5, stag: region.stag, to: region.to + 8n, data: MAX });
      const wanted = new Uint8Array(64);
      wanted.fill(0xff, 8, 16);
      sameBytes('memory', await trial.tester.peek(region), wanted);
    },
    { needs },
  ),
  established(
    'ext.atomic.as-many-as-ird',
    'Two Reads and two FetchAdds at once to a peer that offered 4',
    'EXT-046',
    'all are answered',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 8192, fill: 0 });
      const read = (sinkStag: number): Uint8Array =>
        connection.makeRead({
          sinkStag,
          sinkTo: 0n,
          size: 8192,
          sourceStag: region.stag,
          sourceTo: region.to,
        });
      const add = (id: number): Uint8Array =>
        makeAtomic(connection, { aopcode: ADD, id, stag: region.stag, to: region.to, data: 1n });
      connection.sendTogether([read(1), add(2), read(3), add(4)]);
      await connection.expectMessage(OPCODE.READ_RESPONSE, 'first answer');
      await connection.expectOpcode(OPCODE.ATOMIC_RESPONSE, 'second answer');
      await connection.expectMessage(OPCODE.READ_RESPONSE, 'third answer');
      await connection.expectOpcode(OPCODE.ATOMIC_RESPONSE, 'fourth answer');
    },
    { needs, setup: { ird: 4, maxIrd: 4 }, startup: { ord: 4 } },
  ),
  established(
    'ext.atomic.two-streams',
    'Two streams add 1 to one word 300 times each',
    'EXT-036',
    'the sum is 600',
    async (trial, connection) => {
      const { stag, to } = await word(trial);
      const other = await secondStream(trial, MANY);
      const add = async (stream: Connection): Promise<void> => {
        for (let i = 0; i < 30; i++) {
          stream.sendTogether(
            range(10).map((j) => makeAtomic(stream, { aopcode: ADD, id: i * 10 + j, stag, to, data: 1n })),
          );
          for (let j = 0; j < 10; j++)
            await stream.expectOpcode(OPCODE.ATOMIC_RESPONSE, 'an Atomic Response');
        }
      };
      await Promise.all([add(connection), add(other)]);
      same('the sum', await execute(connection, { aopcode: ADD, id: 1, stag, to, data: 0n }), 600n);
    },
    { needs, setup: MANY },
  ),
];

/** An atomic that must be refused and must leave memory as it was. */
function refused(
  id: string,
  title: string,
  requirements: string,
  outcomes: readonly Outcome[],
  aim: (region: Region) => Partial<AtomicRequestFields>,
  region: Partial<RegionOptions> = {},
): Case {
  return established(
    `ext.atomic.${id}`,
    title,
    requirements,
    describeOutcomes(outcomes),
    async (trial, connection) => {
      const target = await trial.tester.region({ length: 64, fill: 0x11, ...region });
      const bad = makeAtomic(
        connection,
        { aopcode: ADD, id: 1, stag: target.stag, to: target.to, data: 1n, ...aim(target) },
        false,
      );
      connection.send(bad);
      const reaction = await trial.expect(connection, outcomes);
      sameBytes('memory', await trial.tester.peek(target), new Uint8Array(target.length).fill(0x11));
      check(reaction?.terminate?.r !== true, 'a Terminate without RDMAP header', 'R=1', ['EXT-007']);
    },
    { needs },
  );
}

const MISALIGNED = terms(TERM.RDMAP_STREAM_CATASTROPHIC);

/** An atomic that must be refused, in one TCP write with a good Read in front of it. */
function refusedInTurn(
  id: string,
  title: string,
  outcomes: readonly Outcome[],
  aim: (region: Region) => Partial<AtomicRequestFields>,
): Case {
  return established(
    `ext.atomic.${id}-behind-a-read`,
    title,
    'EXT-043 RDMAP-043 RDMAP-075',
    'the answer to the Read, then the Terminate',
    async (trial, connection) => {
      const target = await trial.tester.region({ length: 5000 });
      const good = connection.makeRead({
        sinkStag: 1,
        sinkTo: 0n,
        size: 5000,
        sourceStag: target.stag,
        sourceTo: target.to,
      });
      const bad = makeAtomic(
        connection,
        { aopcode: ADD, id: 1, stag: target.stag, to: target.to, data: 1n, ...aim(target) },
        false,
      );
      connection.sendTogether([good, bad]);
      sameBytes(
        'the answer to the Read',
        (await connection.expectMessage(OPCODE.READ_RESPONSE, 'the answer to the Read')).payload,
        pattern(5000),
      );
      await trial.expect(connection, outcomes, bad);
    },
    { needs, setup: { ird: 4, maxIrd: 4 } },
  );
}

const faults: Case[] = [
  refusedInTurn(
    'misaligned',
    'A good Read and a misaligned FetchAdd in one TCP write',
    MISALIGNED,
    ({ to }) => ({ to: to + 4n }),
  ),
  refusedInTurn(
    'unknown-stag',
    'A good Read and a FetchAdd to an STag nobody knows in one TCP write',
    READ_STAG,
    ({ stag }) => ({ stag: (stag ^ 0x0f0f_0f00) >>> 0 }),
  ),
  ...range(7).map((i) =>
    refused(
      `misaligned-${i + 1}`,
      `A FetchAdd ${i + 1} octets after an aligned word`,
      'EXT-033 EXT-007',
      MISALIGNED,
      ({ to }) => ({ to: to + BigInt(i + 1) }),
    ),
  ),
  ...[1, 3, 4, 15].map((aopcode) =>
    refused(
      `aopcode-${aopcode}`,
      `An Atomic Request with AOpCode ${aopcode}`,
      'EXT-034',
      [...OPCODE_ERROR, ...MISALIGNED],
      () => ({ aopcode }),
    ),
  ),
  refused('unknown-stag', 'A FetchAdd to an STag nobody knows', 'EXT-035 SEC-034', READ_STAG, ({ stag }) => ({
    stag: (stag ^ 0x0f0f_0f00) >>> 0,
  })),
  refused('wrong-key', 'A FetchAdd to a region with a wrong key', 'EXT-035', READ_STAG, ({ stag }) => ({
    stag: (stag ^ 1) >>> 0,
  })),
  refused(
    'other-pd',
    'A FetchAdd to a region of another protection domain',
    'EXT-035 SEC-001',
    READ_ASSOCIATION,
    () => ({}),
    { pd: 'b' },
  ),
  refused('no-atomic-right', 'A FetchAdd to a region without the right', 'EXT-035', READ_ACCESS, () => ({}), {
    access: ['local-write', 'remote-read'],
  }),
  refused(
    'out-of-bounds',
    'A FetchAdd to the word after a region',
    'EXT-035 SEC-004',
    READ_BOUNDS,
    ({ to }) => ({ to: to + 64n }),
  ),
  refused(
    'half-out-of-bounds',
    'A FetchAdd to a word that ends outside a region of 60 octets',
    'EXT-035',
    READ_BOUNDS,
    ({ to }) => ({ to: to + 56n }),
    { length: 60 },
  ),
  refused('below-base', 'A FetchAdd to the word below a region', 'EXT-035', READ_BOUNDS, ({ to }) => ({
    to: to - 8n,
  })),
  ...[12, 51, 53].map((octets) =>
    stimulus(
      `ext.atomic.request-of-${octets}-octets`,
      `An Atomic Request with ${octets} octets after the DDP header`,
      'EXT-005 EXT-021',
      MALFORMED,
      (_trial, connection) =>
        connection.send(
          untagged({
            opcode: OPCODE.ATOMIC_REQUEST,
            qn: 1,
            msn: connection.takeMsn(1),
            payload: new Uint8Array(octets),
          }),
        ),
      { needs },
    ),
  ),
  stimulus(
    'ext.atomic.wrong-queue',
    'An Atomic Request on queue 0',
    'EXT-005',
    QN_ERROR,
    (_trial, connection) =>
      connection.send(
        untagged({
          opcode: OPCODE.ATOMIC_REQUEST,
          qn: 0,
          msn: connection.msn[0]!,
          payload: new Uint8Array(52),
        }),
      ),
    { needs },
  ),
  stimulus(
    'ext.atomic.wrong-rv',
    'An Atomic Request with RV 3',
    'EXT-005',
    VERSION,
    (_trial, connection) =>
      connection.send(
        untagged({
          opcode: OPCODE.ATOMIC_REQUEST,
          qn: 1,
          msn: connection.msn[1]!,
          payload: new Uint8Array(52),
          rdmapControl: 0xca,
        }),
      ),
    { needs },
  ),
];

/** The peer's own atomics. */
const requester: Case[] = [
  sentAtomic(
    'fetch-add',
    'The peer posts a FetchAdd of 5',
    'EXT-003 EXT-021 EXT-023 EXT-024',
    { kind: 'fetch-add', value: '5' },
    (r) => {
      same('AOpCode', r.aopcode, ADD);
      same('Add Data', r.data, 5n);
      same('Add Mask', r.mask, 0n);
      same('Compare Data', r.compare, 0n);
      same('Compare Mask', r.compareMask, MAX);
    },
  ),
  sentAtomic(
    'cmp-swap',
    'The peer posts a CmpSwap of 5 for 7',
    'EXT-021 EXT-023',
    { kind: 'cmp-swap', value: '7', compare: '5' },
    (r) => {
      same('AOpCode', r.aopcode, SWAP);
      same('Swap Data', r.data, 7n);
      same('Compare Data', r.compare, 5n);
      same('Swap Mask', r.mask, MAX);
      same('Compare Mask', r.compareMask, MAX);
    },
  ),
  established(
    'ext.atomic.completes-on-response',
    'The peer posts a FetchAdd; the answer comes late',
    'EXT-044',
    'no completion before the answer',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'fetch-add', stag: 9, to: '64', value: '1' });
      const { id } = await atomicOf(connection);
      same(
        'completions before the answer',
        (await trial.tester.completions(1, trial.limits.quiet)).length,
        0,
      );
      respond(connection, 1, id, 42n);
      const [wc] = await trial.tester.completions(1);
      same('status', wc?.status ?? 'none', 'success');
      const bytes = fromHex(wc!.data);
      const native = new BigUint64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + 8))[0]!;
      check(
        native === 42n || new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0) === 42n,
        'original 42',
        `0x${native.toString(16)}`,
      );
    },
    { needs },
  ),
  established(
    'ext.atomic.outstanding-at-most-ord',
    'The peer posts Read, FetchAdd, Read; the probe offered 2',
    'EXT-048 EXT-038',
    'two requests, the third after the first answer',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0' });
      await trial.tester.post({ kind: 'fetch-add', stag: 9, to: '64', value: '1' });
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0' });
      await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request');
      await connection.expectOpcode(OPCODE.ATOMIC_REQUEST, 'an Atomic Request');
      await connection.expectQuiet('no third request before an answer');
    },
    { needs, setup: { ord: 4 }, startup: { ird: 2, rtr: ['write'] }, enhanced: true },
  ),
  established(
    'ext.atomic.fills-ord',
    'The peer posts four FetchAdds; the probe answers all at once',
    'EXT-047 EXT-038 EXT-041',
    'four completions in order',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'fetch-add', stag: 9, to: '64', value: '1', count: 4 });
      const ids = [];
      for (let i = 0; i < 4; i++) ids.push((await atomicOf(connection)).id);
      connection.sendTogether(
        ids.map((id, i) =>
          untagged({
            opcode: OPCODE.ATOMIC_RESPONSE,
            qn: 3,
            msn: i + 1,
            payload: atomicResponseHeader(id, BigInt(i)),
          }),
        ),
      );
      const done = await trial.tester.completions(4);
      same('completions with success', done.filter((wc) => wc.status === 'success').length, 4);
    },
    { needs, setup: { ord: 4 }, startup: { ird: 4, rtr: ['write'] }, enhanced: true },
  ),
  stimulus(
    'ext.atomic.response-unasked',
    'An Atomic Response that nobody asked for',
    'EXT-049',
    terms(TERM.DDP_NO_BUFFER, TERM.DDP_MSN_RANGE),
    (_trial, connection) =>
      connection.send(
        untagged({ opcode: OPCODE.ATOMIC_RESPONSE, qn: 3, msn: 1, payload: atomicResponseHeader(1, 1n) }),
      ),
    { needs },
  ),
  wrongResponse(
    'response-wrong-msn',
    'An Atomic Response with MSN 2 in place of 1',
    terms(TERM.DDP_MSN_RANGE, TERM.DDP_NO_BUFFER),
    (id) =>
      untagged({ opcode: OPCODE.ATOMIC_RESPONSE, qn: 3, msn: 2, payload: atomicResponseHeader(id, 1n) }),
  ),
  wrongResponse('response-short', 'An Atomic Response of 11 octets', MALFORMED, (id) =>
    untagged({
      opcode: OPCODE.ATOMIC_RESPONSE,
      qn: 3,
      msn: 1,
      payload: atomicResponseHeader(id, 1n).subarray(0, 11),
    }),
  ),
  wrongResponse('response-long', 'An Atomic Response of 13 octets', MALFORMED, (id) =>
    untagged({
      opcode: OPCODE.ATOMIC_RESPONSE,
      qn: 3,
      msn: 1,
      payload: Uint8Array.of(...atomicResponseHeader(id, 1n), 0),
    }),
  ),
  wrongResponse('response-wrong-queue', 'An Atomic Response on queue 1', QN_ERROR, (id) =>
    untagged({ opcode: OPCODE.ATOMIC_RESPONSE, qn: 1, msn: 1, payload: atomicResponseHeader(id, 1n) }),
  ),
];

async function atomicOf(connection: Connection): Promise<Required<AtomicRequestFields>> {
  const segment = await connection.expectOpcode(OPCODE.ATOMIC_REQUEST, 'an Atomic Request');
  const request = parseAtomicRequest(segment.payload);
  check(request !== null, '52 octets after the DDP header', String(segment.payload.length), ['EXT-021']);
  return request;
}

function respond(connection: Connection, msn: number, id: number, original: bigint): void {
  connection.send(
    untagged({ opcode: OPCODE.ATOMIC_RESPONSE, qn: 3, msn, payload: atomicResponseHeader(id, original) }),
  );
}

function sentAtomic(
  id: string,
  title: string,
  requirements: string,
  post: { kind: 'fetch-add' | 'cmp-swap'; value: string; compare?: string },
  look: (request: Required<AtomicRequestFields>) => void,
): Case {
  return established(
    `ext.atomic.sent-${id}`,
    title,
    requirements,
    'one segment, ULPDU_Length 70, the fields as posted',
    async (trial, connection) => {
      await trial.tester.post({ ...post, stag: 0x0a0b_0c0d, to: '4096' });
      const request = await atomicOf(connection);
      same('Remote STag', request.stag, 0x0a0b_0c0d);
      same('Remote TO', request.to, 4096n);
      same('reserved bits', request.reserved, 0);
      look(request);
    },
    { needs },
  );
}

function wrongResponse(
  id: string,
  title: string,
  outcomes: readonly Outcome[],
  make: (id: number) => Uint8Array,
): Case {
  return established(
    `ext.atomic.${id}`,
    title,
    'EXT-049',
    describeOutcomes(outcomes),
    async (trial, connection) => {
      await trial.tester.post({ kind: 'fetch-add', stag: 9, to: '64', value: '1' });
      connection.send(make((await atomicOf(connection)).id));
      await trial.expect(connection, outcomes);
    },
    { needs },
  );
}

export const ext: readonly Case[] = [...immediate, ...results, ...responder, ...faults, ...requester];
