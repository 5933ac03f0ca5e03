// FPDUs: layout, PAD, CRC, boundaries, sizes, and how a connection ends in the middle of one. RFC 5044 3,
// 4.1, 4.4, 4.5, 5, 6, 8.

import type { Connection } from '../probe/connection.ts';
import { joinAll } from '../probe/connection.ts';
import { describeSegment } from '../probe/decode.ts';
import { Deviation, Unsuited, check, same, sameBytes } from '../probe/deviation.ts';
import type { FpduFaults } from '../probe/fpdu.ts';
import { tagged, untagged } from '../probe/messages.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { CLOSE, terms } from '../probe/trial.ts';
import type { Trial } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { fromHex, pattern } from '../profiles/protocol.ts';
import { BOTH, established, range, stimulus } from './define.ts';
import type { Case } from './define.ts';

const CRC_ERROR = terms(TERM.MPA_CRC);
const TOO_SHORT = [...terms(TERM.DDP_LOCAL_CATASTROPHIC, TERM.MPA_MARKER), CLOSE];
const DATA = Uint8Array.of(1, 2, 3, 4, 5);

/** A Write of 5 octets into the peer's region: 3 PAD octets. */
async function writeWith(trial: Trial, connection: Connection, faults: FpduFaults): Promise<void> {
  const region = await trial.region(connection);
  connection.send(connection.makeWrite(region.stag, region.to, DATA), faults);
}

const FLIPS: readonly (readonly [name: string, words: string, offset: number, mask: number])[] = [
  // In the length only from 1 to 0: a longer one makes the receiver wait for more.
  ['length', 'the low octet of ULPDU_Length', 1, 0x02],
  ['ddp-control', 'the DDP control octet', 2, 0x40],
  ['rdmap-control', 'the RDMAP control octet', 3, 0x01],
  ['stag', 'the STag', 7, 0x80],
  ['to', 'the TO', 15, 0x01],
  ['payload-first', 'the first payload octet', 16, 0x01],
  ['payload-last', 'the last payload octet', 20, 0x80],
  ['pad-first', 'the first PAD octet', 21, 0x01],
  ['pad-last', 'the last PAD octet', 23, 0x80],
  ['crc-0', 'octet 0 of the CRC field', -4, 0x01],
  ['crc-1', 'octet 1 of the CRC field', -3, 0x01],
  ['crc-2', 'octet 2 of the CRC field', -2, 0x01],
  ['crc-3', 'octet 3 of the CRC field', -1, 0x80],
];

const WRONG_CRCS: readonly (readonly [name: NonNullable<FpduFaults['crc']>, words: string])[] = [
  ['zero', 'zero'],
  ['deadbeef', '0xDEADBEEF'],
  ['big-endian', 'the right value, most significant octet first'],
  ['ieee', 'CRC-32 of IEEE 802.3'],
  ['without-length', 'a CRC that leaves ULPDU_Length out'],
  ['without-pad', 'a CRC that leaves PAD out'],
];

