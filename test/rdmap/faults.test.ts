/**
 * One fault at a time on an incoming segment, in the order of checks of protocol-notes 1.1: which Terminate
 * comes back, that nothing outside the lawful has been written, that good segments after the fault have no
 * effect, and that everything posted ends once.
 */
import { describe, expect, it } from 'vitest';
import { ACCESS } from '../../src/verbs/index.ts';
import { encodeAtomicRequest, taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import {
  expectTerminate,
  OP,
  pattern,
  readRequest,
  readResponse,
  scripted,
  send,
  write,
  type Guarded,
  type Script,
} from './scripted.ts';

interface Bench {
  readonly script: Script;
  /** Everything allowed, 256 octets from TO 0x1000. */
  readonly open: Guarded;
  readonly readOnly: Guarded;
  readonly writeOnly: Guarded;
  /** In a protection domain that the queue pair does not belong to. */
  readonly foreign: number;
  /** In the right domain, limited to another queue pair. */
  readonly bound: number;
}

interface Fault {
  readonly title: string;
  readonly code: string;
  /** The segments to send; the last one is in error. */
  readonly segments: (bench: Bench) => readonly Uint8Array[];
  /** The Terminate carries the Read Request header too. */
  readonly read?: true;
  /** Segments in front of the bad one write memory, so it may differ at the end. */
  readonly touches?: true;
  /** The status of the receive in progress. */
  readonly receive?: string;
}

const BASE = 0x1000n;
const DATA = pattern(8);

async function bench(): Promise<Bench> {
  const script = await scripted();
  const { side } = script;
  const open = script.region(256, undefined, BASE);
  const readOnly = script.region(64, ACCESS.REMOTE_READ, BASE);
  const writeOnly = script.region(64, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE, BASE);
  const otherPd = side.device.allocatePd();
  const all = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC;
  const foreign = otherPd.registerMemory(new Uint8Array(64), all, { iova: BASE }).rkey;
  const bound = side.pd.registerMemory(new Uint8Array(64), all, {
    iova: BASE,
    queuePair: side.createQp(),
  }).rkey;
  script.receives(3, 100);
  return { script, open, readOnly, writeOnly, foreign, bound };
}

const unknown = 0x0000_0100;
const otherKey = (region: Guarded): number => (region.mr.rkey ^ 1) >>> 0;
const invalidated = (b: Bench): number => {
  b.readOnly.mr.entry.valid = false;
  return b.readOnly.mr.rkey;
};
const deregistered = (b: Bench): number => {
  const { rkey } = b.readOnly.mr;
  b.readOnly.mr.deregister();
  return rkey;
};
const TOP = 0xffff_ffff_ffff_fffcn;

const HEADER: readonly Fault[] = [
  ...[0, 2, 3].map(
    (dv): Fault => ({
      title: `a Write with DV ${dv} (DDP-007, DDP-056)`,
      code: '1/1/04',
      segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { dv })],
    }),
  ),
  ...[0, 2, 3].map(
    (dv): Fault => ({
      title: `a Send with DV ${dv} (DDP-008, DDP-056)`,
      code: '1/2/06',
      segments: () => [send(1, DATA, { dv })],
    }),
  ),
  {
    title: 'DV changes in the second segment (DDP-007)',
    code: '1/2/06',
    touches: true,
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { mo: 8, dv: 0 })],
  },
  ...[0, 2, 3].flatMap((rv): Fault[] => [
    {
      title: `a Send with RV ${rv} (RDMAP-004, EXT-005)`,
      code: '0/2/05',
      segments: () => [send(1, DATA, { rv })],
    },
    {
      title: `a Write with RV ${rv} (RDMAP-004)`,
      code: '0/2/05',
      segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { rv })],
    },
    {
      title: `Immediate Data with RV ${rv} (EXT-005)`,
      code: '0/2/05',
      segments: () => [send(1, DATA, { rv, opcode: OP.imm })],
    },
  ]),
  ...[12, 13, 14, 15].flatMap((opcode): Fault[] => [
    {
      title: `untagged opcode ${opcode} (RDMAP-005)`,
      code: '0/2/06',
      segments: () => [send(1, DATA, { opcode })],
    },
    {
      title: `tagged opcode ${opcode} (RDMAP-005)`,
      code: '0/2/06',
      segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { opcode })],
    },
  ]),
  {
    title: 'a Write with T=0 (RDMAP-007)',
    code: '0/2/06',
    segments: () => [send(1, DATA, { opcode: OP.write })],
  },
  {
    title: 'a Read Response with T=0 (RDMAP-007)',
    code: '0/2/06',
    segments: () => [send(1, DATA, { opcode: OP.readResponse })],
  },
  ...[
    OP.send,
    OP.readRequest,
    OP.sendInv,
    OP.sendSe,
    OP.sendSeInv,
    OP.imm,
    OP.immSe,
    OP.atomicRequest,
    OP.atomicResponse,
  ].map(
    (opcode): Fault => ({
      title: `opcode ${opcode} with T=1 (RDMAP-007, EXT-005)`,
      code: '0/2/06',
      segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { opcode })],
    }),
  ),
  {
    title: 'an unknown opcode comes before a wrong queue (order of checks) (RDMAP-005)',
    code: '0/2/06',
    segments: () => [send(9, DATA, { opcode: 12, qn: 7 })],
  },
  {
    title: 'the DDP version comes before the RDMAP version (order of checks) (DDP-008)',
    code: '1/2/06',
    segments: () => [send(1, DATA, { dv: 2, rv: 0 })],
  },
  {
    title: 'a wrong queue comes before a wrong MSN (order of checks) (RDMAP-009, DDP-039)',
    code: '1/2/01',
    segments: () => [send(9, DATA, { qn: 1 })],
  },
];

