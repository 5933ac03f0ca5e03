/**
 * One fault at a time on an incoming segment, in the order of checks of protocol-notes 1.1: which Terminate comes back, that nothing
 * outside the lawful has been written, that good segments after the fault have no effect, and that everything posted ends once.
 */
import { describe, expect, it } from 'vitest';
import { ACCESS } from '../../src/verbs/index.ts';
import { encodeAtomicRequest, taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import { expectTerminate, OP, pattern, readRequest, readResponse, scripted, send, write, type Guarded, type Script } from './scripted.ts';

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
  const bound = side.pd.registerMemory(new Uint8Array(64), all, { iova: BASE, queuePair: side.createQp() }).rkey;
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
  ...[0, 2, 3].map((dv): Fault => ({
    title: `DDP-007 DDP-056: a Write with DV ${dv}`, code: '1/1/04', segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { dv })],
  })),
  ...[0, 2, 3].map((dv): Fault => ({ title: `DDP-008 DDP-056: a Send with DV ${dv}`, code: '1/2/06', segments: () => [send(1, DATA, { dv })] })),
  { title: 'DDP-007: DV changes in the second segment', code: '1/2/06', touches: true,
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { mo: 8, dv: 0 })] },
  ...[0, 2, 3].flatMap((rv): Fault[] => [
    { title: `RDMAP-004 EXT-005: a Send with RV ${rv}`, code: '0/2/05', segments: () => [send(1, DATA, { rv })] },
    { title: `RDMAP-004: a Write with RV ${rv}`, code: '0/2/05', segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { rv })] },
    { title: `EXT-005: Immediate Data with RV ${rv}`, code: '0/2/05', segments: () => [send(1, DATA, { rv, opcode: OP.imm })] },
  ]),
  ...[12, 13, 14, 15].flatMap((opcode): Fault[] => [
    { title: `RDMAP-005: untagged opcode ${opcode}`, code: '0/2/06', segments: () => [send(1, DATA, { opcode })] },
    { title: `RDMAP-005: tagged opcode ${opcode}`, code: '0/2/06', segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { opcode })] },
  ]),
  { title: 'RDMAP-007: a Write with T=0', code: '0/2/06', segments: () => [send(1, DATA, { opcode: OP.write })] },
  { title: 'RDMAP-007: a Read Response with T=0', code: '0/2/06', segments: () => [send(1, DATA, { opcode: OP.readResponse })] },
  ...[OP.send, OP.readRequest, OP.sendInv, OP.sendSe, OP.sendSeInv, OP.imm, OP.immSe, OP.atomicRequest, OP.atomicResponse].map((opcode): Fault => ({
    title: `RDMAP-007 EXT-005: opcode ${opcode} with T=1`, code: '0/2/06', segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { opcode })],
  })),
  { title: 'RDMAP-005: an unknown opcode comes before a wrong queue (order of checks)', code: '0/2/06', segments: () => [send(9, DATA, { opcode: 12, qn: 7 })] },
  { title: 'DDP-008: the DDP version comes before the RDMAP version (order of checks)', code: '1/2/06', segments: () => [send(1, DATA, { dv: 2, rv: 0 })] },
  { title: 'RDMAP-009 DDP-039: a wrong queue comes before a wrong MSN (order of checks)', code: '1/2/01', segments: () => [send(9, DATA, { qn: 1 })] },
];

