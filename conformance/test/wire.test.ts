// The suite's tables and its CRC are written apart from the stack's. Here the two are laid side by side: a
// difference is a mistake in one of them, and the RFC says in which. It also finds what no case sends.

import crc32 from 'crc-32';
import crc32c from 'crc-32/crc32c.js';
import { describe, expect, it } from 'vitest';
import { TERM as OUR_TERM, describeTerminateCode as ourDescription } from '../../src/base/terminate-codes.ts';
import { createCrc32cEngine } from '../../src/crc32c/engine.ts';
import * as ourDdp from '../../src/ddp/wire.ts';
import * as ourMpa from '../../src/mpa/wire.ts';
import * as ourRdmap from '../../src/rdmap/wire.ts';
import { castagnoli, ieee } from '../probe/crc.ts';
import { createRandom } from '../probe/random.ts';
import { TERM, describeTerminateCode } from '../probe/terminate-codes.ts';
import * as wire from '../probe/wire.ts';

describe('what the suite and the stack each know of the wire', () => {
  it('is the same for start-up frames, sizes and DDP', () => {
    expect([wire.REQUEST_KEY, wire.REPLY_KEY]).toEqual([ourMpa.REQUEST_KEY, ourMpa.REPLY_KEY]);
    expect(wire.MAX_MULPDU).toBe(ourMpa.MAX_MULPDU);
    expect(wire.DDP_CONTROL).toEqual(ourDdp.DDP_CONTROL);
    expect(wire.FIRST_MSN).toBe(ourDdp.FIRST_MSN);
    expect(wire.QN).toEqual(ourDdp.QN);
  });

  it('is the same for opcodes', () => {
    expect(wire.OPCODE).toEqual(ourRdmap.OPCODE);
    const ours = ourRdmap.OPCODE_TABLE.map(({ name, tagged, qn }) => ({
      name,
      tagged,
      qn: qn < 0 ? null : qn,
    }));
    expect(Object.values(wire.OPCODE_RULES).map(({ name, tagged, qn }) => ({ name, tagged, qn }))).toEqual(
      ours,
    );
    const octets = Object.fromEntries(
      Object.entries(wire.OPCODE_RULES)
        .filter(([, rule]) => rule.octets !== null)
        .map(([opcode, rule]) => [opcode, rule.octets]),
    );
    expect(octets).toEqual({
      [ourRdmap.OPCODE.READ_REQUEST]: ourRdmap.READ_REQUEST_OCTETS,
      [ourRdmap.OPCODE.IMMEDIATE]: ourRdmap.IMMEDIATE_OCTETS,
      [ourRdmap.OPCODE.IMMEDIATE_SE]: ourRdmap.IMMEDIATE_OCTETS,
      [ourRdmap.OPCODE.ATOMIC_REQUEST]: ourRdmap.ATOMIC_REQUEST_OCTETS,
      [ourRdmap.OPCODE.ATOMIC_RESPONSE]: ourRdmap.ATOMIC_RESPONSE_OCTETS,
    });
  });

  it('is the same for the errors of a Terminate, numbers and words', () => {
    // The stack marks its own 0/0/00 with a bit that never goes out.
    const { LOCAL_CATASTROPHIC, ...others } = OUR_TERM;
    expect(TERM).toEqual({ ...others, RDMAP_LOCAL_CATASTROPHIC: LOCAL_CATASTROPHIC & 0xffff });
    for (let code = 0; code <= 0xffff; code++) {
      if (describeTerminateCode(code) !== ourDescription(code))
        expect(describeTerminateCode(code)).toBe(ourDescription(code));
    }
  });

  it('is the same for CRC32c, and for the polynomial that is a mistake', () => {
    const random = createRandom(1, 'crc');
    const engine = createCrc32cEngine();
    for (const length of [0, 1, 2, 3, 4, 31, 1460, 65_536]) {
      const octets = random.octets(length);
      const cut = random.below(length + 1);
      expect(castagnoli(octets)).toBe(crc32c.buf(octets) >>> 0);
      expect(castagnoli(octets)).toBe(engine.update(0, octets, 0, length));
      expect(castagnoli(octets.subarray(0, cut), octets.subarray(cut))).toBe(castagnoli(octets));
      expect(ieee(octets)).toBe(crc32.buf(octets) >>> 0);
    }
  });
});