const UNTAGGED: readonly Fault[] = [
  ...[4, 0xffff_ffff].map(
    (qn): Fault => ({
      title: `a Send on queue ${qn} (DDP-039)`,
      code: '1/2/01',
      segments: () => [send(1, DATA, { qn })],
    }),
  ),
  ...[1, 2, 3].map(
    (qn): Fault => ({
      title: `a Send on queue ${qn} (RDMAP-009)`,
      code: '1/2/01',
      segments: () => [send(1, DATA, { qn })],
    }),
  ),
  ...[0, 2, 3].map(
    (qn): Fault => ({
      title: `a Read Request on queue ${qn} (RDMAP-009)`,
      code: '1/2/01',
      segments: ({ open }) => [readRequest(1, { size: 4, sourceStag: open.mr.rkey, sourceTo: BASE }, { qn })],
    }),
  ),
  {
    title: 'an Atomic Request on queue 0 (EXT-005)',
    code: '1/2/01',
    segments: () => [untaggedUlpdu({ opcode: OP.atomicRequest, qn: 0, msn: 1 }, new Uint8Array(52))],
  },
  {
    title: 'Immediate Data on queue 1 (EXT-005)',
    code: '1/2/01',
    segments: () => [send(1, DATA, { opcode: OP.imm, qn: 1 })],
  },
  { title: 'a Send with MSN 0 (DDP-043)', code: '1/2/03', segments: () => [send(0, DATA)] },
  { title: 'a Send with MSN 2 in place of 1 (DDP-043)', code: '1/2/03', segments: () => [send(2, DATA)] },
  { title: 'a Send with MSN 1000 (DDP-043)', code: '1/2/03', segments: () => [send(1000, DATA)] },
  {
    title: 'a repeated MSN (DDP-043, DDP-032)',
    code: '1/2/03',
    touches: true,
    segments: () => [send(1, DATA), send(1, DATA)],
  },
  {
    title: 'a Read Request with MSN 2 in place of 1 (DDP-043)',
    code: '1/2/03',
    segments: ({ open }) => [readRequest(2, { size: 4, sourceStag: open.mr.rkey, sourceTo: BASE })],
  },
  {
    title: 'a first segment with MO 4 (DDP-041)',
    code: '1/2/04',
    receive: 'flushed',
    segments: () => [send(1, DATA, { mo: 4 })],
  },
  {
    title: 'a second segment beyond the buffer (DDP-041)',
    code: '1/2/04',
    touches: true,
    receive: 'flushed',
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { mo: 1000 })],
  },
  {
    title: 'a gap inside the buffer (DDP-041, DDP-027)',
    code: '1/2/04',
    touches: true,
    receive: 'flushed',
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { mo: 16 })],
  },
  {
    title: 'an overlap inside the buffer (DDP-041)',
    code: '1/2/04',
    touches: true,
    receive: 'flushed',
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { mo: 4 })],
  },
  {
    title: '101 octets into 100 (DDP-042, RDMAP-061)',
    code: '1/2/05',
    receive: 'local-length-error',
    segments: () => [send(1, pattern(101))],
  },
  {
    title: '101 octets into 100 in two segments (DDP-042, RDMAP-061, DDP-051)',
    code: '1/2/05',
    touches: true,
    receive: 'local-length-error',
    segments: () => [send(1, pattern(100), { last: false }), send(1, pattern(1), { mo: 100 })],
  },
  {
    title: 'a Send after the last receive (DDP-040)',
    code: '1/2/02',
    touches: true,
    segments: () => [send(1), send(2), send(3), send(4, DATA)],
  },
  {
    title: 'a zero-length Send after the last receive (RDMAP-059)',
    code: '1/2/02',
    touches: true,
    segments: () => [send(1), send(2), send(3), send(4)],
  },
  {
    title: 'Immediate Data after the last receive (EXT-011)',
    code: '1/2/02',
    touches: true,
    segments: () => [send(1), send(2), send(3), send(4, DATA, { opcode: OP.imm })],
  },
  ...[7, 9].map(
    (octets): Fault => ({
      title: `Immediate Data of ${octets} octets (EXT-010, EXT-017)`,
      code: '0/2/07',
      receive: 'flushed',
      segments: () => [send(1, pattern(octets), { opcode: OP.imm })],
    }),
  ),
  {
    title: 'Immediate Data without L (EXT-010)',
    code: '0/2/07',
    receive: 'flushed',
    segments: () => [send(1, DATA, { opcode: OP.immSe, last: false })],
  },
  {
    title: 'Immediate Data as the end of a Send (EXT-010)',
    code: '0/2/07',
    touches: true,
    receive: 'flushed',
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { opcode: OP.imm, mo: 8 })],
  },
];

