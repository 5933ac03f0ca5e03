/**
 * NBD above RDMAP: the decoder's output for our server and client in both modes, and of requests and
 * replies written octet by octet here.
 */
import { describe, expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { connect, createServer, memoryDevice, type BlockDevice } from '../../src/nbd/index.ts';
import { ConnectionDecoder } from '../../src/inspect/decode/connection-decoder.ts';
import { OctetBudget } from '../../src/inspect/capture/octet-queue.ts';
import type { DecodedFpdu, DecodedStartup, InspectEvent, NbdFields } from '../../src/inspect/decode/types.ts';
import { PageBuilder } from '../../src/inspect/render/page.ts';
import { renderLine } from '../../src/inspect/render/text.ts';
import {
  renderJson,
  renderOctets,
  renderSummary,
  renderSummaryJson,
  renderTree,
} from '../../src/inspect/render/views.ts';
import type { CapturedConnection } from '../../src/inspect/decode/capture.ts';
import { wrapTransport } from '../../src/transport/middleware.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { tap } from '../../src/transport/tap.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';
import { encodeFpdus, encodeStartup, untaggedUlpdu } from '../support/naive/encoder.ts';
import { concat } from './support.ts';

const SEND = 3;
/** Big-endian fields, written without the codec that is tested: [octets, value]. */
function fields(...parts: readonly (readonly [number, number | bigint])[]): Uint8Array {
  const hex = parts
    .map(([octets, value]) =>
      BigInt(value)
        .toString(16)
        .padStart(octets * 2, '0'),
    )
    .join('');
  return Uint8Array.from(Buffer.from(hex, 'hex'));
}
const request = (command: number, cookie: number, offset: bigint, length: number, flags = 0): Uint8Array =>
  fields([4, 0x25609513], [2, flags], [2, command], [8, cookie], [8, offset], [4, length]);
const memory = (stag: number, to: bigint): Uint8Array => fields([4, stag], [4, 0], [8, to]);
const reply = (cookie: number, error = 0): Uint8Array => fields([4, 0x67446698], [4, error], [8, cookie]);
const setup = (mode: number, name: string): Uint8Array =>
  concat(fields([4, 0x4e424452], [1, 1], [1, mode], [2, 8]), new TextEncoder().encode(name));
const grant = fields([8, 1 << 20], [2, 0x6d], [4, 1], [4, 4096], [4, 65_536]);

interface Seen {
  readonly events: InspectEvent[];
  readonly decoder: ConnectionDecoder;
  readonly nbd: NbdFields[];
  readonly connection: CapturedConnection;
}

/** Decode the start-up and these messages, in this order; a number is a gap of octets. */
function decode(
  mode: 'message' | 'direct',
  messages: readonly (readonly [0 | 1, Uint8Array | number])[],
  options: { name?: string; refusal?: Uint8Array; budget?: OctetBudget } = {},
): Seen {
  const events: InspectEvent[] = [];
  const { budget } = options;
  const decoder = new ConnectionDecoder({
    emit: (event) => events.push(event),
    ...(budget === undefined ? {} : { budget }),
  });
  const push = (direction: 0 | 1, bytes: Uint8Array, time: number): void =>
    decoder.push(direction, bytes, 0, bytes.length, time);
  const name = options.name ?? 'disk';
  push(
    0,
    encodeStartup({ kind: 'request', crc: true, privateData: setup(mode === 'direct' ? 1 : 0, name) }),
    0,
  );
  const { refusal } = options;
  push(
    1,
    encodeStartup({ kind: 'reply', crc: true, reject: refusal !== undefined, privateData: refusal ?? grant }),
    0,
  );
  const msn: [number, number] = [1, 1];
  for (const [i, [direction, message]] of messages.entries()) {
    if (typeof message === 'number') decoder.gap(direction, message, i);
    else
      push(
        direction,
        encodeFpdus([untaggedUlpdu({ opcode: SEND, qn: 0, msn: msn[direction]++ }, message)], {
          crc: true,
          markers: false,
        }),
        i,
      );
  }
  const nbd = events.flatMap((event) =>
    event.kind === 'fpdu' && event.nbd !== undefined ? [event.nbd] : [],
  );
  const connection: CapturedConnection = {
    number: 1,
    ends: ['a:1', 'b:2'],
    fromStart: true,
    iwarp: true,
    repeatedSegments: 0,
    reorderedSegments: 0,
    earlySegments: 0,
    summary: decoder.summary,
  };
  return { events, decoder, nbd, connection };
}

describe('requests and replies', () => {
  it('have their names, and replies those of what they answer', () => {
    const seen = decode('message', [
      [0, request(0, 7, 0x1000n, 512)],
      [0, concat(request(1, 8, 0n, 4, 1), Uint8Array.of(1, 2, 3, 4))],
      [1, reply(8, 28)],
      [1, concat(reply(7), new Uint8Array(512))],
      [0, request(9, 1, 0n, 0)],
      [0, request(2, 2, 0n, 0)],
    ]);
    expect(seen.nbd).toEqual([
      { kind: 'request', command: 'READ', cookie: 7n, offset: 0x1000n, length: 512 },
      { kind: 'request', command: 'WRITE', flags: 'FUA', cookie: 8n, offset: 0n, length: 4 },
      { kind: 'reply', command: 'WRITE', cookie: 8n, offset: 0n, length: 4, error: 'ENOSPC', elapsed: 1 },
      { kind: 'reply', command: 'READ', cookie: 7n, offset: 0x1000n, length: 512, elapsed: 3 },
      { kind: 'request', command: 'Command 0x9', cookie: 1n, offset: 0n, length: 0 },
      { kind: 'request', command: 'DISC', cookie: 2n, offset: 0n, length: 0 },
    ]);
    const lines = seen.events.map((event) => renderLine(event));
    expect(lines[0]).toContain('NBD export "disk", message mode, depth 8, version 1');
    expect(lines[1]).toContain('NBD 1048576 bytes, flags 0x6d, blocks 1/4096/65536');
    expect(lines[2]).toContain('NBD READ 512 at 0x1000, cookie 0x7');
    expect(lines[4]).toContain('NBD reply to WRITE 4 at 0x0: ENOSPC, cookie 0x8, 1.000000 s');
    expect(renderSummary(seen.connection)).toContain(
      'NBD, message mode: READ 1, WRITE 1, Command 0x9 1, DISC 1; 2 replies (ENOSPC 1), ' +
        '1 requests unanswered',
    );
    expect(JSON.parse(renderSummaryJson(seen.connection))).toMatchObject({
      nbd: {
        mode: 'message',
        requests: { READ: 1, WRITE: 1 },
        replies: 2,
        errors: { ENOSPC: 1 },
        waiting: 1,
      },
    });
    expect(JSON.parse(renderJson(seen.events[4]!))).toMatchObject({ nbd: { kind: 'reply', cookie: '0x8' } });
  });

  it('in direct mode name the memory of the client, in all views', () => {
    const seen = decode('direct', [
      [0, concat(request(0, 3, 4096n, 8192), memory(0xabcd01, 0x40n))],
      [1, reply(3)],
    ]);
    expect(seen.nbd[0]).toMatchObject({ command: 'READ', memory: { stag: 0xabcd01, to: 0x40n } });
    expect(renderLine(seen.events[2]!)).toContain('READ 8192 at 0x1000, memory 0x00abcd01+0x40, cookie 0x3');
    expect(renderTree(seen.events[2]!)).toMatch(/NBD: request\n +Magic: 0x25609513\n +Command flags: 0\n/);
    // The fields lie where the octets are: TO is the last of the ULPDU, and no payload is left.
    expect(renderOctets(seen.events[2]!)).toMatch(/^0038 {2}00 00 00 00 00 00 00 40 +TO: 0x40$/m);
    expect(renderTree(seen.events[2]!)).not.toContain('Payload');
    const page = new PageBuilder('nbd');
    for (const event of seen.events) page.add(seen.connection, event);
    expect(page.finish([seen.connection])).toContain('NBD reply to READ 8192 at 0x1000: done');
  });

  it('a reply to no request is named, unless requests may be missing', () => {
    expect(decode('message', [[1, reply(5)]]).nbd).toEqual([{ kind: 'reply', cookie: 5n, unmatched: true }]);
    const gap = decode('message', [
      [0, 100],
      [1, reply(5)],
    ]);
    expect(gap.nbd).toEqual([{ kind: 'reply', cookie: 5n }]);
    expect(gap.connection.summary.nbd).toMatchObject({ unmatched: 0, replies: 1 });
  });

  it('a refusal is shown with its message, control characters escaped', () => {
    const text = new TextEncoder().encode('no \u001b[2J\u202e');
    const { events } = decode('message', [], { refusal: concat(fields([4, 2]), text), name: 'x\u0085<b>' });
    expect(renderLine(events[0]!)).toContain('NBD export "x\\x85<b>"');
    expect(renderLine(events[1]!)).toContain('NBD refusal, ENOENT: "no \\x1b[2J\\u{202e}"');
  });

  it('nothing is NBD on another connection, in another place, or cut short', () => {
    const events: InspectEvent[] = [];
    const decoder = new ConnectionDecoder({ emit: (event) => events.push(event) });
    for (const [direction, bytes] of [
      [0, encodeStartup({ kind: 'request', crc: true })],
      [1, encodeStartup({ kind: 'reply', crc: true })],
      [
        0,
        encodeFpdus([untaggedUlpdu({ opcode: SEND, qn: 0, msn: 1 }, request(0, 1, 0n, 1))], {
          crc: true,
          markers: false,
        }),
      ],
    ] as const)
      decoder.push(direction, bytes, 0, bytes.length, 0);
    expect(events.some((event) => event.kind === 'fpdu' && event.nbd !== undefined)).toBe(false);
    expect(
      decode('message', [
        [0, request(0, 1, 0n, 1).subarray(0, 27)],
        [1, reply(1).subarray(0, 15)],
      ]).nbd,
    ).toEqual([]);
    expect(decode('direct', [[0, request(0, 1, 0n, 1)]]).nbd).toEqual([]);
    expect(
      decode('message', [
        [0, new Uint8Array(28)],
        [1, new Uint8Array(16)],
        [0, new Uint8Array(0)],
      ]).nbd,
    ).toEqual([]);
  });

  it('remembers a bounded number of requests, and gives the budget back', () => {
    const budget = new OctetBudget(1 << 22);
    const requests = Array.from({ length: 5000 }, (_, i) => [0, request(0, i, 0n, 1)] as const);
    const { decoder, connection } = decode('message', requests, { budget });
    expect(connection.summary.nbd!.waiting).toBe(4096);
    decoder.close(1);
    expect(budget.taken).toBe(0);
  });
});

describe.each(['message', 'direct'] as const)('our own server and client, %s mode', (mode) => {
  it('every request has its reply, with the right name', async () => {
    const events: InspectEvent[] = [];
    const layer = tap(realScheduler, (info) => {
      const decoder = new ConnectionDecoder({ emit: (event) => events.push(event) });
      return {
        open: () => undefined,
        data: (direction, bytes, start, end, time) =>
          decoder.push(direction === 'out' ? 0 : 1, bytes, start, end, (time - info.time) / 1000),
        end: () => undefined,
        close: (_error, time) => decoder.close((time - info.time) / 1000),
      };
    });
    const rnic = openRnic({ transport: wrapTransport(new TcpTransport(), layer) });
    const disk: BlockDevice = memoryDevice({ size: 1 << 20, shared: true });
    const server = createServer({ exports: { disk } });
    const { port } = await server.listenRdma({ host: '127.0.0.1', rnic: openRnic() });
    const remote = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, mode, rnic, depth: 4 });
    const data = new Uint8Array(9000).fill(7);
    await Promise.all([remote.write(data, 0n), remote.write(data, 20_000n)]);
    await remote.read(new Uint8Array(9000), 20_000n);
    await remote.flush!();
    await remote.close();
    await server.close();
    const startups = events.filter((event): event is DecodedStartup => event.kind === 'startup');
    expect(startups.map(({ nbd }) => nbd?.kind)).toEqual(['setup', 'grant']);
    const said = events
      .filter((event): event is DecodedFpdu => event.kind === 'fpdu')
      .flatMap(({ nbd }) => (nbd === undefined ? [] : [nbd]));
    const asked = said.filter(({ kind }) => kind === 'request');
    const answered = said.filter(({ kind }) => kind === 'reply');
    expect(asked.map(({ command }) => command)).toEqual(['WRITE', 'WRITE', 'READ', 'FLUSH', 'DISC']);
    expect(answered.map(({ command }) => command).toSorted()).toEqual(['FLUSH', 'READ', 'WRITE', 'WRITE']);
    expect(answered.every(({ error, unmatched, elapsed }) => !error && !unmatched && elapsed! >= 0)).toBe(
      true,
    );
    expect(asked.some(({ memory: where }) => where !== undefined)).toBe(mode === 'direct');
    expect(events.flatMap(({ problems }) => problems)).toEqual([]);
  });
});