const UNTAGGED: readonly Fault[] = [
  ...[4, 0xffff_ffff].map((qn): Fault => ({ title: `DDP-039: a Send on queue ${qn}`, code: '1/2/01', segments: () => [send(1, DATA, { qn })] })),
  ...[1, 2, 3].map((qn): Fault => ({ title: `RDMAP-009: a Send on queue ${qn}`, code: '1/2/01', segments: () => [send(1, DATA, { qn })] })),
  ...[0, 2, 3].map((qn): Fault => ({
    title: `RDMAP-009: a Read Request on queue ${qn}`, code: '1/2/01',
    segments: ({ open }) => [readRequest(1, { size: 4, sourceStag: open.mr.rkey, sourceTo: BASE }, { qn })],
  })),
  { title: 'EXT-005: an Atomic Request on queue 0', code: '1/2/01', segments: () => [untaggedUlpdu({ opcode: OP.atomicRequest, qn: 0, msn: 1 }, new Uint8Array(52))] },
  { title: 'EXT-005: Immediate Data on queue 1', code: '1/2/01', segments: () => [send(1, DATA, { opcode: OP.imm, qn: 1 })] },
  { title: 'DDP-043: a Send with MSN 0', code: '1/2/03', segments: () => [send(0, DATA)] },
  { title: 'DDP-043: a Send with MSN 2 in place of 1', code: '1/2/03', segments: () => [send(2, DATA)] },
  { title: 'DDP-043: a Send with MSN 1000', code: '1/2/03', segments: () => [send(1000, DATA)] },
  { title: 'DDP-043 DDP-032: a repeated MSN', code: '1/2/03', touches: true, segments: () => [send(1, DATA), send(1, DATA)] },
  { title: 'DDP-043: a Read Request with MSN 2 in place of 1', code: '1/2/03',
    segments: ({ open }) => [readRequest(2, { size: 4, sourceStag: open.mr.rkey, sourceTo: BASE })] },
  { title: 'DDP-041: a first segment with MO 4', code: '1/2/04', receive: 'flushed', segments: () => [send(1, DATA, { mo: 4 })] },
  { title: 'DDP-041: a second segment beyond the buffer', code: '1/2/04', touches: true, receive: 'flushed',
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { mo: 1000 })] },
  { title: 'DDP-041 DDP-027: a gap inside the buffer', code: '1/2/04', touches: true, receive: 'flushed',
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { mo: 16 })] },
  { title: 'DDP-041: an overlap inside the buffer', code: '1/2/04', touches: true, receive: 'flushed',
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { mo: 4 })] },
  { title: 'DDP-042 RDMAP-061: 101 octets into 100', code: '1/2/05', receive: 'local-length-error', segments: () => [send(1, pattern(101))] },
  { title: 'DDP-042 RDMAP-061 DDP-051: 101 octets into 100 in two segments', code: '1/2/05', touches: true, receive: 'local-length-error',
    segments: () => [send(1, pattern(100), { last: false }), send(1, pattern(1), { mo: 100 })] },
  { title: 'DDP-040: a Send after the last receive', code: '1/2/02', touches: true, segments: () => [send(1), send(2), send(3), send(4, DATA)] },
  { title: 'RDMAP-059: a zero-length Send after the last receive', code: '1/2/02', touches: true,
    segments: () => [send(1), send(2), send(3), send(4)] },
  { title: 'EXT-011: Immediate Data after the last receive', code: '1/2/02', touches: true,
    segments: () => [send(1), send(2), send(3), send(4, DATA, { opcode: OP.imm })] },
  ...[7, 9].map((octets): Fault => ({
    title: `EXT-010 EXT-017: Immediate Data of ${octets} octets`, code: '0/2/07', receive: 'flushed',
    segments: () => [send(1, pattern(octets), { opcode: OP.imm })],
  })),
  { title: 'EXT-010: Immediate Data without L', code: '0/2/07', receive: 'flushed', segments: () => [send(1, DATA, { opcode: OP.immSe, last: false })] },
  { title: 'EXT-010: Immediate Data as the end of a Send', code: '0/2/07', touches: true, receive: 'flushed',
    segments: () => [send(1, DATA, { last: false }), send(1, DATA, { opcode: OP.imm, mo: 8 })] },
];