const TAGGED: readonly Fault[] = [
  {
    title: 'a Write to an unknown STag (DDP-045, RDMAP-019)',
    code: '1/1/00',
    segments: () => [write(unknown, BASE, DATA)],
  },
  { title: 'a Write to STag 0 (DDP-045)', code: '1/1/00', segments: () => [write(0, BASE, DATA)] },
  {
    title: 'a Write to a good index with another key (DDP-045)',
    code: '1/1/00',
    segments: ({ open }) => [write(otherKey(open), BASE, DATA)],
  },
  {
    title: 'a Write to an invalidated STag (DDP-045, DDP-070)',
    code: '1/1/00',
    segments: (b) => [write(invalidated(b), BASE, DATA)],
  },
  {
    title: 'a Write to a deregistered STag (DDP-045, DDP-070)',
    code: '1/1/00',
    segments: (b) => [write(deregistered(b), BASE, DATA)],
  },
  {
    title: 'a Write to an STag of another protection domain (DDP-046, DDP-067, DDP-068)',
    code: '1/1/02',
    segments: ({ foreign }) => [write(foreign, BASE, DATA)],
  },
  {
    title: 'a Write to an STag limited to another stream (DDP-046, DDP-067, DDP-068)',
    code: '1/1/02',
    segments: ({ bound }) => [write(bound, BASE, DATA)],
  },
  {
    title: 'a Write to a region without remote write (DDP-047)',
    code: '1/1/02',
    segments: ({ readOnly }) => [write(readOnly.mr.rkey, BASE, DATA)],
  },
  {
    title: 'a Write at base - 1 (DDP-048)',
    code: '1/1/01',
    segments: ({ open }) => [write(open.mr.rkey, BASE - 1n, DATA)],
  },
  {
    title: 'a Write at base + length (DDP-048)',
    code: '1/1/01',
    segments: ({ open }) => [write(open.mr.rkey, BASE + 256n, DATA.slice(0, 1))],
  },
  {
    title: 'a Write at the base plus 2^32 (DDP-048)',
    code: '1/1/01',
    segments: ({ open }) => [write(open.mr.rkey, BASE + 0x1_0000_0000n, DATA)],
  },
  {
    title: 'a Write of one octet too many (DDP-049)',
    code: '1/1/01',
    segments: ({ open }) => [write(open.mr.rkey, BASE, pattern(257))],
  },
  {
    title: 'a Write whose last octet only is outside (DDP-049)',
    code: '1/1/01',
    segments: ({ open }) => [write(open.mr.rkey, BASE + 249n, DATA)],
  },
  {
    title: 'a Write that wraps past 2^64 (DDP-050)',
    code: '1/1/03',
    segments: ({ open }) => [write(open.mr.rkey, TOP, DATA)],
  },
  {
    title: 'the second segment of a Write runs out of bounds (DDP-051, DDP-052)',
    code: '1/1/01',
    touches: true,
    segments: ({ open }) => [
      write(open.mr.rkey, BASE + 240n, DATA, { last: false }),
      write(open.mr.rkey, BASE + 250n, DATA),
    ],
  },
  {
    title: 'the second segment of a Write names an unknown STag (DDP-051)',
    code: '1/1/00',
    touches: true,
    segments: ({ open }) => [
      write(open.mr.rkey, BASE, DATA, { last: false }),
      write(unknown, BASE + 8n, DATA),
    ],
  },
  {
    title: 'a Read Response nobody asked for, to a good STag (RDMAP-049)',
    code: '0/2/06',
    segments: ({ open }) => [readResponse(open.mr.rkey, BASE, DATA)],
  },
  {
    title: 'a zero-length Read Response nobody asked for (RDMAP-049)',
    code: '0/2/06',
    segments: () => [readResponse(0, 0n)],
  },
  {
    title: 'an Atomic Response nobody asked for (EXT-049)',
    code: '1/2/02',
    segments: () => [untaggedUlpdu({ opcode: OP.atomicResponse, qn: 3, msn: 1 }, new Uint8Array(12))],
  },
  {
    title: 'an Atomic Response with MSN 2 in place of 1 (EXT-049)',
    code: '1/2/03',
    segments: () => [untaggedUlpdu({ opcode: OP.atomicResponse, qn: 3, msn: 2 }, new Uint8Array(12))],
  },
];