const crc: Case[] = [
  ...FLIPS.map(([name, words, offset, mask]) =>
    stimulus(
      `mpa.fpdu.crc-flipped-${name}`,
      `One bit flipped in ${words} of a Write`,
      'MPA-072 MPA-110 MPA-070',
      CRC_ERROR,
      (trial, connection) => writeWith(trial, connection, { flip: { offset, mask } }),
      { needs: ['region'] },
    ),
  ),
  ...WRONG_CRCS.map(([name, words]) =>
    stimulus(
      `mpa.fpdu.crc-${name}`,
      `The CRC field holds ${words}`,
      'MPA-054 MPA-072',
      CRC_ERROR,
      (trial, connection) => writeWith(trial, connection, { crc: name }),
      { needs: ['region'] },
    ),
  ),
  stimulus(
    'mpa.fpdu.crc-before-stag',
    'A Write with a bad CRC to an STag nobody knows: the CRC comes first',
    'MPA-071 MPA-072',
    CRC_ERROR,
    (_trial, connection) => connection.send(connection.makeWrite(0xdead_be00, 0n, DATA), { crc: 'zero' }),
  ),
  stimulus(
    'mpa.fpdu.crc-wrong-in-zero-length-read',
    'A zero-length Read Request with a bad CRC',
    'MPA-072',
    CRC_ERROR,
    (_trial, connection) =>
      connection.send(
        connection.makeRead({ sinkStag: 1, sinkTo: 0n, size: 0, sourceStag: 1, sourceTo: 0n }, false),
        { crc: 'zero' },
      ),
  ),
  established(
    'mpa.fpdu.crc-wrong-nothing-placed',
    'A Write with a bad CRC leaves memory as it was',
    'MPA-071',
    'Terminate 2/0/02, memory unchanged',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, fill: 0xee });
      connection.send(connection.makeWrite(region.stag, region.to, pattern(64)), { crc: 'deadbeef' });
      await trial.expect(connection, CRC_ERROR);
      sameBytes('memory', await trial.tester.peek(region), new Uint8Array(64).fill(0xee));
    },
    { needs: ['tester'] },
  ),
  established(
    'mpa.fpdu.crc-wrong-nothing-later-delivered',
    'A Send with a bad CRC and a good Send after it',
    'MPA-073',
    'Terminate 2/0/02, neither delivered',
    async (trial, connection) => {
      const bad = connection.encode(connection.makeSend(DATA), { crc: 'zero' });
      const offending = connection.lastUlpdu;
      const good = connection.encode(
        untagged({ opcode: OPCODE.SEND, qn: 0, msn: connection.msn[0]! - 1, payload: DATA }),
      );
      connection.channel.write(joinAll([bad, good]));
      await trial.expect(connection, CRC_ERROR, offending);
      same('delivered messages', (await trial.tester.deliveredWithin(trial.limits.quiet)).length, 0);
    },
    { needs: ['tester'] },
  ),
  established(
    'mpa.fpdu.crc-wrong-terminate-then-fin',
    'How the connection ends after a bad CRC',
    'MPA-074 DDP-058 DDP-066 DDP-057',
    'Terminate 2/0/02, then FIN',
    async (trial, connection) => {
      await writeWith(trial, connection, { crc: 'zero' });
      const reaction = await trial.expect(connection, CRC_ERROR);
      same('the end', reaction?.end ?? 'none', 'fin');
    },
    { needs: ['region'] },
  ),
];

/**
 * Lengths of Writes that receivers treat in different ways: above a small buffer, a full Ethernet segment,
 * a full jumbo one, nearly the longest there is.
 */
const LONG = [700, 1428, 8940, 61_000] as const;

/** One bit flipped in the middle, and at the end, of a Write as long as the peer's region allows. */
const longFlips: Case[] = LONG.flatMap((octets) =>
  (
    [
      ['middle', 0.5],
      ['end', 1],
    ] as const
  ).map(([name, part]) =>
    stimulus(
      `mpa.fpdu.crc-flipped-long-${octets}-${name}`,
      `One bit flipped in the ${name} of a Write of ${octets} octets`,
      'MPA-072 MPA-110 MPA-070',
      CRC_ERROR,
      async (trial, connection) => {
        const region = await trial.region(connection, octets);
        const payload = pattern(Math.min(octets, region.length));
        const HEADERS = 16;
        connection.send(connection.makeWrite(region.stag, region.to, payload), {
          flip: { offset: HEADERS + Math.ceil(payload.length * part) - 1, mask: 0x10 },
        });
      },
      { needs: ['region'] },
    ),
  ),
);

const pad: Case[] = [1, 2, 3].map((octets) =>
  established(
    `mpa.fpdu.pad-${octets}-not-zero`,
    `${octets} PAD octets of FF with a CRC that fits`,
    'MPA-068',
    'the Write is placed',
    async (trial, connection) => {
      const region = await trial.region(connection);
      // 16 octets in front of the data, so that this length needs just that much PAD.
      const data = trial.random.octets(12 - octets);
      connection.send(connection.makeWrite(region.stag, region.to, data), { pad: 0xff });
      sameBytes('memory of the peer', await connection.read(region.stag, region.to, data.length), data);
    },
    { needs: ['region'] },
  ),
);

