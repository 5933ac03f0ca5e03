// `iwarp dissect` from its arguments to its output.

// cspell:ignore sned
import { existsSync, linkSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MAX_SUMMARIES } from '../../src/inspect/capture/limits.ts';
import { LINK_TYPE } from '../../src/inspect/capture/pcap.ts';
import { dissect } from '../../cli/dissect.ts';
import { encodeFpdus, untaggedUlpdu } from '../support/naive/encoder.ts';
import { Wire, bytesOf, conversation, ipv4, pcapOf, tcp, wireOf } from './support.ts';

let folder = '';
let file = '';
let notCapture = '';

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'iwarp-dissect-'));
  file = join(folder, 'talk.pcap');
  notCapture = join(folder, 'other.bin');
  const talk = conversation();
  const odd = encodeFpdus([{ ulpdu: untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }, bytesOf(5)), padValue: 9 }], {
    markers: false,
    crc: true,
  });
  const first = wireOf(talk).packets;
  const second = wireOf(
    { ...talk, fromInitiator: odd, fromResponder: new Uint8Array(0) },
    new Wire([70_000, 80_000]),
  ).packets;
  writeFileSync(file, pcapOf([...first, ...second]));
  writeFileSync(notCapture, 'hello, I am no capture');
});

afterAll(() => rmSync(folder, { recursive: true }));

function call(...args: string[]): { status: number; out: string; err: string } {
  let out = '';
  let err = '';
  const status = dissect(args, { out: (text) => (out += text), err: (text) => (err += text) });
  return { status, out, err };
}