const reading = (
  title: string,
  code: string,
  fields: (b: Bench) => { size: number; sourceStag: number; sourceTo?: bigint },
): Fault => ({
  title,
  code,
  read: true,
  segments: (b) => [readRequest(1, { sourceTo: BASE, ...fields(b) })],
});
const request = (b: Bench): Uint8Array =>
  readRequest(1, { size: 16, sourceStag: b.open.mr.rkey, sourceTo: BASE });

const READS: readonly Fault[] = [
  reading('a Read from an unknown STag (RDMAP-035, RDMAP-034, RDMAP-074)', '0/1/00', () => ({
    size: 4,
    sourceStag: unknown,
  })),
  reading('a Read from a good index with another key (RDMAP-035)', '0/1/00', (b) => ({
    size: 4,
    sourceStag: otherKey(b.open),
  })),
  reading('a Read from an invalidated STag (RDMAP-035, DDP-070)', '0/1/00', (b) => ({
    size: 4,
    sourceStag: invalidated(b),
  })),
  reading('a Read from an STag of another protection domain (RDMAP-036, DDP-067)', '0/1/03', (b) => ({
    size: 4,
    sourceStag: b.foreign,
  })),
  reading('a Read from an STag limited to another stream (RDMAP-036, DDP-067)', '0/1/03', (b) => ({
    size: 4,
    sourceStag: b.bound,
  })),
  reading('a Read from base - 1 (RDMAP-037)', '0/1/01', (b) => ({
    size: 4,
    sourceStag: b.open.mr.rkey,
    sourceTo: BASE - 1n,
  })),
  reading('a Read from beyond the end (RDMAP-037)', '0/1/01', (b) => ({
    size: 1,
    sourceStag: b.open.mr.rkey,
    sourceTo: BASE + 256n,
  })),
  reading('a Read one octet past the end (RDMAP-038)', '0/1/01', (b) => ({
    size: 257,
    sourceStag: b.open.mr.rkey,
  })),
  reading('a Read of 2^32 - 1 octets from a small region (RDMAP-038)', '0/1/01', (b) => ({
    size: 0xffff_ffff,
    sourceStag: b.open.mr.rkey,
  })),
  reading('a Read that wraps past 2^64 (RDMAP-039)', '0/1/04', (b) => ({
    size: 8,
    sourceStag: b.open.mr.rkey,
    sourceTo: TOP,
  })),
  reading('a Read from a region without remote read (RDMAP-040)', '0/1/02', (b) => ({
    size: 4,
    sourceStag: b.writeOnly.mr.rkey,
  })),
  {
    title: 'a Read Request of 27 octets (RDMAP-015)',
    code: '0/2/07',
    segments: (b) => [request(b).slice(0, 45)],
  },
  {
    title: 'a Read Request of 29 octets (RDMAP-015)',
    code: '0/2/07',
    segments: (b) => [Uint8Array.from([...request(b), 0])],
  },
  {
    title: 'a Read Request of nothing but its DDP header (RDMAP-015)',
    code: '0/2/07',
    segments: (b) => [request(b).slice(0, 18)],
  },
  {
    title: 'a Read Request with L=0 (RDMAP-015)',
    code: '0/2/07',
    segments: (b) => [
      readRequest(1, { size: 16, sourceStag: b.open.mr.rkey, sourceTo: BASE }, { last: false }),
    ],
  },
  {
    title: 'a Read Request with MO 4 (RDMAP-015)',
    code: '1/2/04',
    segments: (b) => [readRequest(1, { size: 16, sourceStag: b.open.mr.rkey, sourceTo: BASE }, { mo: 4 })],
  },
];

