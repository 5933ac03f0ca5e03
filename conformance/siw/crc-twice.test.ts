/**
 * Only the fault that is meant is recognised, octet for octet: on a capture of it, and on made ones that are
 * almost it.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { pcapTap } from '../../src/transport/pcap-tap.ts';
import { castagnoli } from '../probe/crc.ts';
import { crcTwiceFault, crcTwiceIn } from './crc-twice.ts';

const REAL = new URL('../reports/captures/interop.rping-65535.crc-of-payload-twice.pcap', import.meta.url);
const WRITE_HEADER = [0xc1, 0x40, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9];
const SEND_HEADER = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
const TERMINATE_HEADER = [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
const PAYLOAD = [1, 2, 3, 4, 5, 6, 7];

const startup = (key: string): Uint8Array => Uint8Array.from([...Buffer.from(key), 0x40, 1, 0, 0]);

type Covering = 'once' | 'twice' | 'thrice' | 'header twice';

/** An FPDU, with a CRC over what `covering` says. */
function fpdu(
  header: readonly number[],
  payload: readonly number[],
  covering: Covering = 'once',
): Uint8Array {
  const front = [0, header.length + payload.length, ...header];
  const pad = Array.from({ length: (4 - ((front.length + payload.length) % 4)) % 4 }, () => 0);
  const covered = {
    once: [...front, ...payload, ...pad],
    twice: [...front, ...payload, ...payload, ...pad],
    thrice: [...front, ...payload, ...payload, ...payload, ...pad],
    'header twice': [...front, ...front, ...payload, ...pad],
  }[covering];
  const crc = castagnoli(Uint8Array.from(covered));
  return Uint8Array.from([
    ...front,
    ...payload,
    ...pad,
    crc & 0xff,
    (crc >>> 8) & 0xff,
    (crc >>> 16) & 0xff,
    crc >>> 24,
  ]);
}

const terminate = (code: number): Uint8Array => fpdu(TERMINATE_HEADER, [0x20, code, 0, 0]);

/** A capture of our client's connection: the peer's octets and our answers. */
function capture(inbound: readonly Uint8Array[], outbound: readonly Uint8Array[]): Uint8Array {
  const pieces: Uint8Array[] = [];
  const address = (port: number) => ({ address: '127.0.0.1', port, family: 'IPv4' as const });
  const info = {
    localAddress: address(1000),
    remoteAddress: address(2000),
    role: 'active' as const,
    time: 0,
  };
  const sink = pcapTap((bytes) => pieces.push(bytes.slice()))(info);
  sink.open(info);
  const show = (direction: 'in' | 'out', bytes: Uint8Array): void =>
    sink.data(direction, bytes, 0, bytes.length, 1);
  show('out', startup('MPA ID Req Frame'));
  show('in', startup('MPA ID Rep Frame'));
  for (const each of inbound) show('in', each);
  for (const each of outbound) show('out', each);
  sink.close(undefined, 2, 'out');
  return Buffer.concat(pieces);
}

describe('an FPDU whose CRC covers its payload twice', () => {
  it('is found in the capture of the report', () => {
    expect(crcTwiceFault(readFileSync(REAL), 'client')).toContain('CRC 0xb30e1e1b covers its payload twice');
    expect(crcTwiceFault(readFileSync(REAL), 'server')).toBeNull();
  });

  it.each([
    ['Write', WRITE_HEADER],
    ['Send', SEND_HEADER],
  ])('is found in a %s with a pad', (_name, header) => {
    expect(
      crcTwiceFault(
        capture([fpdu(header, PAYLOAD), fpdu(header, PAYLOAD, 'twice')], [terminate(2)]),
        'client',
      ),
    ).toContain('at octet');
  });

  it.each<readonly [string, readonly Uint8Array[], readonly Uint8Array[]]>([
    ['no fault at all', [fpdu(WRITE_HEADER, PAYLOAD)], [terminate(2)]],
    ['a CRC over the payload three times', [fpdu(WRITE_HEADER, PAYLOAD, 'thrice')], [terminate(2)]],
    ['a CRC over the header twice', [fpdu(WRITE_HEADER, PAYLOAD, 'header twice')], [terminate(2)]],
    ['a flipped octet of payload', [fpdu(WRITE_HEADER, PAYLOAD).with(18, 0x55)], [terminate(2)]],
    [
      'one of this kind and one of another',
      [fpdu(WRITE_HEADER, PAYLOAD, 'twice'), fpdu(WRITE_HEADER, PAYLOAD, 'thrice')],
      [terminate(2)],
    ],
    ['a Terminate for something else', [fpdu(WRITE_HEADER, PAYLOAD, 'twice')], [terminate(3)]],
    ['no Terminate', [fpdu(WRITE_HEADER, PAYLOAD, 'twice')], []],
    ['one that we sent ourselves', [], [fpdu(WRITE_HEADER, PAYLOAD, 'twice'), terminate(2)]],
    ['no payload to cover', [fpdu(WRITE_HEADER, [], 'twice')], [terminate(2)]],
  ])('does not excuse %s', (_what, inbound, outbound) => {
    expect(crcTwiceFault(capture(inbound, outbound), 'client')).toBeNull();
  });

  it('is not seen where there is no capture', () => {
    expect([crcTwiceIn('/nowhere', 'client'), crcTwiceIn(import.meta.filename, 'client')]).toEqual([
      null,
      null,
    ]);
  });
});
