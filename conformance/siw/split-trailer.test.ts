/**
 * Only the fault that is meant is recognised, by all its 64 bits: on a capture of it with what the kernel
 * said, and on logs that are almost that.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { refusedCrcs, splitTrailerFault, splitTrailerIn } from './split-trailer.ts';

/**
 * The octets that crossed the guest's card: three of our FPDUs, the third cut after the first of its two
 * octets of PAD, and siw's Terminate.
 */
const REAL = new URL('../reports/captures/interop.librspreload.trailer-in-two-pieces.pcap', import.meta.url);
const SAID = '[  371.218871] siw: crc error. in: 4f9541de, own 3a3755a1, op 0';

describe('a trailer in two pieces', () => {
  it('is found in the capture of the report, by what the kernel said of it', () => {
    const fault = splitTrailerFault(
      readFileSync(REAL),
      'client',
      refusedCrcs(`[    0.1] Linux\n${SAID}\r\n[  372.0] siw: other\n`),
    );
    expect(fault).toMatch(
      /^siw refused the FPDU at octet \d+ of connection 1, which is right: .* cut after 1, /,
    );
    expect(fault).toContain(" cut after 1, siw's trailer holds 0x4f9541de and its CRC comes to 0x3a3755a1");
    expect(splitTrailerIn(REAL.pathname, 'client', SAID)).toBe(fault);
  });

  it.each([
    ['the log says nothing of a CRC', 'siw: connection closed'],
    ['the field is another', SAID.replace('4f9541de', '4f9541df')],
    ['its own CRC is another', SAID.replace('3a3755a1', '3a3755a0')],
    ['the two are exchanged', SAID.replace('4f9541de, own 3a3755a1', '3a3755a1, own 4f9541de')],
    ['the field is the one that we sent', SAID.replace('4f9541de', '9541de1d')],
  ])('is not the reason where %s', (_what, log) => {
    expect(splitTrailerIn(REAL.pathname, 'client', log)).toBeNull();
  });

  it('is only looked for in what we sent', () => {
    expect(splitTrailerIn(REAL.pathname, 'server', SAID)).toBeNull();
  });

  it('is not seen where there is no capture', () => {
    expect([
      splitTrailerIn('/nowhere', 'client', SAID),
      splitTrailerIn(import.meta.filename, 'client', SAID),
    ]).toEqual([null, null]);
  });
});
