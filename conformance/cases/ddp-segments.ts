// DDP: how messages are cut into segments and put together again, sent and received. RFC 5041 4, 5.

import { pause, type Connection } from '../probe/connection.ts';
import { check, same, sameBytes } from '../probe/deviation.ts';
import type { ParsedSegment } from '../probe/messages.ts';
import { parseReadRequest, tagged, untagged } from '../probe/messages.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { NORMAL, terms } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { fromHex, pattern } from '../profiles/protocol.ts';
import type { PostOptions } from '../profiles/protocol.ts';
import { established, stimulus } from './define.ts';
import type { Case } from './define.ts';

/** A Send cut into segments of these lengths. */
function sendSegments(
  connection: Connection,
  lengths: readonly number[],
  data: Uint8Array,
  opcode: number = OPCODE.SEND,
  word = 0,
): Uint8Array[] {
  const msn = connection.takeMsn(0);
  let mo = 0;
  return lengths.map((length, i) => {
    const payload = data.subarray(mo, mo + length);
    const segment = untagged({ opcode, qn: 0, msn, mo, word, last: i === lengths.length - 1, payload });
    mo += length;
    return segment;
  });
}

/** A Write cut into segments of these lengths. */
function writeSegments(stag: number, to: bigint, lengths: readonly number[], data: Uint8Array): Uint8Array[] {
  let at = 0;
  return lengths.map((length, i) => {
    const payload = data.subarray(at, at + length);
    const segment = tagged({
      opcode: OPCODE.RDMA_WRITE,
      stag,
      to: to + BigInt(at),
      last: i === lengths.length - 1,
      payload,
    });
    at += length;
    return segment;
  });
}

const CUTS: readonly (readonly [name: string, lengths: readonly number[]])[] = [
  ['two', [10, 6]],
  ['odd', [1, 2, 3, 5, 5]],
  ['one-octet-each', [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]],
  ['large', [1442, 1442, 700]],
];
const sum = (lengths: readonly number[]): number => lengths.reduce((all, length) => all + length, 0);

