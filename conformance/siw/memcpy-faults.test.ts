/**
 * The two effects of the copy of Linux 6.12 are recognised from the octets that crossed, and nothing that is
 * almost one of them: on made captures.
 */
import { describe, expect, it } from 'vitest';
import { pcapTap } from '../../src/transport/pcap-tap.ts';
import { castagnoli } from '../probe/crc.ts';
import type { Side } from './captured.ts';
import { grantTwiceFault, grantTwiceIn } from './grant-twice.ts';
import { lastOctetFirstFault, lastOctetFirstIn } from './last-octet-first.ts';

type Sent = readonly ['in' | 'out', Uint8Array];

const startup = (key: string): Uint8Array => Uint8Array.from([...Buffer.from(key), 0x40, 1, 0, 0]);

/** An FPDU with a Write of these octets. */
function write(stag: number, to: bigint, payload: readonly number[], flipped = 0): Uint8Array {
  const header = Buffer.alloc(16);
  header.writeUInt16BE(14 + payload.length);
  header.writeUInt16BE(0xc1_40, 2);
  header.writeUInt32BE(stag, 4);
  header.writeBigUInt64BE(to, 8);
  const covered = Buffer.concat([header, Buffer.from(payload), Buffer.alloc(-(16 + payload.length) & 3)]);
  const crc = Buffer.alloc(4);
  crc.writeUInt32LE((castagnoli(covered) ^ flipped) >>> 0);
  return Buffer.concat([covered, crc]);
}

/** A capture of our connection, as the client or the server. */
function capture(ours: Side, sent: readonly Sent[]): Uint8Array {
  const pieces: Uint8Array[] = [];
  const address = (port: number) => ({ address: '127.0.0.1', port, family: 'IPv4' as const });
  const info = {
    localAddress: address(1000),
    remoteAddress: address(2000),
    role: ours === 'client' ? ('active' as const) : ('passive' as const),
    time: 0,
  };
  const sink = pcapTap((bytes) => pieces.push(bytes.slice()))(info);
  sink.open(info);
  const ways = ours === 'client' ? (['out', 'in'] as const) : (['in', 'out'] as const);
  const frames: Sent[] = [
    [ways[0], startup('MPA ID Req Frame')],
    [ways[1], startup('MPA ID Rep Frame')],
  ];
  for (const [way, bytes] of [...frames, ...sent]) sink.data(way, bytes, 0, bytes.length, 1);
  sink.close(undefined, 2, 'out');
  return Buffer.concat(pieces);
}

describe('the last octet of a message before the others', () => {
  const SIZE = 64;
  const BASE = 0x7f00_0000_1000n;
  const counting = (message: number): number[] =>
    Array.from({ length: SIZE - 1 }, (_, i) => (message * (SIZE - 1) + i) & 0xff);

  /** Message number `n` of ours in two pieces, and one that is not verified in front of it. */
  function message(ours: Side, n: number, change: (octets: number[]) => void = () => undefined): Sent[] {
    const marker = n * 2 + (ours === 'client' ? 0 : 1);
    const octets = [...counting(n), marker];
    change(octets);
    return [
      ['out', write(7, BASE, [...counting(0), marker === 0 ? 0xff : marker - 1])],
      ['out', write(7, BASE, octets.slice(0, 40))],
      ['out', write(7, BASE + 40n, octets.slice(40))],
      ['in', write(9, 0x1000n, [1, 2, 3])],
    ];
  }
  const said = (octet: number): string =>
    `our client: status 1: closed; stock server: custom data verification failed byte ${octet}\n`;
  const sound = (ours: Side): Sent[] => [0, 1, 2].flatMap((n) => message(ours, n));

  it.each(['client', 'server'] as const)('is found where all octets on the wire are right: %s', (ours) => {
    const octets = capture(ours, sound(ours));
    expect(lastOctetFirstFault(octets, ours, said(70))).toContain('octet 70 was right on the wire');
    expect(lastOctetFirstFault(octets, ours, said(70))).toContain('message 1 of connection 1');
    expect(lastOctetFirstFault(octets, ours, said(0))).toContain('message 0 ');
    expect(lastOctetFirstFault(octets, ours, said(3 * (SIZE - 1) - 1))).toContain('message 2 ');
  });

  it.each<readonly [string, readonly Sent[], string]>([
    ['the stock side says nothing of an octet', sound('client'), 'stock server: status 1: reset'],
    [
      'it was our side that found a wrong one',
      sound('client'),
      'our client: data verification failed byte 7',
    ],
    ['the message was not sent', sound('client'), said(3 * (SIZE - 1))],
    [
      'an octet of it was wrong',
      [...message('client', 0), ...message('client', 1, (octets) => (octets[9]! ^= 1))],
      said(70),
    ],
    [
      'one before it was wrong',
      [...message('client', 0, (octets) => (octets[9]! ^= 1)), ...message('client', 1)],
      said(70),
    ],
    [
      'its last octet was sent before the others',
      (() => {
        const [spare, first, last, answer] = message('client', 1);
        return [...message('client', 0), spare!, last!, first!, answer!];
      })(),
      said(70),
    ],
    [
      'one of our FPDUs has a wrong CRC',
      [...sound('client'), ['out', write(7, BASE, [1], 1)] as const],
      said(70),
    ],
    ['we wrote nothing', [['in', write(9, 0x1000n, [1])] as const], said(70)],
  ])('does not excuse a run in which %s', (_what, sent, words) => {
    expect(lastOctetFirstFault(capture('client', sent), 'client', words)).toBeNull();
  });

  it('is not seen where there is no capture', () => {
    expect(lastOctetFirstIn('/nowhere', 'client', said(0))).toBeNull();
  });
});

