// Markers, sent and received: RFC 5044 4.2, 4.3, 4.4, 5.2, erratum 1427. The probe's reader compares every
// marker of a peer with what its position calls for; the cases here bring all positions about.

import type { Connection } from '../probe/connection.ts';
import { Deviation, Unsuited, check, same, sameBytes } from '../probe/deviation.ts';
import type { FpduFaults, ReceivedFpdu } from '../probe/fpdu.ts';
import { tagged } from '../probe/messages.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { NORMAL, describeOutcomes, terms } from '../probe/trial.ts';
import type { Trial } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { pattern } from '../profiles/protocol.ts';
import { AS_INITIATOR, established, range } from './define.ts';
import type { Case } from './define.ts';

const ASKED = { markers: true } as const;

/** Take the peer's Sends of these lengths, FPDU by FPDU. */
async function sendsOf(
  trial: Trial,
  connection: Connection,
  lengths: readonly number[],
): Promise<ReceivedFpdu[]> {
  for (const length of lengths) await trial.tester.post({ kind: 'send', length });
  const fpdus: ReceivedFpdu[] = [];
  for (const length of lengths) {
    let got = 0;
    for (let last = false; !last; ) {
      const incoming = await connection.receive();
      if (incoming.kind !== 'segment') throw new Deviation('a Send with markers', incoming.kind);
      fpdus.push(incoming.fpdu);
      sameBytes(
        'payload',
        incoming.segment.payload,
        pattern(length).subarray(got, got + incoming.segment.payload.length),
      );
      got += incoming.segment.payload.length;
      ({ last } = incoming.segment);
    }
    same('octets of the message', got, length);
  }
  return fpdus;
}

/**
 * The examples of vectors/markers.json: what the peer sends first, with the positions and pointers its
 * markers must have.
 */
function example(
  id: string,
  title: string,
  requirements: string,
  lengths: readonly number[],
  wanted: readonly (readonly [number, number])[],
): Case {
  return established(
    `mpa.markers.tx-${id}`,
    title,
    requirements,
    wanted.map(([at, pointer]) => `FPDUPTR ${pointer} at ${at}`).join(', '),
    async (trial, connection) => {
      // Not by an RTR message, whose kind and answer the peer chooses: the Sends are to be its first octets.
      const fpdus = await sendsOf(trial, connection, lengths);
      const markers = fpdus.flatMap((fpdu) => fpdu.markers);
      const shown = markers.map((m) => `FPDUPTR ${m.pointer} at ${m.position}`).join(', ');
      same('markers', shown, wanted.map(([at, pointer]) => `FPDUPTR ${pointer} at ${at}`).join(', '));
    },
    { roles: AS_INITIATOR, setup: { emss: 8960 }, startup: { ...ASKED, peerToPeer: false } },
  );
}

const tx: Case[] = [
  example(
    'first',
    'The first marker stands before the first FPDU (example M5)',
    'MPA-059 MPA-060 MPA-094',
    [5],
    [[0, 0]],
  ),
  example(
    'inside',
    'A marker inside the header of the second FPDU (example M1)',
    'MPA-095 MPA-096',
    [464, 20],
    [
      [0, 0],
      [0x200, 0x14],
    ],
  ),
  example(
    'between',
    'A marker exactly between two FPDUs (example M2)',
    'MPA-097 MPA-070',
    [484, 5],
    [
      [0, 0],
      [0x200, 0],
    ],
  ),
  example(
    'before-crc',
    'A marker between PAD and CRC (example M3)',
    'MPA-099 MPA-070',
    [487, 5],
    [
      [0, 0],
      [0x200, 0x1fc],
    ],
  ),
  example(
    'several',
    'Several markers in one FPDU (example M4)',
    'MPA-098 MPA-096',
    [1100],
    [
      [0, 0],
      [0x200, 0x1fc],
      [0x400, 0x3fc],
    ],
  ),
  established(
    'mpa.markers.tx-all-alignments',
    'Sends of 0 to 515 octets, so that markers fall on every place',
    'MPA-095 MPA-096 MPA-097 MPA-098 MPA-099 MPA-100 MPA-070',
    'every marker as its position calls for',
    async (trial, connection) => {
      const lengths = range(130).map((i) => (i * 37) % 516);
      const fpdus = await sendsOf(trial, connection, lengths);
      const markers = fpdus.flatMap((fpdu) => fpdu.markers);
      check(markers.length > 50, 'markers', `${markers.length}`);
    },
    { needs: ['tester'], startup: ASKED },
  ),
  established(
    'mpa.markers.tx-read-response',
    'A Read Response of 20000 octets with markers',
    'MPA-060 MPA-095 MPA-096',
    'the octets of the region, markers aside',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 20_000 });
      sameBytes('octets read', await connection.read(region.stag, region.to, 20_000), pattern(20_000));
    },
    { needs: ['tester'], startup: ASKED },
  ),
  established(
    'mpa.markers.tx-not-asked',
    'M=0 by the probe',
    'MPA-059',
    'no markers',
    async (trial, connection) => {
      const fpdus = await sendsOf(trial, connection, [600, 5]);
      same('markers', fpdus.flatMap((fpdu) => fpdu.markers).length, 0);
    },
    { setup: { markers: true } },
  ),
  established(
    'mpa.markers.both-ways',
    'M=1 by both sides',
    'MPA-059 MPA-060 MPA-062',
    'markers both ways',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 3000 });
      const data = trial.random.octets(3000);
      connection.send(connection.makeWrite(region.stag, region.to, data));
      sameBytes('memory of the peer', await connection.read(region.stag, region.to, 3000), data);
    },
    { setup: { markers: true }, startup: ASKED },
  ),
];