const received: Case[] = [
  ...CUTS.map(([name, lengths]) =>
    established(
      `ddp.segments.send-${name}`,
      `A Send in segments of ${lengths.join(', ')} octets`,
      'DDP-024 DDP-034 DDP-035 RDMAP-057',
      'one message, put together',
      async (trial, connection) => {
        const data = trial.random.octets(sum(lengths));
        for (const segment of sendSegments(connection, lengths, data)) connection.send(segment);
        const got = await trial.tester.received(1);
        same('completions', got.length, 1);
        sameBytes('message', fromHex(got[0]!.data), data);
      },
      { needs: ['tester'] },
    ),
  ),
  ...CUTS.map(([name, lengths]) =>
    established(
      `ddp.segments.write-${name}`,
      `A Write in segments of ${lengths.join(', ')} octets`,
      'DDP-024 DDP-018',
      'all octets in their places',
      async (trial, connection) => {
        const region = await trial.tester.region({ length: 4096, fill: 0 });
        const data = trial.random.octets(sum(lengths));
        for (const segment of writeSegments(region.stag, region.to + 5n, lengths, data))
          connection.send(segment);
        await connection.ping();
        sameBytes('memory', await trial.tester.peek(region, 5, data.length), data);
      },
      { needs: ['tester'] },
    ),
  ),
  established(
    'ddp.segments.write-in-region',
    'A Write in two segments',
    'DDP-024 DDP-018',
    'all octets in their places',
    async (trial, connection) => {
      const region = await trial.region(connection);
      // rping's smallest buffer has 23 octets. A multiple of four, so that the answer needs no PAD, which is
      // another question (MPA-067).
      const data = trial.random.octets(20);
      for (const segment of writeSegments(region.stag, region.to, [11, 9], data)) connection.send(segment);
      sameBytes('memory of the peer', await connection.read(region.stag, region.to, data.length), data);
    },
    { needs: ['region'] },
  ),
  established(
    'ddp.segments.last-held-back',
    'A Send whose last segment comes late',
    'DDP-034 DDP-010',
    'no completion before it',
    async (trial, connection) => {
      const [first, second] = sendSegments(connection, [10, 6], pattern(16));
      connection.send(first!);
      await connection.ping();
      same(
        'completions before the last segment',
        (await trial.tester.deliveredWithin(trial.limits.quiet)).length,
        0,
      );
      connection.send(second!);
      same('completions', (await trial.tester.received(1)).length, 1);
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.segments.empty-last',
    'A Send whose last segment is empty',
    'DDP-034 DDP-035',
    "one message of the first segment's length",
    async (trial, connection) => {
      for (const segment of sendSegments(connection, [10, 0], pattern(10))) connection.send(segment);
      const got = await trial.tester.received(1);
      same('octets received', got[0]?.length ?? -1, 10);
    },
    { needs: ['tester'] },
  ),
  stimulus(
    'ddp.segments.reverse-order',
    'A Write in two segments, the higher TO first, L on the last sent',
    'DDP-030',
    [NORMAL, ...terms(TERM.DDP_BOUNDS, TERM.DDP_INVALID_STAG)],
    async (trial, connection) => {
      const region = await trial.region(connection);
      connection.send(
        tagged({
          opcode: OPCODE.RDMA_WRITE,
          stag: region.stag,
          to: region.to + 8n,
          last: false,
          payload: pattern(8),
        }),
      );
      connection.send(
        tagged({ opcode: OPCODE.RDMA_WRITE, stag: region.stag, to: region.to, payload: pattern(8) }),
      );
    },
    { needs: ['region'] },
  ),
  established(
    'ddp.segments.write-around-send',
    'First segment of a Write, a whole Send, last segment of the Write',
    'DDP-037',
    'both complete',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 32, fill: 0 });
      const [first, second] = writeSegments(region.stag, region.to, [16, 16], pattern(32));
      connection.send(first!);
      connection.send(connection.makeSend(pattern(3)));
      connection.send(second!);
      await connection.ping();
      same('completions', (await trial.tester.received(1)).length, 1);
      sameBytes('memory', await trial.tester.peek(region), pattern(32));
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.segments.write-inside-send',
    'First segment of a Send, a whole Write, last segment of the Send',
    'DDP-037',
    'both complete',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 32, fill: 0 });
      const [first, second] = sendSegments(connection, [10, 6], pattern(16));
      connection.send(first!);
      connection.send(connection.makeWrite(region.stag, region.to, pattern(32)));
      connection.send(second!);
      const got = await trial.tester.received(1);
      sameBytes('message', fromHex(got[0]?.data ?? ''), pattern(16));
      sameBytes('memory', await trial.tester.peek(region), pattern(32));
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.segments.many-messages',
    'One hundred Sends of growing length',
    'DDP-032 DDP-033 RDMAP-062',
    'delivered once each, in order',
    async (trial, connection) => {
      await trial.tester.receive(100, 256);
      for (let i = 1; i <= 100; i++) connection.send(connection.makeSend(pattern(i)));
      const got = await trial.tester.received(100);
      sameBytes(
        'lengths of the messages',
        Uint8Array.from(got, (wc) => wc.length),
        Uint8Array.from({ length: 100 }, (_, i) => i + 1),
      );
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.segments.differing-invalidate-field',
    'A Send whose two segments differ in the Invalidate STag field',
    'DDP-011',
    'delivered, or a clean Terminate',
    async (trial, connection) => {
      const msn = connection.msn[0]!;
      const [first] = sendSegments(connection, [10, 6], pattern(16), OPCODE.SEND, 0x11);
      connection.send(first!);
      connection.send(untagged({ opcode: OPCODE.SEND, qn: 0, msn, mo: 10, word: 0x22, payload: pattern(6) }));
      await trial.expect(connection, [
        NORMAL,
        ...terms(TERM.RDMAP_STREAM_CATASTROPHIC, TERM.DDP_LOCAL_CATASTROPHIC),
      ]);
    },
    { needs: ['tester'] },
  ),
];

const SMALL = { setup: { emss: 536 } } as const;
/** The MULPDU that follows from this EMSS by MPA-078. */
const SMALL_MULPDU = 530;

/** A message of the peer, and what its segments must look like; the watch judges numbering and order. */
function sent(
  id: string,
  title: string,
  requirements: string,
  post: PostOptions,
  opcode: number,
  look: (segments: readonly ParsedSegment[]) => void,
): Case {
  return established(
    `ddp.tx.${id}`,
    title,
    requirements,
    'segments as RFC 5041 5.2 has them',
    async (trial, connection) => {
      await connection.ping();
      await trial.tester.post(post);
      const { segments, payload } = await connection.expectMessage(opcode, 'the message posted');
      sameBytes('payload', payload, pattern(post.length ?? 0));
      check(
        segments.every((s) => s.ulpdu.length <= SMALL_MULPDU),
        `ULPDU_Length up to ${SMALL_MULPDU}`,
        String(Math.max(...segments.map((s) => s.ulpdu.length))),
        ['DDP-021', 'MPA-078'],
      );
      look(segments);
    },
    SMALL,
  );
}

const each = (
  segments: readonly ParsedSegment[],
  what: string,
  of: (segment: ParsedSegment) => number,
  wanted: number,
): void => segments.forEach((segment, i) => same(`${what} of segment ${i}`, of(segment), wanted));

const several = (segments: readonly ParsedSegment[]): void =>
  check(segments.length > 1, 'several segments', '1');