describe('a grant that is taken twice', () => {
  const HALF = 64;
  const FIRST = 0x7f00_0000_2000n;
  const KEY = 0x0102_0304;
  const SAID = 'our client: status 1: a message announces 16 bytes where 0 were offered; stock server: ';

  const grant = (address: bigint, length = HALF): Sent => {
    const entry = Buffer.alloc(16);
    entry.writeBigUInt64LE(address);
    entry.writeUInt32LE(KEY, 8);
    entry.writeUInt32LE(length, 12);
    return ['out', write(5, 0x4000n, [...entry])];
  };
  const data = (address: bigint, octets: number, stag = KEY): Sent => [
    'in',
    write(
      stag,
      address,
      Array.from({ length: octets }, () => 1),
    ),
  ];
  const filled: readonly Sent[] = [grant(FIRST), data(FIRST, 40), data(FIRST + 40n, 24)];

  it('is found by a Write into a half that is full', () => {
    const fault = grantTwiceFault(capture('client', [...filled, data(FIRST, 16)]), 'client', SAID);
    expect(fault).toMatch(
      /the peer wrote 16 octets into a half of 64 that it had filled since its last update/,
    );
    const again = capture('client', [...filled, ...filled, data(FIRST, 16)]);
    expect(grantTwiceFault(again, 'client', SAID)).not.toBeNull();
  });

  it.each<readonly [string, readonly Sent[], string]>([
    ['our side complains of something else', [...filled, data(FIRST, 16)], 'stock server: reset'],
    ['some octets were offered', [...filled, data(FIRST, 16)], SAID.replace('where 0', 'where 8')],
    ['nothing follows the full half', filled, SAID],
    ['the half has been granted again', [...filled, grant(FIRST), data(FIRST, 16)], SAID],
    ['the half is not full', [grant(FIRST), data(FIRST, 40), data(FIRST, 16)], SAID],
    ['a place was passed over', [grant(FIRST), data(FIRST + 40n, 24), data(FIRST, 16)], SAID],
    ['the other half is written', [...filled, data(FIRST + 64n, 16)], SAID],
    ['another key is used', [...filled, data(FIRST, 16, 6)], SAID],
    ['nothing was granted', [data(FIRST, 64), data(FIRST, 16)], SAID],
    ['the Write has a wrong CRC', [...filled, ['in', write(KEY, FIRST, [1], 1)]], SAID],
  ])('does not excuse a run in which %s', (_what, sent, words) => {
    expect(grantTwiceFault(capture('client', sent), 'client', words)).toBeNull();
  });

  it('is not seen where there is no capture', () => {
    expect(grantTwiceIn('/nowhere', 'client', SAID)).toBeNull();
  });
});
