// RDMAP: control fields, opcodes, the kinds of Send, and Terminates received. RFC 5040 4, 5.3, 5.4, 7.

import { pause } from '../probe/connection.ts';
import type { Connection } from '../probe/connection.ts';
import { describeSegment } from '../probe/decode.ts';
import { check, same, sameBytes } from '../probe/deviation.ts';
import { tagged, terminate, terminateHeader, untagged } from '../probe/messages.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { CLOSE, NORMAL, describeOutcomes } from '../probe/trial.ts';
import type { Trial } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { fromHex, pattern } from '../profiles/protocol.ts';
import type { EndpointOptions } from '../profiles/protocol.ts';
import {
  INVALIDATE_FOREIGN,
  INVALIDATE_UNKNOWN,
  NO_BUFFER,
  OPCODE_ERROR,
  VERSION,
  WRITE_STAG,
} from './codes.ts';
import { established, hex2, stimulus } from './define.ts';
import type { Case } from './define.ts';

const FOUR = Uint8Array.of(1, 2, 3, 4);

const versions: Case[] = [0, 2, 3].flatMap((rv) => {
  const control = rv << 6;
  return [
    stimulus(
      `rdmap.header.rv-${rv}-write`,
      `A zero-length Write with RV ${rv}`,
      'RDMAP-004',
      VERSION,
      (_trial, connection) =>
        connection.send(
          tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n, rdmapControl: control | OPCODE.RDMA_WRITE }),
        ),
    ),
    stimulus(
      `rdmap.header.rv-${rv}-send`,
      `A Send with RV ${rv}`,
      'RDMAP-004',
      VERSION,
      (trial, connection) =>
        connection.send(
          untagged({
            opcode: OPCODE.SEND,
            qn: 0,
            msn: connection.msn[0]!,
            payload: trial.acceptableSend(),
            rdmapControl: control | OPCODE.SEND,
          }),
        ),
    ),
    stimulus(
      `rdmap.header.rv-${rv}-read-request`,
      `A zero-length Read Request with RV ${rv}`,
      'RDMAP-004',
      VERSION,
      (_trial, connection) =>
        connection.send(
          untagged({
            opcode: OPCODE.READ_REQUEST,
            qn: 1,
            msn: connection.msn[1]!,
            payload: new Uint8Array(28),
            rdmapControl: control | OPCODE.READ_REQUEST,
          }),
        ),
    ),
  ];
});

const reserved: Case[] = [
  ...[0x10, 0x20, 0x30].map((bits) =>
    established(
      `rdmap.header.reserved-bits-${hex2(bits)}`,
      `A Send with reserved RDMAP control bits 0x${hex2(bits)}`,
      'RDMAP-003',
      'the Send is delivered',
      async (trial, connection) => {
        const payload = trial.acceptableSend();
        connection.send(
          untagged({
            opcode: OPCODE.SEND,
            qn: 0,
            msn: connection.takeMsn(0),
            payload,
            rdmapControl: 0x40 | bits | OPCODE.SEND,
          }),
        );
        await trial.delivered(connection, payload);
      },
      { needs: ['send'] },
    ),
  ),
  stimulus(
    'rdmap.header.reserved-bits-write',
    'A zero-length Write with both reserved RDMAP control bits set',
    'RDMAP-003',
    [NORMAL],
    (_trial, connection) =>
      connection.send(
        tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n, rdmapControl: 0x70 | OPCODE.RDMA_WRITE }),
      ),
  ),
  established(
    'rdmap.header.reserved-bits-read-request',
    'A zero-length Read Request with both reserved RDMAP and all reserved DDP control bits set',
    'RDMAP-003 DDP-005',
    'a zero-length Read Response',
    async (_trial, connection) => {
      const request = connection.makeRead({ sinkStag: 3, sinkTo: 0n, size: 0, sourceStag: 1, sourceTo: 0n });
      request[0]! |= 0x3c;
      request[1]! |= 0x30;
      connection.send(request);
      await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a zero-length Read Response');
    },
  ),
];