/** ULPDUs that end within their header, the shape that made drivers read beyond the FPDU. */
const short: Case[] = [
  ...[0, 1, 2, 3, 6, 13].map((length) =>
    stimulus(
      `mpa.fpdu.tagged-ulpdu-of-${length}`,
      `A tagged ULPDU of ${length} octets with a good CRC`,
      'MPA-090',
      TOO_SHORT,
      (_trial, connection) =>
        connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n }).subarray(0, length)),
    ),
  ),
  ...[2, 13, 14, 15, 17].map((length) =>
    stimulus(
      `mpa.fpdu.untagged-ulpdu-of-${length}`,
      `An untagged ULPDU of ${length} octets with a good CRC`,
      'MPA-090',
      TOO_SHORT,
      (_trial, connection) =>
        connection.send(untagged({ opcode: OPCODE.SEND, qn: 0, msn: 1 }).subarray(0, length)),
    ),
  ),
  stimulus(
    'mpa.fpdu.read-request-ulpdu-of-18',
    'A Read Request whose ULPDU ends after the DDP header',
    'MPA-090 RDMAP-015',
    [
      ...terms(
        TERM.RDMAP_STREAM_CATASTROPHIC,
        TERM.DDP_INVALID_MO,
        TERM.DDP_TOO_LONG,
        TERM.DDP_LOCAL_CATASTROPHIC,
        TERM.MPA_MARKER,
      ),
      CLOSE,
    ],
    (_trial, connection) => {
      connection.needsRead();
      connection.send(untagged({ opcode: OPCODE.READ_REQUEST, qn: 1, msn: connection.msn[1]! }));
    },
  ),
];

/** Octets of a zero-length Read Request in pieces. */
function pieces(
  id: string,
  title: string,
  cutsOf: (trial: Trial, length: number) => readonly number[],
): Case {
  return established(
    `mpa.fpdu.${id}`,
    title,
    'MPA-086',
    'the same as in one piece',
    async (trial, connection) => {
      const fpdu = connection.encode(
        connection.makeRead({ sinkStag: 7, sinkTo: 9n, size: 0, sourceStag: 1, sourceTo: 0n }),
      );
      await connection.writeCut(fpdu, cutsOf(trial, fpdu.length));
      await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a zero-length Read Response');
      await connection.ping();
    },
  );
}

const boundaries: Case[] = [
  ...[1, 2, 3, 4, 16, 20, 21, 47, 48, 49, 51].map((n) =>
    pieces(`cut-behind-${n}`, `An FPDU of 52 octets cut after octet ${n}`, () => [n]),
  ),
  pieces('one-octet-at-a-time', 'An FPDU in pieces of one octet', (_trial, length) => range(length)),
  pieces('cut-at-random', 'An FPDU cut at five random places', (trial, length) =>
    range(5)
      .map(() => 1 + trial.random.below(length - 1))
      .toSorted((a, b) => a - b),
  ),
  established(
    'mpa.fpdu.many-in-one-write',
    '200 zero-length Writes and a Read Request in one TCP write',
    'MPA-086 MPA-088',
    'all are processed',
    async (_trial, connection) => {
      const writes = range(200).map((i) => tagged({ opcode: OPCODE.RDMA_WRITE, stag: i, to: BigInt(i) }));
      const read = connection.makeRead({ sinkStag: 3, sinkTo: 3n, size: 0, sourceStag: 1, sourceTo: 0n });
      connection.sendTogether([...writes, read]);
      await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a zero-length Read Response');
    },
  ),
  established(
    'mpa.fpdu.two-sends-in-one-write',
    'Two Sends in one TCP write',
    'MPA-088 RDMAP-057 DDP-032',
    'two completions of the right length',
    async (trial, connection) => {
      connection.sendTogether([connection.makeSend(pattern(7)), connection.makeSend(pattern(9))]);
      const got = await trial.tester.received(2);
      same('completions', got.length, 2);
      sameBytes('first message', fromHex(got[0]!.data), pattern(7));
      sameBytes('second message', fromHex(got[1]!.data), pattern(9));
    },
    { needs: ['tester'] },
  ),
  established(
    'mpa.fpdu.straddling-writes',
    'Three Sends in one stream, cut in the middle of each',
    'MPA-086 MPA-088',
    'three completions',
    async (trial, connection) => {
      const all = joinAll(range(3).map((i) => connection.encode(connection.makeSend(pattern(100 + i)))));
      await connection.writeCut(all, [60, 190, 330]);
      const got = await trial.tester.received(3);
      same('completions', got.length, 3);
      got.forEach((wc, i) => same(`length of message ${i}`, wc.length, 100 + i));
    },
    { needs: ['tester'] },
  ),
  established(
    'mpa.fpdu.last-octet-late',
    'The last CRC octet of a zero-length Read Request comes late',
    'MPA-087',
    'nothing before it, then the answer',
    async (_trial, connection) => {
      const fpdu = connection.encode(
        connection.makeRead({ sinkStag: 7, sinkTo: 9n, size: 0, sourceStag: 1, sourceTo: 0n }),
      );
      connection.channel.write(fpdu.subarray(0, -1));
      await connection.expectQuiet('nothing before the FPDU is whole');
      connection.channel.write(fpdu.subarray(-1));
      await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a zero-length Read Response');
    },
  ),
  established(
    'mpa.fpdu.last-octet-of-a-send-late',
    'The last CRC octet of a Send comes late',
    'MPA-087',
    'no completion before it',
    async (trial, connection) => {
      const fpdu = connection.encode(connection.makeSend(pattern(40)));
      connection.channel.write(fpdu.subarray(0, -1));
      same(
        'completions before the last octet',
        (await trial.tester.received(1, trial.limits.quiet)).length,
        0,
      );
      connection.channel.write(fpdu.subarray(-1));
      same('completions', (await trial.tester.received(1)).length, 1);
    },
    { needs: ['tester'] },
  ),
];