const TAGGED: readonly Fault[] = [
  { title: 'DDP-045 RDMAP-019: a Write to an unknown STag', code: '1/1/00', segments: () => [write(unknown, BASE, DATA)] },
  { title: 'DDP-045: a Write to STag 0', code: '1/1/00', segments: () => [write(0, BASE, DATA)] },
  { title: 'DDP-045: a Write to a good index with another key', code: '1/1/00', segments: ({ open }) => [write(otherKey(open), BASE, DATA)] },
  { title: 'DDP-045 DDP-070: a Write to an invalidated STag', code: '1/1/00', segments: (b) => [write(invalidated(b), BASE, DATA)] },
  { title: 'DDP-045 DDP-070: a Write to a deregistered STag', code: '1/1/00', segments: (b) => [write(deregistered(b), BASE, DATA)] },
  { title: 'DDP-046 DDP-067 DDP-068: a Write to an STag of another protection domain', code: '1/1/02', segments: ({ foreign }) => [write(foreign, BASE, DATA)] },
  { title: 'DDP-046 DDP-067 DDP-068: a Write to an STag limited to another stream', code: '1/1/02', segments: ({ bound }) => [write(bound, BASE, DATA)] },
  { title: 'DDP-047: a Write to a region without remote write', code: '1/1/02', segments: ({ readOnly }) => [write(readOnly.mr.rkey, BASE, DATA)] },
  { title: 'DDP-048: a Write at base - 1', code: '1/1/01', segments: ({ open }) => [write(open.mr.rkey, BASE - 1n, DATA)] },
  { title: 'DDP-048: a Write at base + length', code: '1/1/01', segments: ({ open }) => [write(open.mr.rkey, BASE + 256n, DATA.slice(0, 1))] },
  { title: 'DDP-048: a Write at the base plus 2^32', code: '1/1/01', segments: ({ open }) => [write(open.mr.rkey, BASE + 0x1_0000_0000n, DATA)] },
  { title: 'DDP-049: a Write of one octet too many', code: '1/1/01', segments: ({ open }) => [write(open.mr.rkey, BASE, pattern(257))] },
  { title: 'DDP-049: a Write whose last octet only is outside', code: '1/1/01', segments: ({ open }) => [write(open.mr.rkey, BASE + 249n, DATA)] },
  { title: 'DDP-050: a Write that wraps past 2^64', code: '1/1/03', segments: ({ open }) => [write(open.mr.rkey, TOP, DATA)] },
  { title: 'DDP-051 DDP-052: the second segment of a Write runs out of bounds', code: '1/1/01', touches: true,
    segments: ({ open }) => [write(open.mr.rkey, BASE + 240n, DATA, { last: false }), write(open.mr.rkey, BASE + 250n, DATA)] },
  { title: 'DDP-051: the second segment of a Write names an unknown STag', code: '1/1/00', touches: true,
    segments: ({ open }) => [write(open.mr.rkey, BASE, DATA, { last: false }), write(unknown, BASE + 8n, DATA)] },
  { title: 'RDMAP-049: a Read Response nobody asked for, to a good STag', code: '0/2/06', segments: ({ open }) => [readResponse(open.mr.rkey, BASE, DATA)] },
  { title: 'RDMAP-049: a zero-length Read Response nobody asked for', code: '0/2/06', segments: () => [readResponse(0, 0n)] },
  { title: 'EXT-049: an Atomic Response nobody asked for', code: '1/2/02', segments: () => [untaggedUlpdu({ opcode: OP.atomicResponse, qn: 3, msn: 1 }, new Uint8Array(12))] },
  { title: 'EXT-049: an Atomic Response with MSN 2 in place of 1', code: '1/2/03',
    segments: () => [untaggedUlpdu({ opcode: OP.atomicResponse, qn: 3, msn: 2 }, new Uint8Array(12))] },
];

const reading = (title: string, code: string, fields: (b: Bench) => { size: number; sourceStag: number; sourceTo?: bigint }): Fault => ({
  title, code, read: true, segments: (b) => [readRequest(1, { sourceTo: BASE, ...fields(b) })],
});
const request = (b: Bench): Uint8Array => readRequest(1, { size: 16, sourceStag: b.open.mr.rkey, sourceTo: BASE });

