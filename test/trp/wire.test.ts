import { describe, expect, it } from 'vitest';
import {
  createTrpHeader,
  decodeTrpHeader,
  decodeTrpSetup,
  encodeTrpHeader,
  encodeTrpSetup,
  TRP_HEADER_OCTETS,
  TRP_OPCODE,
} from '../../src/trp/wire.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const octets = (text: string): Uint8Array => new Uint8Array(Buffer.from(text.replaceAll(' ', ''), 'hex'));

/** The datagrams of each opcode, as the page of the protocol lays them out. */
const GOLDEN = {
  acknowledgement: '00000007 00000003 0000',
  data: '00000007 00000003 0000 c140 00000001 0000000000001000 102030',
  fin: '80000001 00000002 4000',
  sack: '00000005 00000009 5000',
  request: '00000000 00000000 1000 0003 0010 0020 616263',
  accept: '00000000 00000000 2000 0000 0008 0004',
  reject: '00000000 00000000 3000 0001 0000 0000 ff',
};

describe('TRP headers', () => {
  const header = createTrpHeader();
  const decode = (text: string): boolean => {
    const bytes = octets(`5a5a ${text} 5a`);
    return decodeTrpHeader(header, bytes, 2, bytes.length - 1);
  };

  it('an acknowledgement, a FIN and a SACK are ten octets', () => {
    expect(hex(encodeTrpHeader(7, 3, TRP_OPCODE.DATA))).toBe(hex(octets(GOLDEN.acknowledgement)));
    expect(hex(encodeTrpHeader(0x8000_0001, 2, TRP_OPCODE.FIN))).toBe(hex(octets(GOLDEN.fin)));
    expect(hex(encodeTrpHeader(5, 9, TRP_OPCODE.SACK))).toBe(hex(octets(GOLDEN.sack)));
  });

  it('decode each golden datagram', () => {
    expect(decode(GOLDEN.data)).toBe(true);
    expect(header).toEqual({ psn: 7, ack: 3, opcode: TRP_OPCODE.DATA, bodyLength: 17 });
    expect(decode(GOLDEN.acknowledgement)).toBe(true);
    expect(header.bodyLength).toBe(0);
    expect(decode(GOLDEN.fin)).toBe(true);
    expect(header).toEqual({ psn: 0x8000_0001, ack: 2, opcode: TRP_OPCODE.FIN, bodyLength: 0 });
    expect(decode(GOLDEN.sack)).toBe(true);
    expect(header).toEqual({ psn: 5, ack: 9, opcode: TRP_OPCODE.SACK, bodyLength: 0 });
  });

  it('refuse short datagrams, unknown opcodes, reserved bits and bodies that do not belong', () => {
    for (let length = 0; length < TRP_HEADER_OCTETS; length++)
      expect(decodeTrpHeader(header, new Uint8Array(length), 0, length)).toBe(false);
    for (let bit = 0; bit < 12; bit++) {
      for (const opcode of Object.values(TRP_OPCODE)) {
        const bytes = new Uint8Array(20);
        bytes.set(encodeTrpHeader(0, 0, opcode | (1 << bit)));
        expect(decodeTrpHeader(header, bytes, 0, 10)).toBe(false);
        expect(decodeTrpHeader(header, bytes, 0, 20)).toBe(false);
      }
    }
    for (let opcode = 6; opcode < 16; opcode++)
      expect(decode(hex(encodeTrpHeader(0, 0, opcode << 12)))).toBe(false);
    expect(decode(`${GOLDEN.fin} 00`)).toBe(false);
    expect(decode(`${GOLDEN.sack} 00`)).toBe(false);
    expect(decode('00000000 00000000 1000 0000 0010')).toBe(false);
  });
});

describe('TRP set-up', () => {
  const { REQUEST, ACCEPT, REJECT } = TRP_OPCODE;

  it('request, accept and reject as the page lays them out', () => {
    const plain = { psn: 0, ack: 0, privateData: new Uint8Array(0) };
    const request = { ...plain, opcode: REQUEST, ird: 16, ord: 32, privateData: octets('616263') };
    expect(hex(encodeTrpSetup(request))).toBe(hex(octets(GOLDEN.request)));
    expect(hex(encodeTrpSetup({ ...plain, opcode: ACCEPT, ird: 8, ord: 4 }))).toBe(
      hex(octets(GOLDEN.accept)),
    );
    const reject = { ...plain, opcode: REJECT, ird: 0, ord: 0, privateData: octets('ff') };
    expect(hex(encodeTrpSetup(reject))).toBe(hex(octets(GOLDEN.reject)));
    const bytes = octets(GOLDEN.request);
    expect(decodeTrpSetup(bytes, 0, bytes.length)).toEqual(request);
  });

  it('first sequence numbers stand in the header', () => {
    const accept = { opcode: ACCEPT, psn: 0x8000_0001, ack: 0xffff_ffff, ird: 1, ord: 65_535 };
    const bytes = encodeTrpSetup({ ...accept, privateData: new Uint8Array(512) });
    expect(decodeTrpSetup(bytes, 0, bytes.length)).toMatchObject(accept);
  });

  it('refuse a length that disagrees, more than 512 octets and other opcodes', () => {
    const setup = { psn: 0, ack: 0, ird: 1, ord: 1, privateData: new Uint8Array(8) };
    const bytes = encodeTrpSetup({ ...setup, opcode: REJECT });
    for (let end = 0; end < bytes.length; end++) expect(decodeTrpSetup(bytes, 0, end)).toBeNull();
    expect(decodeTrpSetup(Uint8Array.of(...bytes, 0), 0, bytes.length + 1)).toBeNull();
    const long = encodeTrpSetup({ ...setup, opcode: REQUEST, privateData: new Uint8Array(513) });
    expect(decodeTrpSetup(long, 0, long.length)).toBeNull();
    const data = encodeTrpSetup({ ...setup, opcode: TRP_OPCODE.DATA });
    expect(decodeTrpSetup(data, 0, data.length)).toBeNull();
  });
});
