// Rules that need more than one FPDU: RFC 5041 4.3 and 5.2, RFC 5040 4.4, 5.4 and 6.1, RFC 7306 5.2, RFC 6581
// 9.2.

import { describe, expect, it } from 'vitest';
import { ConnectionDecoder } from '../../src/inspect/decode/connection-decoder.ts';
import type { Direction, InspectEvent } from '../../src/inspect/decode/types.ts';
import {
  encodeAtomicRequest,
  encodeFpdus,
  encodeReadRequest,
  encodeStartup,
  encodeTerminate,
  taggedUlpdu,
  untaggedUlpdu,
} from '../support/naive/encoder.ts';
import { octetsOf } from '../support/naive/octets.ts';
import { bytesOf, problemIds } from './support.ts';

type Step = readonly [Direction, Uint8Array];
const ENHANCED = { a: false, b: false, c: false, d: false, ird: 2, ord: 2 };

/** Problems of a connection whose FPDUs are these ULPDUs in this order. */
function judge(steps: readonly Step[], enhanced?: typeof ENHANCED): string[] {
  const events: InspectEvent[] = [];
  const decoder = new ConnectionDecoder({ emit: (event) => events.push(event) });
  const push = (direction: Direction, octets: Uint8Array): void =>
    decoder.push(direction, octets, 0, octets.length, 0);
  const more = enhanced === undefined ? {} : { revision: 2, enhanced };
  push(0, encodeStartup({ kind: 'request', ...more }));
  push(1, encodeStartup({ kind: 'reply', ...more }));
  for (const [direction, ulpdu] of steps)
    push(direction, encodeFpdus([ulpdu], { markers: false, crc: true }));
  decoder.close(0);
  return problemIds(events);
}

const send = (msn: number, more: object = {}, length = 8): Uint8Array =>
  untaggedUlpdu({ opcode: 3, qn: 0, msn, ...more }, bytesOf(length));
const write = (to: bigint, more: object = {}, length = 8): Uint8Array =>
  taggedUlpdu({ opcode: 0, stag: 9, to, ...more }, bytesOf(length));
const read = (msn: number, size = 16, sinkStag = 5): Uint8Array =>
  untaggedUlpdu(
    { opcode: 1, qn: 1, msn },
    encodeReadRequest({ sinkStag, sinkTo: 64n, size, sourceStag: 6, sourceTo: 0n }),
  );
const answer = (to: bigint, length: number, more: object = {}): Uint8Array =>
  taggedUlpdu({ opcode: 2, stag: 5, to, ...more }, bytesOf(length));
const terminate = (more: object = {}): Uint8Array =>
  untaggedUlpdu(
    { opcode: 7, qn: 2, msn: 1, ...more },
    encodeTerminate({ layer: 2, etype: 0, code: 2, m: false, d: false, r: false, reserved: 0 }),
  );
const atomic = (msn: number, requestId: number, more: object = {}): Uint8Array =>
  untaggedUlpdu(
    { opcode: 10, qn: 1, msn },
    encodeAtomicRequest({
      reserved: 0,
      aopcode: 0,
      requestId,
      remoteStag: 6,
      remoteTo: 8n,
      addOrSwap: 1n,
      addOrSwapMask: 0n,
      compare: 0n,
      compareMask: 0xffff_ffff_ffff_ffffn,
      ...more,
    }),
  );
const atomicAnswer = (msn: number, requestId: number): Uint8Array =>
  untaggedUlpdu({ opcode: 11, qn: 3, msn }, Uint8Array.from([...octetsOf(requestId, 4), ...octetsOf(0n, 8)]));