const READS: readonly Fault[] = [
  reading('RDMAP-035 RDMAP-034 RDMAP-074: a Read from an unknown STag', '0/1/00', () => ({ size: 4, sourceStag: unknown })),
  reading('RDMAP-035: a Read from a good index with another key', '0/1/00', (b) => ({ size: 4, sourceStag: otherKey(b.open) })),
  reading('RDMAP-035 DDP-070: a Read from an invalidated STag', '0/1/00', (b) => ({ size: 4, sourceStag: invalidated(b) })),
  reading('RDMAP-036 DDP-067: a Read from an STag of another protection domain', '0/1/03', (b) => ({ size: 4, sourceStag: b.foreign })),
  reading('RDMAP-036 DDP-067: a Read from an STag limited to another stream', '0/1/03', (b) => ({ size: 4, sourceStag: b.bound })),
  reading('RDMAP-037: a Read from base - 1', '0/1/01', (b) => ({ size: 4, sourceStag: b.open.mr.rkey, sourceTo: BASE - 1n })),
  reading('RDMAP-037: a Read from beyond the end', '0/1/01', (b) => ({ size: 1, sourceStag: b.open.mr.rkey, sourceTo: BASE + 256n })),
  reading('RDMAP-038: a Read one octet past the end', '0/1/01', (b) => ({ size: 257, sourceStag: b.open.mr.rkey })),
  reading('RDMAP-038: a Read of 2^32 - 1 octets from a small region', '0/1/01', (b) => ({ size: 0xffff_ffff, sourceStag: b.open.mr.rkey })),
  reading('RDMAP-039: a Read that wraps past 2^64', '0/1/04', (b) => ({ size: 8, sourceStag: b.open.mr.rkey, sourceTo: TOP })),
  reading('RDMAP-040: a Read from a region without remote read', '0/1/02', (b) => ({ size: 4, sourceStag: b.writeOnly.mr.rkey })),
  { title: 'RDMAP-015: a Read Request of 27 octets', code: '0/2/07', segments: (b) => [request(b).slice(0, 45)] },
  { title: 'RDMAP-015: a Read Request of 29 octets', code: '0/2/07', segments: (b) => [Uint8Array.from([...request(b), 0])] },
  { title: 'RDMAP-015: a Read Request of nothing but its DDP header', code: '0/2/07', segments: (b) => [request(b).slice(0, 18)] },
  { title: 'RDMAP-015: a Read Request with L=0', code: '0/2/07',
    segments: (b) => [readRequest(1, { size: 16, sourceStag: b.open.mr.rkey, sourceTo: BASE }, { last: false })] },
  { title: 'RDMAP-015: a Read Request with MO 4', code: '1/2/04',
    segments: (b) => [readRequest(1, { size: 16, sourceStag: b.open.mr.rkey, sourceTo: BASE }, { mo: 4 })] },
];

const sendInv = (stag: number, opcode: number = OP.sendInv): Uint8Array => send(1, DATA, { opcode, invalidateStag: stag });
const INVALIDATES: readonly Fault[] = [
  { title: 'RDMAP-066: Send with Invalidate of an unknown STag', code: '0/1/00', touches: true, receive: 'remote-invalidate-error', segments: () => [sendInv(unknown)] },
  { title: 'RDMAP-066: Send with SE and Invalidate of a good index with another key', code: '0/1/00', touches: true, receive: 'remote-invalidate-error',
    segments: (b) => [sendInv(otherKey(b.open), OP.sendSeInv)] },
  { title: 'RDMAP-066 RDMAP-068: Send with Invalidate of an STag of another protection domain', code: '0/1/09', touches: true, receive: 'remote-invalidate-error',
    segments: (b) => [sendInv(b.foreign)] },
  { title: 'RDMAP-066 RDMAP-068: Send with Invalidate of an STag of another stream', code: '0/1/09', touches: true, receive: 'remote-invalidate-error',
    segments: (b) => [sendInv(b.bound)] },
  { title: 'RDMAP-068: Send with Invalidate of a shared STag', code: '0/1/09', touches: true, receive: 'remote-invalidate-error',
    segments: (b) => {
      b.open.mr.entry.shared = true;
      return [sendInv(b.open.mr.rkey)];
    } },
];

const atomic = (fields: { aopcode?: number; stag: number; to: bigint }): Uint8Array =>
  untaggedUlpdu({ opcode: OP.atomicRequest, qn: 1, msn: 1 }, encodeAtomicRequest({
    reserved: 0, aopcode: fields.aopcode ?? 0, requestId: 7, remoteStag: fields.stag, remoteTo: fields.to,
    addOrSwap: 1n, addOrSwapMask: 0n, compare: 0n, compareMask: 0n,
  }));

