/**
 * The sender by itself: how long the end of a stream may take, and the work left over when it has ended. RFC
 * 5040 6.1, 7.1; RFC 5041 6.2.
 */
import { describe, expect, it } from 'vitest';
import { createTransmitBuffer, type TransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import { plainTerminate } from '../../src/rdmap/terminate.ts';
import { WORK, type SendWqe } from '../../src/queues/work.ts';
import { ACCESS } from '../../src/ddp/stag-table.ts';
import { decodeFpdus } from '../support/naive/decoder.ts';
import type { NaiveSegment } from '../support/naive/types.ts';
import { bareSender } from '../support/bare-sender.ts';
import { OP } from './scripted.ts';

const MULPDU = 1018;
/** Octets and transmissions that one close time-out is given for, as the design has them. */
const QUANTUM = 65_536;
const TRANSMISSION = 262_144;

type Bench = ReturnType<typeof bareSender>;

const KINDS = {
  send: [WORK.SEND, 'send', OP.send],
  write: [WORK.WRITE, 'rdma-write', OP.write],
  read: [WORK.READ, 'rdma-read', OP.readRequest],
  atomic: [WORK.ATOMIC, 'atomic-fetch-add', OP.atomicRequest],
} as const;

function post({ sq, stags }: Bench, name: keyof typeof KINDS, octets: number, wrId = sq.head): SendWqe {
  const wqe = sq.peekFree()!;
  [wqe.kind, wqe.opcode, wqe.wireOpcode] = KINDS[name];
  const entry = stags.allocate('region', 1);
  entry.access = 1;
  entry.bytes = new Uint8Array(octets);
  if (octets > 0) wqe.sges.add(entry, entry.bytes, 0, octets);
  wqe.wrId = wrId;
  sq.push();
  return wqe;
}

/** A request of the peer that waits: `sent` octets of its response are in segments. */
function asked({ requests }: Bench, size: number, sent = 0): void {
  const { blank } = requests;
  blank.kind = 'read';
  blank.sourceHi = blank.sourceLo = 0; // the request may have served before
  blank.size = size;
  blank.sent = sent;
  requests.pushInbound();
}

/** Fill a transmit buffer with room for this many octets. */
function fill({ sender }: Bench, octets: number): TransmitBuffer {
  const buffer = createTransmitBuffer(new Uint8Array(octets));
  sender.fill(buffer);
  return buffer;
}

const LEFT = ['all-work', 'responses', 'nothing'] as const;
const shares = ({ sender }: Bench): number[] => LEFT.map((left) => sender.closeShares(left));

describe('the time that the end of a stream may take', () => {
  it('is one share where nothing is left to do', () => {
    expect(shares(bareSender(MULPDU))).toEqual([1, 1, 1]);
  });

  it('has a share for each request of the peer, and for its octets, unless only a Terminate is left', () => {
    const bench = bareSender(MULPDU);
    for (let i = 0; i < 3; i++) asked(bench, 1);
    expect(shares(bench)).toEqual([1 + 3 + 1, 1 + 3 + 1, 1]);
    asked(bench, QUANTUM - 3);
    expect(shares(bench)).toEqual([1 + 4 + 1, 1 + 4 + 1, 1]);
    asked(bench, 4 * QUANTUM, 3 * QUANTUM - 1);
    expect(shares(bench)).toEqual([1 + 5 + 3, 1 + 5 + 3, 1]);
  });

  it('has a share for each request of ours and for the octets of all work, where that is to be done', () => {
    const bench = bareSender(MULPDU);
    post(bench, 'send', QUANTUM);
    expect(shares(bench)).toEqual([1 + 1, 1, 1]);
    post(bench, 'write', QUANTUM + 1);
    expect(shares(bench)).toEqual([1 + 3, 1, 1]);
    post(bench, 'read', QUANTUM - 1);
    post(bench, 'atomic', 8);
    expect(shares(bench)).toEqual([1 + 2 + 4, 1, 1]);
  });

  it('leaves out what was posted after a close', () => {
    const bench = bareSender(MULPDU);
    post(bench, 'send', QUANTUM);
    bench.sender.refuseLaterPosts();
    post(bench, 'read', QUANTUM);
    expect(shares(bench)).toEqual([1 + 1, 1, 1]);
  });

  it('counts a message under way before responses, and each write that the network still has', () => {
    const bench = bareSender(MULPDU);
    post(bench, 'send', 3 * QUANTUM);
    post(bench, 'send', QUANTUM);
    expect(fill(bench, 2100).octets).toBeGreaterThan(1000);
    expect(shares(bench)).toEqual([1 + 4, 1 + 3, 1]);
    bench.sender.handedOut();
    const written = TRANSMISSION / QUANTUM;
    expect(shares(bench)).toEqual([1 + 4 + written, 1 + 3 + written, 1 + written]);
    fill(bench, 2100);
    bench.sender.handedOut();
    expect(bench.sender.closeShares('nothing')).toBe(1 + 2 * written);
  });
});

describe('work that is left at the end', () => {
  it('is all flushed, in order, and no Read of ours is outstanding any longer (VERBS-056/057)', () => {
    const bench = bareSender(MULPDU);
    const { sender, requests, sq, completed } = bench;
    const posted = [post(bench, 'read', 100), post(bench, 'send', 5000), post(bench, 'write', 10)];
    fill(bench, 1200);
    expect([requests.outstanding, sender.awaitsResponse, sender.unfinished]).toEqual([1, true, true]);
    posted[1]!.status = 'local-protection-error';
    sender.flush();
    expect(completed).toEqual([0, 1, 2]);
    expect(posted.map(({ status }) => status)).toEqual(['flushed', 'local-protection-error', 'flushed']);
    expect([sq.head, sq.next, sq.tail]).toEqual([3, 3, 3]);
    expect([requests.outstanding, sender.awaitsResponse, sender.unfinished]).toEqual([0, false, false]);
    expect(requests.firstOutstanding).toBeUndefined();
    expect(sender.idle).toBe(true);
  });

  it('gives back all that it had asked the peer for', () => {
    const bench = bareSender(MULPDU);
    post(bench, 'read', 100);
    fill(bench, 1200);
    bench.sender.flush();
    const again = Array.from({ length: 4 }, () => post(bench, 'read', 100));
    fill(bench, 4000);
    expect(again.map(({ msn }) => msn)).toEqual([2, 3, 4, 5]);
    expect(bench.requests.outstanding).toBe(4);
  });
});

describe('a sender that has something to do', () => {
  const stirs: [string, (bench: Bench) => void, boolean][] = [
    ['a posted request', (bench) => void post(bench, 'send', 0), true],
    ['an RTR message', ({ sender }) => void (sender.rtr = 'write'), true],
    ['a request of the peer', (bench) => asked(bench, 1), true],
    ['a nudge', ({ sender }) => sender.nudge(), false],
    ['a Terminate', ({ sender }) => sender.requestTerminate(plainTerminate(0x1100), 'next'), false],
    ['a fault', ({ sender }) => void (sender.fault = plainTerminate(0x1100)), false],
  ];
  for (const [name, stir, unfinished] of stirs) {
    it(`is not idle: ${name}${unfinished ? ', for which a close waits' : ''}`, () => {
      const bench = bareSender(MULPDU);
      expect([bench.sender.idle, bench.sender.unfinished]).toEqual([true, false]);
      stir(bench);
      expect([bench.sender.idle, bench.sender.unfinished]).toEqual([false, unfinished]);
    });
  }

  it('is not idle inside a message, of its own or of a response', () => {
    const bench = bareSender(MULPDU);
    post(bench, 'send', 5000);
    fill(bench, 1100);
    expect([bench.sq.next, bench.sender.idle, bench.sender.unfinished]).toEqual([1, false, true]);
  });
});

/** The segments in a transmit buffer. */
function segments(buffer: TransmitBuffer): NaiveSegment[] {
  buffer.seal();
  const octets = Buffer.concat(buffer.chunks.slice(0, buffer.count));
  return decodeFpdus(octets, { markers: false, crc: false }).map(({ segment }) => segment!);
}

const opcodes = (buffer: TransmitBuffer): number[] => segments(buffer).map(({ opcode }) => opcode);

/** A request of the peer for memory that it may read. */
function askedOf(bench: Bench, size: number): void {
  const entry = bench.stags.allocate('region', 1);
  entry.access = ACCESS.REMOTE_READ;
  entry.bytes = new Uint8Array(size);
  asked(bench, size);
  // The blank is the next one by now: the one that waits is the last.
  let last = bench.requests.firstInbound;
  while (last.next !== null) last = last.next;
  last.sourceStag = entry.stag;
}

function askedAtomic({ requests }: Bench, requestId: number): void {
  const { blank } = requests;
  blank.kind = 'atomic';
  blank.size = blank.sent = 0;
  blank.requestId = requestId;
  requests.pushInbound();
}

function local(bench: Bench, run: () => 'success' | 'mw-bind-error'): SendWqe {
  const entry = bench.stags.allocate('region', 1);
  const wqe = bench.sq.peekFree()!;
  wqe.kind = WORK.LOCAL;
  wqe.opcode = 'local-invalidate';
  wqe.wrId = bench.sq.head;
  wqe.local = { run, operation: { type: 'invalidate', entry } as never, memory: null };
  bench.sq.push();
  return wqe;
}

describe('what fits', () => {
  // An FPDU has ULPDU_Length, header, body, PAD and CRC.
  const cases: [string, (bench: Bench) => void, number, number][] = [
    ['a Read Request', (bench) => void post(bench, 'read', 8), 52, OP.readRequest],
    ['an Atomic Request', (bench) => void post(bench, 'atomic', 8), 76, OP.atomicRequest],
    ['a Send', (bench) => void post(bench, 'send', 8), 32, OP.send],
    ['a Write', (bench) => void post(bench, 'write', 8), 28, OP.write],
    ['a Read Response', (bench) => askedOf(bench, 8), 28, OP.readResponse],
    ['an Atomic Response', (bench) => askedAtomic(bench, 3), 36, OP.atomicResponse],
    ['a nudge', ({ sender }) => sender.nudge(), 20, OP.write],
    [
      'a Terminate',
      ({ sender }) => sender.requestTerminate(plainTerminate(0x1100), 'next'),
      28,
      OP.terminate,
    ],
  ];
  for (const [name, stir, octets, opcode] of cases) {
    it(`${name} goes into a buffer with just its room, waits for more room than less, and is counted`, () => {
      const bench = bareSender(MULPDU);
      stir(bench);
      expect(fill(bench, octets - 1).octets).toBe(0);
      expect([bench.sender.fpdus, bench.sq.next]).toEqual([0, 0]);
      const buffer = fill(bench, octets);
      expect(opcodes(buffer)).toEqual([opcode]);
      expect(segments(buffer)[0]).toMatchObject({ last: true });
      expect(bench.sender.fpdus).toBe(1);
    });
  }

  for (const [kind, opcode, octets] of [
    ['write', OP.write, 20],
    ['read', OP.readRequest, 52],
    ['send', OP.send, 24],
  ] as const) {
    it(`the RTR message ${kind} goes first, alone in its octets, and is counted (ENH-038, ENH-039)`, () => {
      const bench = bareSender(MULPDU);
      post(bench, 'send', 0);
      bench.sender.rtr = kind;
      expect(fill(bench, 51).octets).toBe(0);
      const buffer = createTransmitBuffer(new Uint8Array(200).fill(0xa5));
      bench.sender.fill(buffer);
      expect(opcodes(buffer)).toEqual([opcode, OP.send]);
      expect(buffer.octets).toBe(octets + 24);
      expect([bench.sender.fpdus, bench.sender.rtr]).toEqual([2, null]);
      const [first] = segments(buffer);
      expect([first!.last, first!.payload.every((octet) => octet === 0)]).toEqual([true, true]);
      expect(bench.requests.outstanding).toBe(kind === 'read' ? 1 : 0);
    });
  }
});

describe('turns', () => {
  it('responses and requests take one each, a response first (RDMAP-093)', () => {
    for (const kind of ['send', 'read'] as const) {
      const bench = bareSender(MULPDU);
      for (let i = 0; i < 3; i++) {
        askedOf(bench, 8);
        post(bench, kind, 8);
      }
      const ours = kind === 'send' ? OP.send : OP.readRequest;
      expect(opcodes(fill(bench, 1000))).toEqual([
        ...[OP.readResponse, ours, OP.readResponse, ours, OP.readResponse, ours],
      ]);
      expect(bench.sender.fpdus).toBe(6);
      expect(bench.sender.payloadOctets).toBe(kind === 'send' ? 48 : 24);
    }
  });

  it('so do Atomic Responses', () => {
    const bench = bareSender(MULPDU);
    askedAtomic(bench, 7);
    askedAtomic(bench, 8);
    post(bench, 'send', 0);
    post(bench, 'send', 0);
    expect(opcodes(fill(bench, 1000))).toEqual([OP.atomicResponse, OP.send, OP.atomicResponse, OP.send]);
  });

  it('a nudge goes when nothing else does, each once', () => {
    const bench = bareSender(MULPDU);
    bench.sender.nudge();
    bench.sender.nudge();
    post(bench, 'send', 0);
    expect(opcodes(fill(bench, 1000))).toEqual([OP.send, OP.write, OP.write]);
    expect([bench.sender.idle, bench.sender.fpdus]).toEqual([true, 3]);
  });

  it('a Write and its Immediate Data are two messages in a row (EXT-015)', () => {
    const bench = bareSender(MULPDU);
    const wqe = post(bench, 'write', 8);
    wqe.immediate = 1;
    wqe.operands.dataHi = 0x1122_3344;
    wqe.operands.dataLo = 0x5566_7788;
    const buffer = fill(bench, 1000);
    expect(opcodes(buffer)).toEqual([OP.write, OP.imm]);
    expect(Buffer.from(buffer.bytes).toString('hex')).toContain('1122334455667788');
    expect([bench.sender.fpdus, bench.sender.idle]).toEqual([2, true]);
  });
});

describe('a Terminate', () => {
  it('is the one for the first error (RDMAP-075)', () => {
    const bench = bareSender(MULPDU);
    bench.sender.requestTerminate(plainTerminate(0x1101), 'next');
    bench.sender.requestTerminate(plainTerminate(0x1202), 'next');
    const [only, ...more] = segments(fill(bench, 1000));
    expect([only!.terminate, more]).toMatchObject([{ layer: 1, etype: 1, code: 1 }, []]);
    expect(bench.sender.terminateSent).toBe(true);
    bench.sender.nudge();
    expect(fill(bench, 1000).octets).toBe(0);
  });

  it('of a responder that must be silent keeps local work from being done (MPA-028)', () => {
    for (const terminating of [false, true]) {
      const bench = bareSender(MULPDU);
      bench.sender.mayTransmit = false;
      if (terminating) bench.sender.requestTerminate(plainTerminate(0x1101), 'next');
      let ran = 0;
      local(bench, () => {
        ran++;
        return 'success';
      });
      expect(fill(bench, 1000).octets).toBe(0);
      expect(ran).toBe(terminating ? 0 : 1);
    }
  });
});

describe('a fault', () => {
  it('of our own stops all sending until the stream has taken it', () => {
    const bench = bareSender(MULPDU);
    bench.sender.fault = plainTerminate(0x1100);
    askedOf(bench, 8);
    bench.sender.nudge();
    post(bench, 'send', 0);
    expect([fill(bench, 1000).octets, bench.sender.fpdus]).toEqual([0, 0]);
    bench.sender.fault = null;
    expect(opcodes(fill(bench, 1000))).toEqual([OP.readResponse, OP.send, OP.write]);
  });

  it('comes of a source that may not be read, of memory that is gone, and of an ORD of 0', () => {
    const causes: [(bench: Bench) => unknown, string | null][] = [
      [(bench) => asked(bench, 8), null],
      [(bench) => (post(bench, 'send', 8).sges.first.entry!.valid = false), 'local-protection-error'],
      [(bench) => (post(bench, 'read', 8).sges.first.entry!.access = 0), 'local-protection-error'],
      [
        (bench) => {
          bench.sender.ord = 0;
          post(bench, 'read', 8);
        },
        'zero-read-resources',
      ],
      [(bench) => local(bench, () => 'mw-bind-error'), 'mw-bind-error'],
    ];
    for (const [cause, status] of causes) {
      const bench = bareSender(MULPDU);
      cause(bench);
      post(bench, 'send', 8);
      expect(fill(bench, 1000).octets, `${status}`).toBe(0);
      expect([bench.sender.fault === null, bench.sender.fpdus]).toEqual([false, 0]);
      if (status === null) continue;
      expect(bench.sq.slot(0).status).toBe(status);
      // The faulty entry completes at the end of the stream, not before (VERBS-056).
      bench.sender.sweep();
      expect(bench.completed).toEqual([]);
      bench.sender.flush();
      expect(bench.completed).toEqual([0, 1]);
    }
  });
});

describe('completion', () => {
  it('of a Send behind local work waits for its own write, not for the one before (RDMAP-070)', () => {
    const bench = bareSender(MULPDU);
    const { sender, completed } = bench;
    post(bench, 'send', 8, 1);
    fill(bench, 1000);
    sender.handedOut();
    post(bench, 'send', 8, 2);
    local(bench, () => 'success');
    fill(bench, 1000);
    sender.handedOut();
    sender.transmissionDone();
    expect(completed).toEqual([1]);
    sender.transmissionDone();
    expect(completed).toEqual([1, 2, 2]);
  });

  it('of local work between two writes comes with the first of them', () => {
    const bench = bareSender(MULPDU);
    const { sender, completed } = bench;
    post(bench, 'send', 8, 1);
    fill(bench, 1000);
    sender.handedOut();
    local(bench, () => 'success');
    expect(fill(bench, 1000).octets).toBe(0);
    expect(completed).toEqual([]);
    sender.transmissionDone();
    expect(completed).toEqual([1, 1]);
  });
});

describe('a payload that is not copied', () => {
  it('is the part of its element that the segment carries, whatever stands in front of it', () => {
    const bench = bareSender(10_000);
    const { stags, sq } = bench;
    const wqe = sq.peekFree()!;
    [wqe.kind, wqe.opcode, wqe.wireOpcode] = KINDS.write;
    const whole = Uint8Array.from({ length: 60_000 }, (_, i) => (i * 7 + (i >>> 8)) & 0xff);
    const expected: number[] = [];
    for (const [offset, length] of [
      [100, 5000],
      [7, 24_000],
      [9999, 30_000],
    ] as const) {
      const entry = stags.allocate('region', 1);
      entry.bytes = whole;
      wqe.sges.add(entry, whole, offset, length);
      expected.push(...whole.subarray(offset, offset + length));
    }
    sq.push();
    const sent: number[] = [];
    for (let i = 0; i < 20 && !bench.sender.idle; i++)
      for (const { payload } of segments(fill(bench, 30_000))) sent.push(...payload);
    expect(Buffer.compare(Buffer.from(sent), Buffer.from(expected))).toBe(0);
  });
});