const CASES: readonly (readonly [string, readonly Step[], readonly string[]])[] = [
  [
    'queues count for themselves (DDP-014, DDP-016)',
    [
      [0, send(1)],
      [0, read(1)],
      [0, send(2)],
      [1, answer(64n, 16)],
      [1, send(1)],
    ],
    [],
  ],
  [
    'a message number left out (DDP-015)',
    [
      [0, send(1)],
      [0, send(3)],
      [0, send(4)],
    ],
    ['DDP-015'],
  ],
  ['the first number is not 1 (DDP-014)', [[0, send(0)]], ['DDP-015']],
  [
    'an offset left out (DDP-017)',
    [
      [0, send(1, { last: false })],
      [0, send(1, { mo: 9 })],
    ],
    ['DDP-017'],
  ],
  ['a message that begins late (DDP-017)', [[0, send(1, { mo: 4 })]], ['DDP-017']],
  [
    'a message without end (DDP-002)',
    [
      [0, send(1, { last: false })],
      [0, send(2)],
    ],
    ['DDP-002', 'DDP-015'],
  ],
  [
    'an opcode that changes (DDP-009)',
    [
      [0, send(1, { last: false })],
      [0, send(1, { mo: 8, opcode: 5 })],
    ],
    ['DDP-009'],
  ],
  [
    'a tagged offset left out (DDP-018)',
    [
      [0, write(0n, { last: false })],
      [0, write(12n)],
    ],
    ['DDP-018'],
  ],
  [
    'an STag that changes (DDP-012)',
    [
      [0, write(0n, { last: false })],
      [0, write(8n, { stag: 10 })],
    ],
    ['DDP-012'],
  ],
  [
    'a Send between two segments of a Write is lawful (DDP-037)',
    [
      [0, write(0n, { last: false })],
      [0, send(1)],
      [0, write(8n)],
    ],
    [],
  ],
  [
    'a Read Response between two segments of a Write (DDP-036)',
    [
      [0, write(0n, { last: false })],
      [1, read(1, 8)],
      [0, answer(64n, 8)],
      [0, write(8n)],
    ],
    ['DDP-036'],
  ],
  [
    'a Read Request inside a Send (DDP-036)',
    [
      [0, send(1, { last: false })],
      [0, read(1)],
    ],
    ['DDP-036'],
  ],
  [
    'an empty segment that is not the last (DDP-025)',
    [
      [0, send(1, { last: false }, 0)],
      [0, send(1)],
    ],
    ['DDP-025'],
  ],
  ['DDP version 2 (DDP-006)', [[0, send(1, { dv: 2 })]], ['DDP-006']],
  ['reserved DDP bits (DDP-004)', [[0, send(1, { ddpReserved: 1 })]], ['DDP-004']],
  ['RDMAP version 0 (RDMAP-001)', [[0, send(1, { rv: 0 })]], ['RDMAP-001']],
  ['reserved RDMAP bits (RDMAP-002)', [[0, send(1, { rdmapReserved: 1 })]], ['RDMAP-002']],
  ['opcode 13 (RDMAP-005)', [[0, send(1, { opcode: 13 })]], ['RDMAP-005']],
  ['a tagged Send (RDMAP-006)', [[0, write(0n, { opcode: 3 })]], ['RDMAP-006']],
  ['a Send on queue 1 (RDMAP-008)', [[0, send(1, { qn: 1 })]], ['RDMAP-008']],
  ['an Invalidate STag in a plain Send (RDMAP-010)', [[0, send(1, { invalidateStag: 4 })]], ['RDMAP-010']],
  [
    'reads answered in segments, in order (RDMAP-030, RDMAP-031)',
    [
      [0, read(1, 16)],
      [0, read(2, 0)],
      [1, answer(64n, 8, { last: false })],
      [1, answer(72n, 8)],
      [1, answer(64n, 0)],
    ],
    [],
  ],
  [
    'an answer to another place (RDMAP-030)',
    [
      [0, read(1)],
      [1, answer(65n, 16)],
    ],
    ['RDMAP-030'],
  ],
  [
    'an answer to another STag (RDMAP-030)',
    [
      [0, read(1)],
      [1, answer(64n, 16, { stag: 8 })],
    ],
    ['RDMAP-030'],
  ],
  [
    'an answer that is too short (RDMAP-031)',
    [
      [0, read(1)],
      [1, answer(64n, 15)],
    ],
    ['RDMAP-031'],
  ],
  [
    'an answer that is too long (RDMAP-031)',
    [
      [0, read(1)],
      [1, answer(64n, 17)],
    ],
    ['RDMAP-031'],
  ],
  [
    'all octets, but no L (RDMAP-031)',
    [
      [0, read(1)],
      [1, answer(64n, 16, { last: false })],
    ],
    ['RDMAP-031'],
  ],
  [
    'an answer to nothing (RDMAP-049)',
    [
      [0, send(1)],
      [1, answer(64n, 16)],
    ],
    ['RDMAP-049'],
  ],
  [
    'a Read Request of 29 octets (RDMAP-015)',
    [[0, untaggedUlpdu({ opcode: 1, qn: 1, msn: 1 }, bytesOf(29))]],
    ['RDMAP-015'],
  ],
  ['a Terminate with MSN 2 (RDMAP-076)', [[0, terminate({ msn: 2 })]], ['RDMAP-076']],
  [
    'a Send after the Terminate (RDMAP-077)',
    [
      [0, terminate()],
      [0, send(1)],
    ],
    ['RDMAP-077'],
  ],
  [
    'a Terminate cuts a message short lawfully (RDMAP-076)',
    [
      [0, send(1, { last: false })],
      [0, terminate()],
    ],
    [],
  ],
  [
    'the responder speaks first (MPA-028)',
    [
      [1, send(1)],
      [0, send(1)],
    ],
    ['MPA-028'],
  ],
  [
    'atomics answered in order (EXT-022, EXT-030)',
    [
      [0, atomic(1, 7)],
      [0, atomic(2, 8)],
      [1, atomicAnswer(1, 7)],
      [1, atomicAnswer(2, 8)],
    ],
    [],
  ],
  [
    'atomics answered out of order (EXT-041)',
    [
      [0, atomic(1, 7)],
      [0, atomic(2, 8)],
      [1, atomicAnswer(1, 8)],
      [1, atomicAnswer(2, 7)],
    ],
    ['EXT-041'],
  ],
  [
    'another Request Identifier (EXT-030)',
    [
      [0, atomic(1, 7)],
      [1, atomicAnswer(1, 9)],
    ],
    ['EXT-030'],
  ],
  [
    'an atomic answer to nothing (EXT-049)',
    [
      [0, send(1)],
      [1, atomicAnswer(1, 9)],
    ],
    ['EXT-049'],
  ],
  ['an atomic on an odd place (EXT-032)', [[0, atomic(1, 7, { remoteTo: 4n })]], ['EXT-032']],
  ['AOpCode 3 (EXT-034)', [[0, atomic(1, 7, { aopcode: 3 })]], ['EXT-034']],
  [
    'reserved bits and a FetchAdd that compares (EXT-023, EXT-024)',
    [[0, atomic(1, 7, { reserved: 1, compare: 1n })]],
    ['EXT-023', 'EXT-024'],
  ],
  [
    'Immediate Data of 7 octets (EXT-009)',
    [[0, untaggedUlpdu({ opcode: 8, qn: 0, msn: 1 }, bytesOf(7))]],
    ['EXT-009'],
  ],
];