const large: Case[] = [1442, 32_768, 64_768, 65_474, 65_535].map((length) =>
  established(
    `mpa.fpdu.ulpdu-of-${length}`,
    `A Send with ULPDU_Length ${length} into a buffer of 65536 octets`,
    'MPA-091 MPA-064',
    'delivered, or a clean Terminate',
    async (trial, connection) => {
      connection.send(connection.makeSend(pattern(length - 18)));
      const incoming = await receiveWhile(trial, connection);
      if (incoming === 'terminate') return;
      const [wc] = await trial.tester.received(1);
      same('octets received', wc?.length ?? 0, length - 18);
      sameBytes('message', fromHex(wc!.data), pattern(length - 18));
    },
    { setup: { receiveSize: 65_536, receives: 2 } },
  ),
);

async function receiveWhile(trial: Trial, connection: Connection): Promise<'fine' | 'terminate'> {
  const mark = connection.makeRead({ sinkStag: 2, sinkTo: 2n, size: 0, sourceStag: 1, sourceTo: 0n });
  connection.send(mark);
  const incoming = await connection.receive(trial.limits.reaction);
  if (incoming.kind === 'segment' && incoming.segment.opcode === OPCODE.READ_RESPONSE) return 'fine';
  if (incoming.kind === 'segment' && incoming.segment.opcode === OPCODE.TERMINATE) return 'terminate';
  throw new Deviation(
    'delivered, or a clean Terminate',
    incoming.kind === 'segment' ? describeSegment(incoming.segment) : incoming.kind,
  );
}

/** Sends of the peer, octet for octet. */
const sending: Case[] = [
  ...range(9).map((length) =>
    established(
      `mpa.tx.send-${length}`,
      `The peer sends ${length} octets`,
      'MPA-057 MPA-063 MPA-064 MPA-065 MPA-066 MPA-067 MPA-069 DDP-023 RDMAP-013',
      'one FPDU with the right length, PAD and CRC',
      async (trial, connection) => {
        await trial.tester.post({ kind: 'send', length });
        const incoming = await connection.receive();
        if (incoming.kind !== 'segment') throw new Deviation('a Send', incoming.kind);
        const { fpdu, segment } = incoming;
        same('opcode', segment.opcode, OPCODE.SEND);
        same('ULPDU_Length', fpdu.ulpdu.length, 18 + length);
        same('PAD octets', fpdu.pad.length, -(20 + length) & 3);
        same('octets on the wire, modulo 4', fpdu.raw.length % 4, 0);
        same('L', segment.last, true);
        sameBytes('payload', segment.payload, pattern(length));
      },
      { needs: ['tester'] },
    ),
  ),
  ...(
    [
      [536, 530],
      [1448, 1442],
      [1460, 1454],
      [8960, 8954],
      [100, 128],
    ] as const
  ).map(([emss, mulpdu]) => sized(emss, mulpdu, false)),
  ...(
    [
      [536, 522],
      [1448, 1430],
      [1460, 1442],
      [8960, 8882],
    ] as const
  ).map(([emss, mulpdu]) => sized(emss, mulpdu, true)),
  established(
    'mpa.tx.mulpdu-at-most-64768',
    'A Send of 300000 octets over a path with EMSS 65535',
    'MPA-076 MPA-077',
    'no ULPDU above 64768 octets',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'send', length: 300_000 });
      const { segments, payload } = await connection.expectMessage(OPCODE.SEND, 'a long Send');
      same('octets', payload.length, 300_000);
      check(
        segments.every((s) => s.ulpdu.length <= 64_768),
        'ULPDU_Length up to 64768',
        String(Math.max(...segments.map((s) => s.ulpdu.length))),
      );
    },
    { setup: { emss: 65_535 } },
  ),
];