const opcodes: Case[] = [
  ...[0xc, 0xd, 0xe, 0xf].flatMap((opcode) => [
    stimulus(
      `rdmap.opcode.${opcode.toString(16)}-untagged`,
      `An untagged segment with opcode 0x${opcode.toString(16)}`,
      'RDMAP-005',
      OPCODE_ERROR,
      (trial, connection) =>
        connection.send(
          untagged({ opcode, qn: 0, msn: connection.msn[0]!, payload: trial.acceptableSend() }),
        ),
    ),
    stimulus(
      `rdmap.opcode.${opcode.toString(16)}-tagged`,
      `A tagged segment with opcode 0x${opcode.toString(16)}`,
      'RDMAP-005',
      OPCODE_ERROR,
      (_trial, connection) => connection.send(tagged({ opcode, stag: 1, to: 0n })),
    ),
  ]),
  ...[8, 9, 10, 11].map((opcode) =>
    stimulus(
      `rdmap.opcode.${opcode.toString(16)}-without-extensions`,
      `An RFC 7306 message (opcode 0x${opcode.toString(16)}) to a peer without the extension`,
      'EXT-001 RDMAP-005',
      OPCODE_ERROR,
      (_trial, connection) =>
        connection.send(
          untagged({
            opcode,
            qn: opcode < 10 ? 0 : opcode === 10 ? 1 : 3,
            msn: 1,
            payload: new Uint8Array(opcode < 10 ? 8 : opcode === 10 ? 52 : 12),
          }),
        ),
      { setup: { extensions: false } },
    ),
  ),
  ...[OPCODE.RDMA_WRITE, OPCODE.READ_RESPONSE].map((opcode) =>
    stimulus(
      `rdmap.opcode.${opcode}-untagged`,
      `${opcode === OPCODE.RDMA_WRITE ? 'A Write' : 'A Read Response'} with T=0`,
      'RDMAP-007',
      OPCODE_ERROR,
      (trial, connection) =>
        connection.send(
          untagged({ opcode, qn: 0, msn: connection.msn[0]!, payload: trial.acceptableSend() }),
        ),
    ),
  ),
  ...[
    OPCODE.READ_REQUEST,
    OPCODE.SEND,
    OPCODE.SEND_INVALIDATE,
    OPCODE.SEND_SE,
    OPCODE.SEND_SE_INVALIDATE,
  ].map((opcode) =>
    stimulus(
      `rdmap.opcode.${opcode}-tagged`,
      `Opcode ${opcode} with T=1`,
      'RDMAP-007',
      OPCODE_ERROR,
      (_trial, connection) => connection.send(tagged({ opcode, stag: 0x0100_0000, to: 0n, payload: FOUR })),
    ),
  ),
];