const sendInv = (stag: number, opcode: number = OP.sendInv): Uint8Array =>
  send(1, DATA, { opcode, invalidateStag: stag });
const INVALIDATES: readonly Fault[] = [
  {
    title: 'Send with Invalidate of an unknown STag (RDMAP-066)',
    code: '0/1/00',
    touches: true,
    receive: 'remote-invalidate-error',
    segments: () => [sendInv(unknown)],
  },
  {
    title: 'Send with SE and Invalidate of a good index with another key (RDMAP-066)',
    code: '0/1/00',
    touches: true,
    receive: 'remote-invalidate-error',
    segments: (b) => [sendInv(otherKey(b.open), OP.sendSeInv)],
  },
  {
    title: 'Send with Invalidate of an STag of another protection domain (RDMAP-066, RDMAP-068)',
    code: '0/1/09',
    touches: true,
    receive: 'remote-invalidate-error',
    segments: (b) => [sendInv(b.foreign)],
  },
  {
    title: 'Send with Invalidate of an STag of another stream (RDMAP-066, RDMAP-068)',
    code: '0/1/09',
    touches: true,
    receive: 'remote-invalidate-error',
    segments: (b) => [sendInv(b.bound)],
  },
  {
    title: 'Send with Invalidate of a shared STag (RDMAP-068)',
    code: '0/1/09',
    touches: true,
    receive: 'remote-invalidate-error',
    segments: (b) => {
      b.open.mr.entry.shared = true;
      return [sendInv(b.open.mr.rkey)];
    },
  },
];