const ATOMICS: readonly Fault[] = [
  ...[1n, 4n, 7n].map((low): Fault => ({
    title: `EXT-033 EXT-007: an atomic whose target has low bits ${low}`, code: '0/2/07', segments: (b) => [atomic({ stag: b.open.mr.rkey, to: BASE + low })],
  })),
  ...[1, 3, 15].map((aopcode): Fault => ({
    title: `EXT-034 EXT-007: AOpCode ${aopcode}`, code: '0/2/06', segments: (b) => [atomic({ aopcode, stag: b.open.mr.rkey, to: BASE })],
  })),
  { title: 'EXT-035: an atomic on an unknown STag', code: '0/1/00', segments: () => [atomic({ stag: unknown, to: BASE })] },
  { title: 'EXT-035: an atomic on an STag of another protection domain', code: '0/1/03', segments: (b) => [atomic({ stag: b.foreign, to: BASE })] },
  { title: 'EXT-035: an atomic on a region without remote atomic access', code: '0/1/02', segments: (b) => [atomic({ stag: b.writeOnly.mr.rkey, to: BASE })] },
  { title: 'EXT-035: an atomic past the end', code: '0/1/01', segments: (b) => [atomic({ stag: b.open.mr.rkey, to: BASE + 256n })] },
  { title: 'EXT-035: an atomic that wraps', code: '0/1/04', segments: (b) => [atomic({ stag: b.open.mr.rkey, to: TOP })] },
  { title: 'EXT-005: an Atomic Request of 51 octets', code: '0/2/07', segments: (b) => [atomic({ stag: b.open.mr.rkey, to: BASE }).slice(0, 69)] },
];

function check({ code, segments, read, touches, receive }: Fault): () => Promise<void> {
  return async () => {
    const b = await bench();
    const { script } = b;
    const all = segments(b);
    const blamed = all.at(-1)!;
    const opens = all.filter((ulpdu) => (ulpdu[1]! & 15) === OP.send && ulpdu[0]! < 0x80 && (ulpdu[0]! & 0x40) !== 0).length;
    const before = opens - (blamed[0]! < 0x80 && (blamed[1]! & 15) === OP.send ? 1 : 0);
    // What follows the fault is faultless, and must have no effect (DDP-054).
    script.send(...all, write(b.open.mr.rkey, BASE + 128n, pattern(64, 99)), send(before + 1, pattern(64, 99)));
    script.settle();
    const [layer, etype, number] = code.split('/').map((part) => Number.parseInt(part, 16));
    expectTerminate(script, { layer: layer!, etype: etype!, code: number!, blamed, ...(read === true ? { readHeader: true as const } : {}) });
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

describe('RDMAP-004 DDP-007 DDP-008: versions, opcodes, T flags (RFC 5041 7.1, RFC 5040 7.2)', () => {
  for (const fault of HEADER) it(`${fault.title} gets Terminate ${fault.code}`, check(fault));
});

describe('EXT-010 EXT-017: untagged queues (RFC 5041 7.1)', () => {
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

describe('EXT-007 EXT-033 EXT-034: Atomic Requests (RFC 7306 8)', () => {
  for (const fault of ATOMICS) it(`${fault.title} gets Terminate ${fault.code}`, check(fault));
});

describe('a stack without RFC 7306', () => {
  for (const opcode of [OP.imm, OP.immSe, OP.atomicRequest, OP.atomicResponse]) {
    it(`EXT-001 RDMAP-005: opcode ${opcode} gets Terminate 0/2/06`, async () => {
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
    it(`DDP-056 DDP-064: ${name} get Terminate 1/0/00 with their length and no header`, async () => {
      const script = await scripted();
      script.receives(1, 100);
      script.send(blamed).settle();
      const { terminate } = script.segments().at(-1)!;
      expect(terminate).toMatchObject({ layer: 1, etype: 0, code: 0, m: true, d: false, r: false, segmentLength: blamed.length });
      expect(script.side.event('terminate')).toBeDefined();
    });
  }
});