function sized(emss: number, mulpdu: number, markers: boolean): Case {
  const name = markers ? `mpa.tx.mulpdu-emss-${emss}-markers` : `mpa.tx.mulpdu-emss-${emss}`;
  const ids = markers
    ? 'MPA-077 MPA-079 MPA-082 DDP-021'
    : emss < 128
      ? 'MPA-077 MPA-080'
      : 'MPA-077 MPA-078 MPA-082 DDP-021';
  return established(
    name,
    `A long Send over a path with EMSS ${emss}${markers ? ', with markers' : ''}`,
    ids,
    `FPDUs with ULPDU_Length ${mulpdu}, the last one shorter`,
    async (trial, connection) => {
      const octets = 5 * mulpdu;
      await trial.tester.post({ kind: 'send', length: octets });
      const { segments, payload } = await connection.expectMessage(OPCODE.SEND, 'a long Send');
      sameBytes('payload', payload, pattern(octets));
      segments
        .slice(0, -1)
        .forEach((segment, i) => same(`ULPDU_Length of segment ${i}`, segment.ulpdu.length, mulpdu));
      check(
        segments.at(-1)!.ulpdu.length <= mulpdu,
        `at most ${mulpdu} in the last`,
        String(segments.at(-1)!.ulpdu.length),
      );
    },
    { setup: { emss }, startup: { markers } },
  );
}

/** CRC on or off by the two C bits. */
function crcNegotiation(id: string, mine: boolean, theirs: boolean): Case[] {
  const words = `C=${mine ? 1 : 0} by the probe, C=${theirs ? 1 : 0} by the peer`;
  const options = { setup: { crc: theirs }, startup: { crc: mine } };
  const on = mine || theirs;
  const fine = established(
    `mpa.crc.${id}`,
    words,
    on ? 'MPA-051 MPA-054' : 'MPA-055 MPA-057',
    on ? 'CRCs both ways' : 'a CRC field that nobody looks at',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'send', length: 33 });
      await connection.expectOpcode(OPCODE.SEND, 'a Send with a CRC field');
      await connection.ping();
    },
    options,
  );
  if (!on) {
    const any = established(
      `mpa.crc.${id}-anything`,
      `${words}; the field holds 0xDEADBEEF`,
      'MPA-055',
      'normal operation',
      async (trial, connection) => {
        // MPA-052: nobody has to be able to do without.
        if (connection.writer.crc) throw new Unsuited('the peer does not do without CRC');
        connection.send(connection.makeSend(pattern(10)), { crc: 'deadbeef' });
        same('completions', (await trial.tester.received(1)).length, 1);
        await connection.ping();
      },
      options,
    );
    return [fine, any];
  }
  return [
    fine,
    stimulus(
      `mpa.crc.${id}-wrong`,
      `${words}; an FPDU with a wrong CRC`,
      'MPA-054 MPA-072',
      CRC_ERROR,
      (_trial, connection) => connection.send(connection.makeSend(pattern(10)), { crc: 'zero' }),
      options,
    ),
  ];
}

const negotiated: Case[] = [
  ...crcNegotiation('both', true, true),
  ...crcNegotiation('probe-only', true, false),
  ...crcNegotiation('peer-only', false, true),
  ...crcNegotiation('neither', false, false),
];