describe('iwarp dissect', () => {
  it('prints one line for each FPDU and a summary for each connection', () => {
    const { status, out } = call(file);
    expect(status).toBe(0);
    expect(out.match(/^#1 [→←] /gm)).toHaveLength(16);
    expect(out).toMatch(/^#1 → 0\.005000 {2}Write {6}STag 0x11223344 TO 0x1000 +700 bytes {2}CRC ok$/m);
    expect(out).toContain('[MPA-067 RFC 5044 4.1: PAD bytes are not 0: 09 09 09]');
    expect(out).toContain('Connection 2: 10.0.0.1:40000 → 10.0.0.2:7174');
    expect(out).toContain('MPA-067 (RFC 5044 4.1) broken 1 time');
  });

  it('prints one JSON object a line, an opcode for each FPDU', () => {
    const objects = call(file, '--json')
      .out.trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const fpdus = objects.filter(({ kind }) => kind === 'fpdu');
    expect(fpdus).toHaveLength(15);
    expect(fpdus.every(({ opcode }) => typeof opcode === 'string')).toBe(true);
    expect(fpdus[0]).toMatchObject({
      connection: 1,
      from: '10.0.0.1:40000',
      opcode: 'RDMA Write',
      ddp: { stag: '0x11223344', to: '0x1000' },
      payloadLength: 700,
      problems: [],
    });
    expect(objects[0]).toMatchObject({ kind: 'startup', type: 'MPA Request', crc: true, revision: 1 });
    expect(objects.filter(({ kind, opcode }) => kind !== 'fpdu' && opcode !== undefined)).toEqual([]);
  });

  it('prints all fields, and all octets', () => {
    const { out } = call(file, '-V', '--opcode', 'ReadReq');
    expect(out).toContain('RDMA Read Message Size: 3000');
    expect(out).toContain('CRC32c: 0x');
    expect(call(file, '-x', '--opcode', '3').out).toMatch(/^0000 {2}00 23 +ULPDU_Length: 35$/m);
  });

  it('filters by connection, opcode, STag and error', () => {
    const lines = (...args: string[]): number => (call(file, ...args).out.match(/^#\d [→←]/gm) ?? []).length;
    expect(lines('--connection', '2')).toBe(3);
    expect(lines('--opcode', 'send', '--opcode', 'RDMA Read Response')).toBe(3 + 1 + 3 + 1);
    expect(lines('--stag', 'aabbcc00')).toBe(4);
    expect(lines('--stag', '0x11223344', '--connection', '1')).toBe(7);
    expect(lines('--errors')).toBe(1);
    expect(lines('--summary')).toBe(0);
    expect(JSON.parse(call(file, '--summary', '--json').out.split('\n')[0]!)).toMatchObject({
      kind: 'summary',
      connection: 1,
      iwarp: true,
    });
  });

  it('writes a page that holds everything and asks for nothing', () => {
    const page = join(folder, 'page.html');
    expect(call(file, '--html', page).status).toBe(0);
    const html = readFileSync(page, 'utf8');
    expect(html).not.toMatch(/src=|href=|https?:|@import|url\(/);
    const json = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)![1]!;
    const data = JSON.parse(json) as { events: { o: string }[]; connections: unknown[]; left: number };
    expect(data.events).toHaveLength(19);
    expect(data.connections).toHaveLength(2);
    const script = /<script>(.*?)<\/script>/s.exec(html)![1]!;
    // A syntax error would throw here; the script itself needs a browser.
    expect(() => new Function(script)).not.toThrow();
  });

  it.each([
    [[]],
    [['a', 'b']],
    [['x', '--nonsense']],
    [['x', '--connection', '0']],
    [['x', '--opcode', 'Sned']],
    [['x', '--stag', 'zz']],
  ])('prints usage on wrong flags: %j', (args) => {
    const { status, err, out } = call(...args);
    expect(status).toBe(2);
    expect(err).toContain('usage: iwarp dissect FILE');
    expect(out).toBe('');
  });

  it('prints usage when asked', () => expect(call('--help')).toMatchObject({ status: 0, err: '' }));

  it('counts the connections that it has no room to keep', () => {
    const many = join(folder, 'many.pcap');
    const greeting = (who: number): Uint8Array => {
      const octets = ipv4(0, tcp({ from: 0, seq: 1, payload: Uint8Array.of(1, 2, 3, 4) }));
      octets.set([11, who >>> 16, who >>> 8, who], 12);
      return octets;
    };
    writeFileSync(
      many,
      pcapOf(
        Array.from({ length: MAX_SUMMARIES + 7 }, (_, who) => greeting(who)),
        LINK_TYPE.RAW,
      ),
    );
    expect(call(many).out).toContain(`${MAX_SUMMARIES + 7} connections, 7 of them not kept;`);
    expect(call(file).out).not.toContain('not kept');
  });

  it('never writes the page over its capture', () => {
    const link = join(folder, 'link.pcap');
    linkSync(file, link);
    const before = readFileSync(file);
    for (const page of [file, join(folder, '..', folder.split('/').at(-1)!, 'talk.pcap'), link]) {
      expect(call(file, '--html', page)).toMatchObject({
        status: 2,
        out: '',
        err: expect.stringContaining('iwarp dissect: --html names the capture itself\n'),
      });
    }
    expect(readFileSync(file)).toEqual(before);
  });

  it('refuses a bad page path before it reads, and leaves none of an unreadable capture', () => {
    const nowhere = join(folder, 'none', 'page.html');
    expect(call(file, '--html', nowhere)).toEqual({
      status: 1,
      out: '',
      err: `iwarp dissect: ${nowhere}: no such file or directory\n`,
    });
    const page = join(folder, 'no-page.html');
    for (const unread of [notCapture, join(folder, 'missing')]) {
      expect(call(unread, '--html', page)).toMatchObject({
        status: 1,
        err: expect.stringContaining(`iwarp dissect: ${unread}: `),
      });
      expect(existsSync(page)).toBe(false);
    }
  });

  it('says what it cannot read', () => {
    expect(call(notCapture)).toMatchObject({
      status: 1,
      out: '',
      err: expect.stringContaining('not a capture file'),
    });
    expect(call(join(folder, 'missing'))).toMatchObject({
      status: 1,
      err: expect.stringContaining('ENOENT'),
    });
  });
});