const tx: Case[] = [
  sent(
    'long-send',
    'The peer sends 2048 octets',
    'DDP-001 DDP-002 DDP-003 DDP-013 DDP-017 DDP-021 DDP-023',
    { kind: 'send', length: 2048 },
    OPCODE.SEND,
    (segments) => {
      several(segments);
      each(segments, 'MSN', (s) => s.msn, segments[0]!.msn);
      each(segments, 'T', (s) => Number(s.tagged), 0);
      each(segments.slice(0, -1), 'L', (s) => Number(s.last), 0);
    },
  ),
  sent(
    'long-write',
    'The peer writes 2048 octets to TO 16384',
    'DDP-001 DDP-002 DDP-003 DDP-012 DDP-018 RDMAP-017',
    { kind: 'write', length: 2048, stag: 0x1122_3344, to: '16384' },
    OPCODE.RDMA_WRITE,
    (segments) => {
      several(segments);
      each(segments, 'STag', (s) => s.stag, 0x1122_3344);
      each(segments, 'T', (s) => Number(s.tagged), 1);
      same('first TO', segments[0]!.to, 16_384n);
    },
  ),
  sent(
    'long-send-invalidate',
    'The peer sends 2048 octets with Invalidate',
    'DDP-009 RDMAP-012',
    { kind: 'send-inv', length: 2048, invalidate: 0xaabb_ccdd },
    OPCODE.SEND_INVALIDATE,
    (segments) => {
      several(segments);
      each(segments, 'Invalidate STag', (s) => s.word, 0xaabb_ccdd);
    },
  ),
  sent(
    'write-unaligned',
    'The peer writes 600 octets to TO 4097',
    'DDP-018 DDP-019',
    { kind: 'write', length: 600, stag: 5, to: '4097' },
    OPCODE.RDMA_WRITE,
    (segments) => same('first TO', segments[0]!.to, 4097n),
  ),
  sent(
    'write-highest-stag',
    'The peer writes to STag 0xFFFFFFFF',
    'DDP-012',
    { kind: 'write', length: 4, stag: 0xffff_ffff, to: '0' },
    OPCODE.RDMA_WRITE,
    (segments) => same('STag', segments[0]!.stag, 0xffff_ffff),
  ),
  sent(
    'write-past-2-32',
    'The peer writes 2048 octets across TO 2^32',
    'DDP-018',
    { kind: 'write', length: 2048, stag: 5, to: '4294966296' },
    OPCODE.RDMA_WRITE,
    several,
  ),
  sent(
    'empty-send',
    'The peer sends no octets',
    'DDP-025 DDP-002',
    { kind: 'send', length: 0 },
    OPCODE.SEND,
    (segments) => same('segments', segments.length, 1),
  ),
  sent(
    'empty-write',
    'The peer writes no octets',
    'DDP-025 RDMAP-020',
    { kind: 'write', length: 0, stag: 5, to: '7' },
    OPCODE.RDMA_WRITE,
    (segments) => {
      same('segments', segments.length, 1);
      same('ULPDU_Length', segments[0]!.ulpdu.length, 14);
    },
  ),
  ...(
    [
      ['send', OPCODE.SEND],
      ['send-se', OPCODE.SEND_SE],
      ['send-inv', OPCODE.SEND_INVALIDATE],
      ['send-se-inv', OPCODE.SEND_SE_INVALIDATE],
    ] as const
  ).map(([kind, opcode]) =>
    sent(
      `kind-${kind}`,
      `The peer posts a ${kind}`,
      'RDMAP-001 RDMAP-002 RDMAP-006 RDMAP-008 RDMAP-010 RDMAP-012 RDMAP-013 DDP-004 DDP-006 DDP-014',
      { kind, length: 20, invalidate: 0x0102_0304 },
      opcode,
      (segments) => {
        same('DDP control', segments[0]!.ulpdu[0]!, 0x41);
        same('RDMAP control', segments[0]!.ulpdu[1]!, 0x40 | opcode);
        same('Invalidate STag', segments[0]!.word, kind.endsWith('inv') ? 0x0102_0304 : 0);
      },
    ),
  ),
  established(
    'ddp.tx.queues-count-apart',
    'The peer posts Send, Read, Send, Read',
    'DDP-014 DDP-016 RDMAP-027 RDMAP-093 RDMAP-095',
    'MSN 1, 1, 2, 2 on their queues, in the order posted',
    async (trial, connection) => {
      const rtr =
        trial.role === 'responder' && connection.reply?.enhanced?.a === true
          ? connection.reply.enhanced
          : null;
      const [send, read] = [rtr?.b === true ? 2 : 1, rtr?.d === true ? 2 : 1];
      await trial.tester.post({ kind: 'send', length: 3 });
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0' });
      await trial.tester.post({ kind: 'send', length: 5 });
      await trial.tester.post({ kind: 'read', length: 6, stag: 9, to: '0' });
      const wanted = [
        [OPCODE.SEND, send],
        [OPCODE.READ_REQUEST, read],
        [OPCODE.SEND, send + 1],
        [OPCODE.READ_REQUEST, read + 1],
      ] as const;
      for (const [opcode, msn] of wanted)
        same('MSN', (await connection.expectOpcode(opcode, 'messages in the order posted')).msn, msn);
    },
    { setup: { ord: 2 } },
  ),
  established(
    'ddp.tx.order',
    'The peer posts twenty messages of all kinds',
    'DDP-028 DDP-029 RDMAP-022 RDMAP-056 RDMAP-093',
    'they arrive in the order posted',
    async (trial, connection) => {
      const lengths = Array.from({ length: 20 }, (_, i) => 1 + ((i * 211) % 1500));
      for (const [i, length] of lengths.entries()) {
        await trial.tester.post(
          i % 3 === 0
            ? { kind: 'write', length, stag: 100 + i, to: String(i) }
            : { kind: i % 3 === 1 ? 'send' : 'send-se', length },
        );
      }
      for (const [i, length] of lengths.entries()) {
        const opcode = i % 3 === 0 ? OPCODE.RDMA_WRITE : i % 3 === 1 ? OPCODE.SEND : OPCODE.SEND_SE;
        const { segments, payload } = await connection.expectMessage(opcode, `message ${i}`);
        sameBytes(`message ${i}`, payload, pattern(length));
        if (i % 3 === 0) same('STag', segments[0]!.stag, 100 + i);
      }
    },
    SMALL,
  ),
  established(
    'ddp.tx.no-interleaving',
    'The peer writes 60000 octets while the probe reads 60000',
    'DDP-036 RDMAP-016',
    'segments of the two messages are not mixed',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 60_000 });
      await trial.tester.post({ kind: 'write', length: 60_000, stag: 77, to: '0' });
      connection.send(
        connection.makeRead({
          sinkStag: 4,
          sinkTo: 0n,
          size: 60_000,
          sourceStag: region.stag,
          sourceTo: region.to,
        }),
      );
      await trial.tester.post({ kind: 'write', length: 60_000, stag: 78, to: '0' });
      let last = 0;
      while (last < 3) if ((await connection.expectSegment('two Writes and a Read Response')).last) last++;
    },
    SMALL,
  ),
  established(
    'ddp.tx.write-inside-long-response',
    'The peer is asked to write and to send while a Read Response of 16 MiB waits for the probe to take it',
    'DDP-036 RDMAP-016',
    'segments of the two tagged messages are not mixed',
    async (trial, connection) => {
      // More than two TCP buffers hold, so that the answer is still being made when the Write is posted.
      const size = 16 * 1024 * 1024;
      const region = await trial.tester.region({ length: size, fill: 0x36 });
      connection.channel.pause();
      connection.send(
        connection.makeRead({ sinkStag: 4, sinkTo: 0n, size, sourceStag: region.stag, sourceTo: region.to }),
      );
      await pause(2 * trial.limits.quiet);
      await trial.tester.post({ kind: 'write', length: 60_000, stag: 77, to: '0' });
      await trial.tester.post({ kind: 'send', length: 5 });
      connection.channel.resume();
      let last = 0;
      while (last < 3)
        if ((await connection.expectSegment('a Read Response, a Write and a Send')).last) last++;
    },
    { needs: ['tester'] },
  ),
  established(
    'ddp.tx.read-request',
    'The peer reads 5 octets',
    'RDMAP-013 RDMAP-014 RDMAP-025 RDMAP-026 DDP-020',
    'one Read Request of 46 octets; the answer completes it',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'read', length: 5, stag: 0x0a0b_0c0d, to: '81985529216486895' });
      const segment = await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request');
      same('ULPDU_Length', segment.ulpdu.length, 46);
      const request = parseReadRequest(segment.payload)!;
      same('RDMARDSZ', request.size, 5);
      same('Source STag', request.sourceStag, 0x0a0b_0c0d);
      same('Source TO', request.sourceTo, 0x0123_4567_89ab_cdefn);
      connection.send(
        tagged({
          opcode: OPCODE.READ_RESPONSE,
          stag: request.sinkStag,
          to: request.sinkTo,
          payload: pattern(5),
        }),
      );
      const [wc] = (await trial.tester.completions(1)).filter((c) => c.opcode === 'rdma-read');
      same('status', wc?.status ?? 'none', 'success');
      sameBytes('data read', fromHex(wc!.data), pattern(5));
    },
    { needs: ['tester'] },
  ),
];

export const ddpSegments: readonly Case[] = [...received, ...tx];