const atomic = (fields: { aopcode?: number; stag: number; to: bigint }): Uint8Array =>
  untaggedUlpdu(
    { opcode: OP.atomicRequest, qn: 1, msn: 1 },
    encodeAtomicRequest({
      reserved: 0,
      aopcode: fields.aopcode ?? 0,
      requestId: 7,
      remoteStag: fields.stag,
      remoteTo: fields.to,
      addOrSwap: 1n,
      addOrSwapMask: 0n,
      compare: 0n,
      compareMask: 0n,
    }),
  );

const ATOMICS: readonly Fault[] = [
  ...[1n, 4n, 7n].map(
    (low): Fault => ({
      title: `an atomic whose target has low bits ${low} (EXT-033, EXT-007)`,
      code: '0/2/07',
      segments: (b) => [atomic({ stag: b.open.mr.rkey, to: BASE + low })],
    }),
  ),
  ...[1, 3, 15].map(
    (aopcode): Fault => ({
      title: `AOpCode ${aopcode} (EXT-034, EXT-007)`,
      code: '0/2/06',
      segments: (b) => [atomic({ aopcode, stag: b.open.mr.rkey, to: BASE })],
    }),
  ),
  {
    title: 'an atomic on an unknown STag (EXT-035)',
    code: '0/1/00',
    segments: () => [atomic({ stag: unknown, to: BASE })],
  },
  {
    title: 'an atomic on an STag of another protection domain (EXT-035)',
    code: '0/1/03',
    segments: (b) => [atomic({ stag: b.foreign, to: BASE })],
  },
  {
    title: 'an atomic on a region without remote atomic access (EXT-035)',
    code: '0/1/02',
    segments: (b) => [atomic({ stag: b.writeOnly.mr.rkey, to: BASE })],
  },
  {
    title: 'an atomic past the end (EXT-035)',
    code: '0/1/01',
    segments: (b) => [atomic({ stag: b.open.mr.rkey, to: BASE + 256n })],
  },
  {
    title: 'an atomic that wraps (EXT-035)',
    code: '0/1/04',
    segments: (b) => [atomic({ stag: b.open.mr.rkey, to: TOP })],
  },
  {
    title: 'an Atomic Request of 51 octets (EXT-005)',
    code: '0/2/07',
    segments: (b) => [atomic({ stag: b.open.mr.rkey, to: BASE }).slice(0, 69)],
  },
];