const ends: Case[] = [
  established(
    'mpa.close.fin-idle',
    'FIN between FPDUs with nothing outstanding',
    'MPA-108 MPA-109 DDP-062',
    'FIN back, no Terminate',
    async (_trial, connection) => {
      await connection.ping();
      connection.channel.finish();
      const { terminate, end } = await connection.reaction();
      check(terminate === null, 'no Terminate', 'a Terminate');
      same('the end', end ?? 'none', 'fin');
    },
  ),
  ...[1, 2, 15, 40].map((n) =>
    established(
      `mpa.close.fin-inside-fpdu-${n}`,
      `FIN after ${n} octets of an FPDU`,
      'MPA-107',
      'close; the partial FPDU has no effect',
      async (trial, connection) => {
        const fpdu = connection.encode(connection.makeSend(pattern(64)));
        connection.channel.write(fpdu.subarray(0, n));
        connection.channel.finish();
        const { end, segments } = await connection.reaction();
        check(end !== null, 'close', 'an open connection');
        check(
          segments.every((s) => s.opcode === OPCODE.TERMINATE),
          'nothing but perhaps a Terminate',
          segments.map(describeSegment).join(', '),
        );
        if (trial.hasTester)
          same('delivered messages', (await trial.tester.deliveredWithin(trial.limits.quiet)).length, 0);
      },
    ),
  ),
  established(
    'mpa.close.rst',
    'RST with receives posted',
    'MPA-107',
    'the program above learns of it, receives are flushed',
    async (trial, connection) => {
      await connection.ping();
      connection.channel.reset();
      const events = await trial.tester.events('disconnected');
      check(
        events.some((event) => event.type === 'disconnected'),
        'a report to the program above',
        'none',
      );
      const done = await trial.tester.completions(16);
      check(
        done.length > 0 && done.every((wc) => wc.status === 'flushed'),
        'flushed receives',
        done.map((wc) => wc.status).join(' ') || 'none',
      );
    },
    { needs: ['tester'] },
  ),
  established(
    'mpa.close.by-the-peer',
    'The program above the peer closes in order',
    'MPA-109 DDP-059',
    'its last Sends, then FIN, no Terminate',
    async (trial, connection) => {
      await connection.ping();
      await trial.tester.post({ kind: 'send', length: 100, count: 50 });
      await trial.tester.close('graceful');
      const { terminate, end, segments } = await connection.reaction();
      check(terminate === null, 'no Terminate', 'a Terminate');
      same('Sends before the FIN', segments.filter((s) => s.opcode === OPCODE.SEND).length, 50);
      same('the end', end ?? 'none', 'fin');
    },
    { needs: ['tester'] },
  ),
  established(
    'mpa.close.read-then-fin',
    'A Read Request, then FIN',
    'MPA-109',
    'the answer, a Terminate, or just close',
    async (trial, connection) => {
      const region = await trial.region(connection);
      connection.send(
        connection.makeRead({
          sinkStag: 1,
          sinkTo: 0n,
          size: 16,
          sourceStag: region.stag,
          sourceTo: region.to,
        }),
      );
      connection.channel.finish();
      const { end } = await connection.reaction();
      check(end !== null, 'the end of the connection', 'an open connection');
    },
    { needs: ['region'] },
  ),
  ...([1, 2] as const).map((revision) =>
    established(
      `mpa.tx.dv-with-revision-${revision}`,
      `DV and RV after a start-up with revision ${revision}`,
      'MPA-092 MPA-039 DDP-006 RDMAP-001 RDMAP-002',
      'DV 1 and RV 1',
      async (_trial, connection) => {
        connection.send(
          connection.makeRead({ sinkStag: 7, sinkTo: 9n, size: 0, sourceStag: 1, sourceTo: 0n }),
        );
        const segment = await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a zero-length Read Response');
        same('DDP control', segment.ulpdu[0]!, 0xc1);
        same('RDMAP control', segment.ulpdu[1]!, 0x42);
      },
      {
        roles: revision === 1 ? ['initiator'] : BOTH,
        startup: { revision },
        enhanced: revision === 2,
        ...(revision === 1 ? { needs: ['tester'] as const } : {}),
      },
    ),
  ),
];

export const mpaFpdu: readonly Case[] = [
  ...crc,
  ...longFlips,
  ...pad,
  ...short,
  ...boundaries,
  ...large,
  ...sending,
  ...negotiated,
  ...ends,
];