describe('one connection', () => {
  it.each(CASES)('%s', (_title, steps, ids) => {
    expect(judge(steps)).toEqual(ids);
  });

  it('counts outstanding requests against the IRD of the peer (RDMAP-051, EXT-048)', () => {
    expect(
      judge(
        [
          [0, read(1)],
          [0, read(2)],
        ],
        ENHANCED,
      ),
    ).toEqual([]);
    expect(
      judge(
        [
          [0, read(1)],
          [0, read(2)],
          [0, read(3)],
        ],
        ENHANCED,
      ),
    ).toEqual(['RDMAP-051']);
    expect(
      judge(
        [
          [0, read(1)],
          [0, atomic(2, 1)],
          [0, atomic(3, 2)],
        ],
        ENHANCED,
      ),
    ).toEqual(['EXT-048']);
    expect(
      judge(
        [
          [0, read(1)],
          [0, read(2)],
          [1, answer(64n, 16)],
          [0, read(3)],
        ],
        ENHANCED,
      ),
    ).toEqual([]);
  });

  it('the first FPDU is a negotiated RTR message (ENH-038)', () => {
    const peer = { ...ENHANCED, a: true, c: true };
    expect(
      judge(
        [
          [0, write(0n, {}, 0)],
          [1, send(1)],
        ],
        peer,
      ),
    ).toEqual([]);
    expect(judge([[0, send(1, {}, 0)]], peer)).toEqual(['ENH-038']);
    expect(judge([[0, write(0n, {}, 1)]], peer)).toEqual(['ENH-038']);
  });

  it('Terminates that end early or include what they may not (RDMAP-084, RDMAP-085)', () => {
    const odd = (fields: object): string[] =>
      judge([
        [
          0,
          untaggedUlpdu(
            { opcode: 7, qn: 2, msn: 1 },
            encodeTerminate({
              layer: 1,
              etype: 1,
              code: 0,
              m: true,
              d: true,
              r: false,
              reserved: 0,
              ...fields,
            }),
          ),
        ],
      ]);
    expect(odd({})).toEqual(['RDMAP-084']);
    expect(odd({ layer: 2, etype: 0, m: true, d: false, segmentLength: 9 })).toEqual(['RDMAP-085']);
    expect(odd({ m: false, d: false, reserved: 1 })).toEqual(['RDMAP-082']);
  });

  it('remembers a bounded number of requests', () => {
    const steps: Step[] = Array.from({ length: 40 }, (_, i) => [0, read(i + 1)]);
    expect(judge(steps)).toEqual([]);
  });
});
