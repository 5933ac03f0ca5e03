/**
 * Octets after a start-up frame while the program decides: kept in order, whatever pieces they come in, and
 * for what they are worth. RFC 5044 7.1.
 */
import { describe, expect, it } from 'vitest';
import { DEFAULT_POLICY } from '../../src/mpa/policy.ts';
import { StartupExchange } from '../../src/mpa/startup-exchange.ts';
import { count } from '../support/framing.ts';

const MOST = 65_536;
const startup = (): StartupExchange =>
  new StartupExchange('responder', DEFAULT_POLICY, new Uint8Array(0), { ird: 0, ord: 0 });

describe('octets that come early', () => {
  it.each([1, 7, 100, 1000, 4096, MOST])(
    'in pieces of %i take as much memory as octets may wait, and no more (MPA-026, MPA-037, SEC-033)',
    (piece) => {
      const early = startup();
      const sent = count(MOST, 5);
      let room = true;
      for (let at = 0; at < MOST; at += piece) {
        const read = sent.slice(at, at + piece);
        room &&= early.keepEarly(read, 0, read.length);
        read.fill(0); // memory that is read into is used again
      }
      expect(room).toBe(true);
      expect(early.keepEarly(sent, 0, 1)).toBe(false);
      const kept = early.takeEarly()!;
      expect([kept.length, kept.buffer.byteLength]).toEqual([MOST, MOST]);
      expect(kept.every((octet, i) => octet === sent[i])).toBe(true);
      expect(early.takeEarly()).toBeNull();
    },
  );

  it('a few of them take little (SEC-033)', () => {
    const early = startup();
    for (const octet of count(40)) early.keepEarly(Uint8Array.of(octet), 0, 1);
    const kept = early.takeEarly()!;
    expect([kept, kept.buffer.byteLength <= 1024]).toEqual([count(40), true]);
    expect(startup().takeEarly()).toBeNull();
  });
});