/** MPA-061: a receiver need not ask for markers, whatever its set-up says. */
function askedFor(connection: Connection): void {
  if (!connection.writer.markers) throw new Unsuited('the peer does not ask for markers');
}

/** The peer asked for markers: the probe writes them, with one thing wrong in those of one FPDU. */
function received(
  id: string,
  title: string,
  requirements: string,
  faults: FpduFaults,
  outcome: 'placed' | 'marker' | 'crc',
): Case {
  const outcomes = outcome === 'crc' ? terms(TERM.MPA_CRC) : [...terms(TERM.MPA_MARKER), NORMAL];
  const expected = outcome === 'placed' ? 'the Write is placed' : describeOutcomes(outcomes);
  return established(
    `mpa.markers.rx-${id}`,
    title,
    requirements,
    expected,
    async (trial, connection) => {
      askedFor(connection);
      const region = await trial.tester.region({ length: 700 });
      const data = trial.random.octets(700);
      connection.send(connection.makeWrite(region.stag, region.to, data), faults);
      if (outcome === 'placed')
        sameBytes('memory of the peer', await connection.read(region.stag, region.to, 700), data);
      else await trial.expect(connection, outcomes);
    },
    { setup: { markers: true } },
  );
}

const inside = (change: (pointer: number) => number): FpduFaults => ({
  marker: ({ pointer, reserved }) => ({ pointer: pointer === 0 ? 0 : change(pointer), reserved }),
});

const rx: Case[] = [
  received('good', 'A Write with markers as they should be', 'MPA-062 MPA-095', {}, 'placed'),
  ...[1, 2, 3].map((bits) =>
    received(
      `low-bits-${bits}`,
      `FPDUPTR with low bits ${bits}, CRC over the octets as sent`,
      'MPA-101',
      inside((p) => p | bits),
      'placed',
    ),
  ),
  ...[0x0001, 0x8000, 0xffff].map((reserved) =>
    received(
      `reserved-${reserved.toString(16)}`,
      `Markers whose reserved half is 0x${reserved.toString(16)}`,
      'MPA-102',
      { marker: ({ pointer }) => ({ pointer, reserved }) },
      'placed',
    ),
  ),
  received(
    'pointer-plus-4',
    'FPDUPTR 4 too large',
    'MPA-104',
    inside((p) => p + 4),
    'marker',
  ),
  received(
    'pointer-minus-4',
    'FPDUPTR 4 too small',
    'MPA-104',
    inside((p) => p - 4),
    'marker',
  ),
  received(
    'pointer-plus-512',
    'FPDUPTR 512 too large',
    'MPA-104',
    inside((p) => p + 512),
    'marker',
  ),
  received(
    'pointer-zero-inside',
    'FPDUPTR 0 inside an FPDU',
    'MPA-104',
    inside(() => 0),
    'marker',
  ),
  received(
    'crc-without-markers',
    'A CRC that leaves markers out',
    'MPA-070',
    { crc: 'without-markers' },
    'crc',
  ),
  established(
    'mpa.markers.rx-fpdu-ends-at-marker',
    'A Send whose FPDU ends where a marker would be due',
    'MPA-106',
    'delivered without further octets',
    async (trial, connection) => {
      askedFor(connection);
      await trial.tester.receive(1, 1024);
      const at = connection.writer.position % 512;
      const octets = 512 - at - (at === 0 ? 4 : 0);
      const room = octets >= 32 ? octets : octets + 508;
      // A filler brings the stream far enough when less than a Send fits before the next marker.
      connection.send(connection.makeSend(pattern(room - 24 - (room > 512 ? 4 : 0))));
      same('position after the FPDU, modulo 512', connection.writer.position % 512, 0);
      same('completions', (await trial.tester.received(1)).length, 1);
    },
    { setup: { markers: true } },
  ),
  established(
    'mpa.markers.rx-between',
    'A marker between two FPDUs with a pointer that is not 0',
    'MPA-104 MPA-097',
    describeOutcomes([...terms(TERM.MPA_MARKER), NORMAL]),
    async (trial, connection) => {
      askedFor(connection);
      const at = connection.writer.position % 512;
      const octets = 512 - at - (at === 0 ? 4 : 0);
      connection.send(connection.makeSend(pattern(octets - 24)));
      connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n }), {
        marker: () => ({ pointer: 0x100, reserved: 0 }),
      });
      await trial.expect(connection, [...terms(TERM.MPA_MARKER), NORMAL]);
    },
    { setup: { markers: true } },
  ),
  ...[1, 2, 3, 4, 5].map((n) =>
    established(
      `mpa.markers.rx-cut-${n}`,
      `FPDUs with markers cut ${n} octets after the start of a marker`,
      'MPA-086 MPA-062',
      'the Write is placed',
      async (trial, connection) => {
        askedFor(connection);
        const region = await trial.tester.region({ length: 1500 });
        const data = trial.random.octets(1500);
        const from = connection.writer.position;
        const fpdu = connection.encode(connection.makeWrite(region.stag, region.to, data));
        const cuts = [512, 1024, 1536].map((position) => position - from + n).filter((cut) => cut > 0);
        await connection.writeCut(fpdu, cuts);
        sameBytes('memory of the peer', await connection.read(region.stag, region.to, 1500), data);
      },
      { setup: { markers: true } },
    ),
  ),
];

export const mpaMarkers: readonly Case[] = [...tx, ...rx];