const sends: Case[] = [
  ...(
    [
      ['send', OPCODE.SEND],
      ['send-se', OPCODE.SEND_SE],
    ] as const
  ).map(([name, opcode]) =>
    established(
      `rdmap.${name}.invalidate-field-ignored`,
      `A ${name} whose Invalidate STag field names a region`,
      'RDMAP-011',
      'delivered; the region stays usable',
      async (trial, connection) => {
        const region = await trial.tester.region({ length: 64 });
        connection.send(connection.makeSend(pattern(8), opcode, region.stag));
        same('completions', (await trial.tester.received(1)).length, 1);
        connection.send(connection.makeWrite(region.stag, region.to, FOUR));
        await connection.ping();
      },
      { needs: ['tester'] },
    ),
  ),
  stimulus(
    'rdmap.read.invalidate-field-ignored',
    'A zero-length Read Request with a non-zero Invalidate STag field',
    'RDMAP-011',
    [{ kind: 'normal' }],
    async (_trial, connection) => {
      connection.needsRead();
      connection.watch.reads.push({ sinkStag: 3, sinkTo: 0n, size: 0, sourceStag: 1, sourceTo: 0n });
      const header = new Uint8Array(28);
      header[3] = 3;
      header[19] = 1;
      connection.send(
        untagged({
          opcode: OPCODE.READ_REQUEST,
          qn: 1,
          msn: connection.takeMsn(1),
          word: 0x0102_0304,
          payload: header,
        }),
      );
      await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a zero-length Read Response');
    },
  ),
  established(
    'rdmap.send.empty',
    'A Send of no octets',
    'RDMAP-058',
    'a completion with length 0',
    async (trial, connection) => {
      connection.send(connection.makeSend(new Uint8Array(0)));
      const got = await trial.tester.received(1);
      same('completions', got.length, 1);
      same('octets received', got[0]!.length, 0);
    },
    { needs: ['tester'] },
  ),
  stimulus(
    'rdmap.send.empty-without-buffer',
    'A Send of no octets without a posted receive',
    'RDMAP-059',
    NO_BUFFER,
    (_trial, connection) => connection.send(connection.makeSend(new Uint8Array(0))),
    { setup: { receives: 0 } },
  ),
  established(
    'rdmap.send.shorter-than-buffer',
    'Sends of 1, 17 and 100 octets into larger buffers',
    'RDMAP-060 DDP-035',
    'the lengths are reported',
    async (trial, connection) => {
      for (const length of [1, 17, 100]) connection.send(connection.makeSend(pattern(length)));
      same('lengths', (await trial.tester.received(3)).map((wc) => wc.length).join(' '), '1 17 100');
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.send.kinds',
    'A plain Send and one with Solicited Event',
    'RDMAP-064 RDMAP-062',
    'both delivered, the second marked',
    async (trial, connection) => {
      connection.send(connection.makeSend(pattern(5)));
      connection.send(connection.makeSend(pattern(6), OPCODE.SEND_SE));
      const got = await trial.tester.received(2);
      same('solicited', got.map((wc) => String(wc.solicited)).join(' '), 'false true');
    },
    { needs: ['tester'] },
  ),
  ...(
    [
      ['send-inv', OPCODE.SEND_INVALIDATE],
      ['send-se-inv', OPCODE.SEND_SE_INVALIDATE],
    ] as const
  ).flatMap(([name, opcode]) => invalidations(name, opcode)),
];

// oxlint-disable-next-line max-lines-per-function -- a table of cases
function invalidations(name: string, opcode: number): Case[] {
  return [
    established(
      `rdmap.${name}.invalidates`,
      `A ${name} names a region of this stream`,
      'RDMAP-067 RDMAP-066',
      'the STag is reported, and a later Write to it ends in an error',
      async (trial, connection) => {
        const region = await trial.tester.region({ length: 64 });
        connection.send(connection.makeSend(pattern(8), opcode, region.stag));
        const [wc] = await trial.tester.received(1);
        same('invalidated STag', wc?.invalidated ?? 0, region.stag);
        connection.send(connection.makeWrite(region.stag, region.to, FOUR));
        await trial.expect(connection, WRITE_STAG);
      },
      { needs: ['tester'] },
    ),
    stimulus(
      `rdmap.${name}.unknown`,
      `A ${name} names an STag nobody knows`,
      'RDMAP-066',
      INVALIDATE_UNKNOWN,
      (trial, connection) =>
        connection.send(
          connection.makeSend(trial.acceptableSend(), opcode, (trial.random.u32() | 0x0100_0000) >>> 0),
        ),
      { needs: ['send'] },
    ),
    established(
      `rdmap.${name}.wrong-key`,
      `A ${name} names a region with a wrong key`,
      'RDMAP-066',
      describeOutcomes(INVALIDATE_UNKNOWN),
      async (trial, connection) => {
        const region = await trial.tester.region({ length: 64 });
        connection.send(connection.makeSend(pattern(8), opcode, (region.stag ^ 1) >>> 0));
        await trial.expect(connection, INVALIDATE_UNKNOWN);
      },
      { needs: ['tester'] },
    ),
    established(
      `rdmap.${name}.shared`,
      `A ${name} names an STag that streams share`,
      'RDMAP-068 SEC-008',
      `${describeOutcomes(INVALIDATE_FOREIGN)}; the region stays usable`,
      async (trial, connection) => {
        const region = await trial.tester.region({ length: 64, shared: true });
        connection.send(connection.makeSend(pattern(8), opcode, region.stag));
        await trial.expect(connection, INVALIDATE_FOREIGN);
        await stillUsable(trial, region.stag, region.to, 'a');
      },
      { needs: ['tester'] },
    ),
    established(
      `rdmap.${name}.other-pd`,
      `A ${name} names a region of another protection domain`,
      'RDMAP-066 RDMAP-068 SEC-001',
      `${describeOutcomes(INVALIDATE_FOREIGN)}; the region stays usable there`,
      async (trial, connection) => {
        const other = await trial.tester.region({ length: 64, pd: 'b' });
        connection.send(connection.makeSend(pattern(8), opcode, other.stag));
        await trial.expect(connection, INVALIDATE_FOREIGN);
        await stillUsable(trial, other.stag, other.to, 'b');
      },
      { needs: ['tester'] },
    ),
  ];
}

/** A second stream, in the region's own protection domain, can still write to it. */
async function stillUsable(trial: Trial, stag: number, to: bigint, pd: string): Promise<void> {
  const other = await secondStream(trial, { pd });
  other.send(other.makeWrite(stag, to, FOUR));
  await other.ping();
}

/** Another connection of the case, on a separate endpoint. */
export async function secondStream(trial: Trial, options: EndpointOptions = {}): Promise<Connection> {
  if (trial.role === 'initiator') {
    const { port } = await trial.tester.listen('127.0.0.1', options);
    const connection = await trial.connectTo({ host: trial.targetHost, port });
    await trial.startUp(connection);
    return connection;
  }
  const connection = await trial.acceptAnother((address) =>
    trial.tester.connect(address.host, address.port, options),
  );
  await trial.startUp(connection);
  return connection;
}

/** A Terminate that must be taken and never answered. */
function silent(
  id: string,
  title: string,
  requirements: string,
  make: (connection: Connection) => Uint8Array,
): Case {
  return stimulus(`rdmap.terminate.${id}`, title, requirements, [CLOSE], (_trial, connection) =>
    connection.send(make(connection)),
  );
}

const T = { opcode: OPCODE.TERMINATE, qn: 2, msn: 1 } as const;

const terminates: Case[] = [
  ...(
    [
      ['local-catastrophic', 0x0000],
      ['remote-protection', 0x0100],
      ['remote-operation', 0x0207],
      ['ddp', 0x1100],
      ['llp', 0x2002],
      ['unknown-code', 0x3f7f],
    ] as const
  ).map(([name, code]) =>
    silent(
      `received-${name}`,
      `A Terminate with code 0x${code.toString(16).padStart(4, '0')}`,
      'RDMAP-079 RDMAP-080',
      () => terminate(code),
    ),
  ),
  silent('reserved-bits', 'A Terminate with all 13 reserved bits set', 'RDMAP-083', () =>
    terminate(0x0207, 0x1fff),
  ),
  silent('with-headers', 'A Terminate with segment length and DDP header', 'RDMAP-079', () =>
    untagged({
      ...T,
      payload: Uint8Array.of(
        ...terminateHeader(0x1100, 0xc000),
        0,
        18,
        ...tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n, payload: FOUR }).subarray(0, 14),
      ),
    }),
  ),
  silent(
    'flags-without-octets',
    'A Terminate with M, D and R but nothing after its first 4 octets',
    'RDMAP-081',
    () => terminate(0x0100, 0xe000),
  ),
  ...[0, 1, 3].map((length) =>
    silent(`of-${length}-octets`, `A Terminate with ${length} octets after the DDP header`, 'RDMAP-081', () =>
      untagged({ ...T, payload: terminateHeader(0x0207).subarray(0, length) }),
    ),
  ),
  silent('wrong-qn', 'A Terminate on queue 0', 'RDMAP-081', () =>
    untagged({ ...T, qn: 0, payload: terminateHeader(0x0207) }),
  ),
  silent('wrong-msn', 'A Terminate with MSN 2', 'RDMAP-081', () =>
    untagged({ ...T, msn: 2, payload: terminateHeader(0x0207) }),
  ),
  silent('wrong-mo', 'A Terminate with MO 4', 'RDMAP-081', () =>
    untagged({ ...T, mo: 4, payload: terminateHeader(0x0207) }),
  ),
  silent('tagged', 'A Terminate with T=1', 'RDMAP-081', () =>
    tagged({ opcode: OPCODE.TERMINATE, stag: 1, to: 0n, payload: terminateHeader(0x0207) }),
  ),
  silent('not-last', 'A Terminate without L', 'RDMAP-081', () =>
    untagged({ ...T, last: false, payload: terminateHeader(0x0207) }),
  ),
  established(
    'rdmap.terminate.reported',
    'A Terminate 0/1/02',
    'RDMAP-079',
    'the program above learns layer, type and code',
    async (trial, connection) => {
      connection.send(terminate(0x0102));
      const event = (await trial.tester.events('terminate')).find((e) => e.type === 'terminate');
      same('reported code', event?.code ?? -1, 0x0102);
      same('origin', event?.origin ?? '', 'remote');
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.terminate.without-receives',
    'A Terminate while no receive is posted',
    'RDMAP-080',
    'it is taken; close',
    async (trial, connection) => {
      connection.send(terminate(0x0207));
      await trial.expect(connection, [CLOSE]);
    },
    { setup: { receives: 0 } },
  ),
  established(
    'rdmap.terminate.inside-a-message',
    'A Terminate after half a Send',
    'RDMAP-079 RDMAP-080',
    'close without an answer, no completion with success',
    async (trial, connection) => {
      connection.send(
        untagged({
          opcode: OPCODE.SEND,
          qn: 0,
          msn: connection.takeMsn(0),
          last: false,
          payload: pattern(8),
        }),
      );
      connection.send(terminate(0x0207));
      await trial.expect(connection, [CLOSE]);
      if (trial.hasTester)
        same('delivered messages', (await trial.tester.deliveredWithin(trial.limits.quiet)).length, 0);
    },
    { needs: ['send'] },
  ),
  established(
    'rdmap.terminate.inside-a-write',
    'A Terminate after half a Write',
    'RDMAP-079',
    'close without an answer',
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
      connection.send(terminate(0x0207));
      await trial.expect(connection, [CLOSE]);
    },
    { needs: ['region'] },
  ),
  established(
    'rdmap.terminate.flushes',
    'A Terminate while the peer has receives posted',
    'RDMAP-087 RDMAP-088',
    'all receives are flushed',
    async (trial, connection) => {
      connection.send(terminate(0x0207));
      await trial.expect(connection, [CLOSE]);
      connection.channel.finish();
      const done = await trial.tester.completions(16);
      same(
        'flushed receives',
        done.filter((wc) => wc.queue === 'receive' && wc.status === 'flushed').length,
        16,
      );
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.terminate.sent-by-the-program',
    'The program above the peer asks for a Terminate',
    'RDMAP-076 RDMAP-082 RDMAP-085',
    'Terminate 0/0/00 without headers, then FIN',
    async (trial, connection) => {
      await connection.ping();
      await trial.tester.close('terminate');
      const { terminate: got, end, segments } = await connection.reaction();
      check(got !== null, 'a Terminate', segments.map(describeSegment).join(', ') || 'none');
      same('layer', got.layer, 0);
      same('type', got.etype, 0);
      check(!got.m && !got.d && !got.r, 'no headers', 'headers');
      same('ULPDU_Length', segments.at(-1)!.ulpdu.length, 22);
      same('the end', end ?? 'none', 'fin');
    },
    { needs: ['tester'] },
  ),
];

