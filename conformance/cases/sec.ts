// Security: what one stream can do to others, and what guessing costs. RFC 5042 6; RFC 5040 8.1.1.

import { pause } from '../probe/connection.ts';
import { check, same, sameBytes } from '../probe/deviation.ts';
import { tagged } from '../probe/messages.ts';
import { describeOutcomes } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { pattern } from '../profiles/protocol.ts';
import { WRITE_STAG } from './codes.ts';
import { AS_INITIATOR, established, range, scripted } from './define.ts';
import type { Case } from './define.ts';
import { secondStream } from './rdmap-headers.ts';

const FOUR = Uint8Array.of(1, 2, 3, 4);

export const sec: readonly Case[] = [
  established(
    'sec.guess.costs-the-connection',
    'Guess an STag, then use a good one',
    'SEC-034 DDP-054',
    `${describeOutcomes(WRITE_STAG)}; the good one can no longer be used`,
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, fill: 0xee });
      const guess = connection.makeWrite((region.stag + 0x100) >>> 0, region.to, FOUR);
      connection.sendTogether([guess, connection.makeWrite(region.stag, region.to, FOUR)]);
      await trial.expect(connection, WRITE_STAG, guess);
      sameBytes('memory', await trial.tester.peek(region), new Uint8Array(64).fill(0xee));
    },
    { needs: ['tester'] },
  ),
  scripted(
    'sec.guess.stags-are-spread',
    'Sixty-four regions',
    'SEC-009 SEC-010',
    'no arithmetic progression, high bits used',
    async (trial) => {
      const stags: number[] = [];
      for (let i = 0; i < 64; i++) stags.push((await trial.tester.region({ length: 8 })).stag >>> 8);
      const steps = new Set(stags.slice(1).map((stag, i) => stag - stags[i]!));
      check(steps.size > 55, 'steps that differ', `${steps.size} different steps among 63`);
      check(
        stags.some((stag) => stag > 0x0080_0000) && stags.some((stag) => stag < 0x0080_0000),
        'indices over the whole range',
        'one half only',
      );
      same('different STags', new Set(stags).size, 64);
    },
    { needs: ['tester'] },
  ),
  established(
    'sec.streams.error-stays-on-its-stream',
    'A bad Write on one stream beside another',
    'SEC-014 SEC-032',
    'the other stream works on',
    async (trial, connection) => {
      const other = await secondStream(trial);
      connection.send(connection.makeWrite(0x0707_0700, 0n, FOUR));
      await trial.expect(connection, WRITE_STAG);
      await other.ping();
    },
    { needs: ['tester'] },
  ),
  established(
    'sec.streams.excess-reads-stay-on-their-stream',
    'Twelve Reads of 1 MiB on a stream that may have 2, beside another',
    'SEC-014 SEC-026 RDMAP-052',
    'the other stream works on',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 1_048_576 });
      const other = await secondStream(trial);
      connection.channel.pause();
      connection.sendTogether(
        range(12).map((i) =>
          connection.makeRead(
            { sinkStag: i, sinkTo: 0n, size: 1_048_576, sourceStag: region.stag, sourceTo: region.to },
            true,
            true,
          ),
        ),
      );
      await pause(trial.limits.quiet);
      await other.ping();
      connection.channel.resume();
      const { terminate, end } = await connection.reaction();
      check(terminate !== null || end !== null, 'the end of the offending stream', 'an open connection');
      await other.ping();
    },
    { setup: { ird: 2, maxIrd: 2 }, startup: { ord: 2 } },
  ),
  established(
    'sec.streams.stag-of-both',
    'Two streams of one protection domain use one STag',
    'SEC-002 DDP-067',
    'both may',
    async (trial, connection) => {
      const region = await trial.tester.region({ length: 64, fill: 0 });
      const other = await secondStream(trial);
      connection.send(connection.makeWrite(region.stag, region.to, FOUR));
      await connection.ping();
      other.send(other.makeWrite(region.stag, region.to + 4n, FOUR));
      await other.ping();
      sameBytes('memory', await trial.tester.peek(region, 0, 8), Uint8Array.of(1, 2, 3, 4, 1, 2, 3, 4));
    },
    { needs: ['tester'] },
  ),
  established(
    'sec.flood.empty-messages',
    'Five thousand zero-length Writes beside another stream',
    'SEC-032 DDP-026',
    'both streams work on',
    async (trial, connection) => {
      const other = await secondStream(trial);
      for (let i = 0; i < 50; i++)
        connection.sendTogether(
          range(100).map((j) => tagged({ opcode: OPCODE.RDMA_WRITE, stag: i * 100 + j, to: 0n })),
        );
      await other.ping();
      await connection.ping();
    },
    { needs: ['tester'] },
  ),
  scripted(
    'sec.flood.silent-connections',
    'Sixty silent connections',
    'SEC-033 MPA-007',
    'a Request on a new one is still answered',
    async (trial) => {
      for (let i = 0; i < 60; i++) await trial.connect();
      const connection = await trial.establish();
      await connection.ping();
    },
    { roles: AS_INITIATOR },
  ),
  established(
    'sec.zero-length.whatever-the-rights',
    'Zero-length Reads and Writes to regions without the rights',
    'SEC-016 SEC-017 DDP-026 RDMAP-032',
    'normal operation',
    async (trial, connection) => {
      for (const access of [['local-write', 'remote-write'], ['remote-read'], ['local-write']] as const) {
        const region = await trial.tester.region({ length: 64, access: [...access] });
        connection.send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: region.stag, to: region.to }));
        connection.send(
          connection.makeRead({
            sinkStag: 1,
            sinkTo: 1n,
            size: 0,
            sourceStag: region.stag,
            sourceTo: region.to,
          }),
        );
        await connection.expectOpcode(OPCODE.READ_RESPONSE, 'a zero-length Read Response');
      }
    },
    { needs: ['tester'] },
  ),
  established(
    'sec.neighbours.stay-untouched',
    'Writes to the first and last octet of a region in the middle of others',
    'SEC-004 SEC-038',
    'regions beside it stay as they are',
    async (trial, connection) => {
      const before = await trial.tester.region({ length: 64, fill: 0xaa });
      const region = await trial.tester.region({ length: 64, fill: 0x00 });
      const after = await trial.tester.region({ length: 64, fill: 0xbb });
      connection.send(connection.makeWrite(region.stag, region.to, pattern(64)));
      await connection.ping();
      sameBytes('the region', await trial.tester.peek(region), pattern(64));
      sameBytes('the one before', await trial.tester.peek(before), new Uint8Array(64).fill(0xaa));
      sameBytes('the one after', await trial.tester.peek(after), new Uint8Array(64).fill(0xbb));
    },
    { needs: ['tester'] },
  ),
];
