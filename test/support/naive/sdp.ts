/**
 * A second codec of SDP messages, written from tables of fields and nothing of src/: slow, plain, and the
 * same for every message. Hello and HelloAck are whole tables; others are the header and their extension.
 */

/** Name and bits of each field, in order; big-endian. Names that begin with `_` are reserved. */
type Fields = readonly (readonly [name: string, bits: number])[];

const HEADER: Fields = [
  ['mid', 8],
  ['flags', 8],
  ['bufs', 16],
  ['length', 32],
  ['mseq', 32],
  ['mseqAck', 32],
];
const ADVERT: Fields = [
  ['size', 32],
  ['stag', 32],
  ['to', 64],
];

/** Extended headers by message id. */
const EXTENSIONS: ReadonlyMap<number, Fields> = new Map<number, Fields>([
  [
    0x00,
    [
      ['major', 4],
      ['minor', 4],
      ['ipVersion', 4],
      ['capabilities', 4],
      ['_1', 8],
      ['maxAdverts', 8],
      ['desiredSize', 32],
      ['localSize', 32],
      ['port', 16],
      ['_2', 16],
      ['source', 128],
      ['destination', 128],
      ['_3', 16],
      ['extendedAdverts', 16],
    ],
  ],
  [
    0x01,
    [
      ['major', 4],
      ['minor', 4],
      ['ipVersion', 4],
      ['capabilities', 4],
      ['_1', 8],
      ['maxAdverts', 8],
      ['localSize', 32],
    ],
  ],
  [0x02, []],
  [0x03, []],
  [0x04, []],
  [0x05, [['count', 32]]],
  [0x06, [['count', 32]]],
  [
    0x07,
    [
      ['half', 1],
      ['mode', 3],
      ['_1', 28],
    ],
  ],
  [0x08, []],
  [0x09, []],
  [0x0a, []],
  [0x0b, [['count', 32]]],
  [0x0c, [['count', 32]]],
  [0x0d, [['service', 64]]],
  [0x0e, []],
  [
    0x40,
    [
      ['stag', 32],
      ['to', 64],
      ['slots', 32],
      ['_1', 32],
    ],
  ],
  [0x41, [...ADVERT, ['slot', 32], ['generation', 32]]],
  [0xfd, [...ADVERT, ['nonDiscards', 32]]],
  [0xfe, ADVERT],
  [0xff, []],
]);

type NaiveMessage = Record<string, bigint>;

/** Encode the fields that are given, others as 0, with payload behind. `length` is filled in if absent. */
export function encodeNaive(message: NaiveMessage, payload: Uint8Array = new Uint8Array()): Buffer {
  const fields = [...HEADER, ...EXTENSIONS.get(Number(message['mid']))!];
  const total = fields.reduce((sum, [, bits]) => sum + bits, 0) / 8 + payload.length;
  let text = '';
  for (const [name, bits] of fields) {
    const value = message[name] ?? (name === 'length' ? BigInt(total) : 0n);
    text += value.toString(2).padStart(bits, '0');
  }
  const octets = text.match(/.{8}/g)!.map((octet) => Number.parseInt(octet, 2));
  return Buffer.concat([Buffer.from(octets), payload]);
}

export function decodeNaive(bytes: Uint8Array): NaiveMessage {
  const bits = [...bytes].map((octet) => octet.toString(2).padStart(8, '0')).join('');
  let at = 0;
  const message: NaiveMessage = {};
  for (const [name, width] of [...HEADER, ...EXTENSIONS.get(bytes[0]!)!]) {
    if (!name.startsWith('_')) message[name] = BigInt(`0b${bits.slice(at, at + width)}`);
    at += width;
  }
  return message;
}