function check({ code, segments, read, touches, receive }: Fault): () => Promise<void> {
  return async () => {
    const b = await bench();
    const { script } = b;
    const all = segments(b);
    const blamed = all.at(-1)!;
    const opens = all.filter(
      (ulpdu) => (ulpdu[1]! & 15) === OP.send && ulpdu[0]! < 0x80 && (ulpdu[0]! & 0x40) !== 0,
    ).length;
    const before = opens - (blamed[0]! < 0x80 && (blamed[1]! & 15) === OP.send ? 1 : 0);
    // What follows the fault is faultless, and must have no effect (DDP-054).
    script.send(
      ...all,
      write(b.open.mr.rkey, BASE + 128n, pattern(64, 99)),
      send(before + 1, pattern(64, 99)),
    );
    script.settle();
    const [layer, etype, number] = code.split('/').map((part) => Number.parseInt(part, 16));
    expectTerminate(script, {
      layer: layer!,
      etype: etype!,
      code: number!,
      blamed,
      ...(read === true ? { readHeader: true as const } : {}),
    });
    expect(b.open.mr.bytes.subarray(128, 192).every((octet) => octet === 0)).toBe(true);
    script.guardsIntact();
    if (touches !== true) script.memoryUntouched();
    script.end().finish();
    expect(script.peer.ending).toBe('closed');
    expect(script.side.qp.state).toBe('error');
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'terminated' });
    const statuses = script.received().map((wc) => wc.status);
    expect(statuses.length).toBe(3); // every posted receive ends exactly once
    expect(statuses.slice(0, before).every((status) => status === 'success')).toBe(true);
    if (receive !== undefined) expect(statuses[0]).toBe(receive);
    expect(statuses.slice(Math.max(before, 1)).every((status) => status === 'flushed')).toBe(true);
  };
}

describe('versions, opcodes, T flags (RFC 5041 7.1, RFC 5040 7.2) (RDMAP-004, DDP-007, DDP-008)', () => {
  for (const fault of HEADER) it(`${fault.title} gets Terminate ${fault.code}`, check(fault));
});

describe('untagged queues (RFC 5041 7.1) (EXT-010, EXT-017)', () => {
  for (const fault of UNTAGGED) it(`${fault.title} gets Terminate ${fault.code}`, check(fault));
});

describe('tagged buffers (RFC 5041 7.1, 8)', () => {
  for (const fault of TAGGED) it(`${fault.title} gets Terminate ${fault.code}`, check(fault));
});

describe('Read Requests (RFC 5040 7.2)', () => {
  for (const fault of READS) it(`${fault.title} gets Terminate ${fault.code}`, check(fault));
});

describe('remote invalidation (RFC 5040 5.3)', () => {
  for (const fault of INVALIDATES) it(`${fault.title} gets Terminate ${fault.code}`, check(fault));
});

describe('Atomic Requests (RFC 7306 8) (EXT-007, EXT-033, EXT-034)', () => {
  for (const fault of ATOMICS) it(`${fault.title} gets Terminate ${fault.code}`, check(fault));
});

describe('a stack without RFC 7306', () => {
  for (const opcode of [OP.imm, OP.immSe, OP.atomicRequest, OP.atomicResponse]) {
    it(`opcode ${opcode} gets Terminate 0/2/06 (EXT-001, RDMAP-005)`, async () => {
      const script = await scripted({ side: { qp: { extensions: false } } });
      script.receives(1, 100);
      const qn = opcode === OP.atomicRequest ? 1 : opcode === OP.atomicResponse ? 3 : 0;
      const blamed = send(1, DATA, { opcode, qn });
      script.send(blamed).settle();
      expectTerminate(script, { layer: 0, etype: 2, code: 6, blamed });
    });
  }
});

describe('segments too short for their header (MPA-090, VERBS-171)', () => {
  const short: readonly [string, Uint8Array][] = [
    ['0 octets', new Uint8Array(0)],
    ['1 octet', Uint8Array.of(0x41)],
    ['13 octets of a tagged one', taggedUlpdu({ opcode: OP.write, stag: 1, to: 0n }).slice(0, 13)],
    ['17 octets of an untagged one', send(1).slice(0, 17)],
  ];
  for (const [name, blamed] of short) {
    it(`${name} get Terminate 1/0/00 with their length and no header (DDP-056, DDP-064)`, async () => {
      const script = await scripted();
      script.receives(1, 100);
      script.send(blamed).settle();
      const { terminate } = script.segments().at(-1)!;
      expect(terminate).toMatchObject({
        layer: 1,
        etype: 0,
        code: 0,
        m: true,
        d: false,
        r: false,
        segmentLength: blamed.length,
      });
      expect(script.side.event('terminate')).toBeDefined();
    });
  }
});