const reports: Case[] = [
  established(
    'rdmap.report.crc-error-without-headers',
    'What the Terminate about a CRC error carries',
    'RDMAP-085 RDMAP-082',
    'Terminate 2/0/02 without headers',
    async (trial, connection) => {
      connection.send(connection.makeWrite(1, 0n, new Uint8Array(0)), { crc: 'zero' });
      const reaction = await trial.expect(connection, [{ kind: 'terminate', code: TERM.MPA_CRC }]);
      const got = reaction!.terminate!;
      check(
        !got.m && !got.d && !got.r,
        'M=0 D=0 R=0',
        `M=${Number(got.m)} D=${Number(got.d)} R=${Number(got.r)}`,
      );
    },
  ),
  established(
    'rdmap.report.first-error-counts',
    'Two bad Writes in one TCP write',
    'RDMAP-075',
    'the Terminate speaks of the first',
    async (trial, connection) => {
      const first = connection.makeWrite(0x0101_0100, 1n, FOUR);
      connection.sendTogether([first, connection.makeWrite(0x0202_0200, 2n, FOUR)]);
      const got = (await trial.expect(connection, WRITE_STAG, first))!.terminate!;
      if (got.ddpHeader !== null) sameBytes('DDP header', got.ddpHeader, first.subarray(0, 14));
    },
  ),
  established(
    'rdmap.report.while-sending',
    'A bad Write while the peer has 100 long Sends to send',
    'RDMAP-073 RDMAP-077',
    'whole FPDUs, then the Terminate, then nothing',
    async (trial, connection) => {
      await trial.tester.post({ kind: 'send', length: 20_000, count: 100 });
      await connection.expectOpcode(OPCODE.SEND, 'the first Send');
      connection.send(connection.makeWrite(0x0101_0100, 1n, FOUR));
      const reaction = await trial.expect(connection, WRITE_STAG);
      same('the last segment is a Terminate', reaction!.segments.at(-1)!.opcode, OPCODE.TERMINATE);
    },
    { needs: ['tester'] },
  ),
  established(
    'rdmap.report.then-fin',
    'How the connection ends after a Terminate',
    'RDMAP-090 RDMAP-089 RDMAP-091 RDMAP-071',
    'the Terminate whole, then FIN',
    async (trial, connection) => {
      connection.send(connection.makeWrite(0x0101_0100, 1n, FOUR));
      const reaction = await trial.expect(connection, WRITE_STAG);
      same('the end', reaction!.end ?? 'none', 'fin');
    },
  ),
  established(
    'rdmap.report.peer-that-never-closes',
    'A bad Write by a probe that keeps its side open',
    'RDMAP-091',
    'Terminate, FIN, and no later message has effect',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, fill: 0xee });
      connection.send(connection.makeWrite(0x0101_0100, 1n, FOUR));
      await trial.expect(connection, WRITE_STAG);
      connection.send(connection.makeWrite(region.stag, region.to, FOUR));
      await pause(trial.limits.quiet);
      sameBytes('memory', await trial.tester.peek(region), new Uint8Array(64).fill(0xee));
    },
    { needs: ['tester'] },
  ),
];

/** The octets of a Terminate as they came, whatever quirk reads over them elsewhere. */
const layout: Case[] = (
  [
    [
      'crc-error',
      'a CRC error',
      [0x20, 0x02],
      (connection: Connection) =>
        connection.send(connection.makeWrite(1, 0n, new Uint8Array(0)), { crc: 'zero' }),
    ],
    [
      'bad-version',
      'RV 0',
      [0x02, 0x05],
      (connection: Connection) =>
        connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n, rdmapControl: 0 })),
    ],
    [
      'bad-queue',
      'a Send on queue 4',
      [0x12, 0x01],
      (connection: Connection) => connection.send(untagged({ opcode: OPCODE.SEND, qn: 4, msn: 1 })),
    ],
  ] as const
).map(([name, words, first, act]) =>
  established(
    `rdmap.report.octets-for-${name}`,
    `The first three octets of the Terminate about ${words}`,
    'RDMAP-082',
    `${hex2(first[0])} ${hex2(first[1])}, then M, D and R at the high end`,
    async (_trial, connection) => {
      act(connection);
      const incoming = await connection.receive();
      check(
        incoming.kind === 'segment' && incoming.segment.opcode === OPCODE.TERMINATE,
        'a Terminate',
        incoming.kind === 'segment' ? describeSegment(incoming.segment) : incoming.kind,
      );
      const raw = incoming.fpdu.ulpdu.subarray(18, 21);
      same(
        'layer and type, code',
        `${hex2(raw[0]!)} ${hex2(raw[1]!)}`,
        `${hex2(first[0])} ${hex2(first[1])}`,
      );
      same('reserved bits beside M, D and R', raw[2]! & 0x1f, 0);
    },
  ),
);

const fresh: Case[] = [
  established(
    'rdmap.reuse.second-stream',
    'A second stream beside the first',
    'RDMAP-096 DDP-014',
    'MSN 1 again, and both work',
    async (trial, connection) => {
      connection.send(connection.makeSend(pattern(5)));
      const other = await secondStream(trial);
      other.send(other.makeSend(pattern(6)));
      await other.ping();
      await connection.ping();
      const [wc] = await trial.tester.received(1);
      sameBytes('message on the first stream', fromHex(wc?.data ?? ''), pattern(5));
    },
    { needs: ['tester'] },
  ),
];

export const rdmapHeaders: readonly Case[] = [
  ...versions,
  ...reserved,
  ...opcodes,
  ...sends,
  ...terminates,
  ...reports,
  ...layout,
  ...fresh,
];
