/** The codec of src/nbd/wire.ts and src/nbd/qp-wire.ts against bytes written out by hand. */
import { expect, it } from 'vitest';
import {
  decodeDirectRequest,
  decodeGrant,
  decodeRefusal,
  decodeSetup,
  encodeGrant,
  encodeRefusal,
  encodeRemoteMemory,
  encodeSetup,
  grantedMaximum,
} from '../../src/nbd/qp-wire.ts';
import {
  areBlockSizes,
  decodeChunkError,
  decodeExtents,
  decodeGo,
  decodeGreeting,
  decodeInfo,
  decodeMetaQueries,
  decodeServerName,
  decodeText,
  encodeChunkError,
  encodeExtents,
  encodeGo,
  encodeGreeting,
  encodeInfoBlockSize,
  encodeInfoExport,
  encodeMetaQueries,
  encodeOption,
  encodeOptionReply,
  encodeRequest,
  encodeServerName,
  encodeSimpleReply,
  viewOf,
} from '../../src/nbd/wire.ts';
import { parseUri } from '../../src/nbd/uri.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const bytes = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');

it('greeting and options have the magics of the document', () => {
  expect(hex(encodeGreeting(3))).toBe('4e42444d414749434948415645 4f5054 0003'.replaceAll(' ', ''));
  expect(decodeGreeting(encodeGreeting(1))).toBe(1);
  expect(decodeGreeting(bytes('4e42444d41474943 00420281861253 00 0003'))).toBeNull();
  expect(hex(encodeOption(7, Buffer.from('ab')))).toBe('49484156454f505400000007000000026162');
  expect(hex(encodeOptionReply(7, 1))).toBe('0003e889045565a9000000070000000100000000');
});

it('requests and replies have 28 and 16 bytes', () => {
  const request = Buffer.alloc(28);
  encodeRequest(viewOf(request), 0, {
    flags: 1,
    command: 6,
    cookieHi: 0x01020304,
    cookieLo: 0x05060708,
    offset: 0x1122334455667788n,
    length: 0xfffffffe,
  });
  expect(hex(request)).toBe('256095130001000601020304050607081122334455667788fffffffe');
  const reply = Buffer.alloc(16);
  encodeSimpleReply(viewOf(reply), 0, 28, 1, 2);
  expect(hex(reply)).toBe('674466980000001c0000000100000002');
});

it('GO is decoded only if its lengths fit', () => {
  expect(hex(encodeGo('x', [3]))).toBe('000000017800010003');
  expect(decodeGo(encodeGo('disk', [3, 1]))).toEqual({ name: 'disk', infos: [3, 1] });
  for (const wrong of [
    '',
    '00000000',
    '00000001 0000',
    'ffffffff 0000 0000',
    '00000000 0001',
    '00000000 0000 00',
  ])
    expect(decodeGo(bytes(wrong))).toBeNull();
});

it('information of another length or with impossible block sizes is refused', () => {
  expect(decodeInfo(encodeInfoExport(5n, 3))).toEqual({ kind: 'export', size: 5n, flags: 3 });
  const blocks = { minimum: 512, preferred: 4096, maximum: 65_536 };
  expect(decodeInfo(encodeInfoBlockSize(blocks))).toEqual({ kind: 'block-size', blocks });
  expect(decodeInfo(encodeInfoExport(5n, 3).subarray(1))).not.toMatchObject({ kind: 'export' });
  expect(decodeInfo(Buffer.alloc(1))).toBeNull();
  expect(decodeInfo(encodeInfoBlockSize({ ...blocks, minimum: 3 }))).toBeNull();
  expect(areBlockSizes(0, 1, 1)).toBe(false);
});

it('queries with a count that cannot fit are refused before anything is allocated', () => {
  expect(decodeMetaQueries(encodeMetaQueries('d', ['a', 'b']))).toEqual({ name: 'd', queries: ['a', 'b'] });
  expect(decodeMetaQueries(bytes('00000000 ffffffff'))).toBeNull();
  expect(decodeMetaQueries(bytes('00000000 00000001 00000005 6162'))).toBeNull();
  expect(decodeMetaQueries(bytes('00000000 00000000 00'))).toBeNull();
});

it('names, extents and errors round-trip and are refused when malformed', () => {
  expect(decodeServerName(encodeServerName('disk'))).toBe('disk');
  expect(decodeServerName(bytes('00000005 6162'))).toBeNull();
  expect(decodeText(bytes('ff'))).toBeNull();
  expect(decodeText(bytes('6100'))).toBeNull();
  const extents = [{ length: 4096, flags: 3 }];
  expect(decodeExtents(encodeExtents(1, extents))).toEqual({ context: 1, extents });
  expect(decodeExtents(encodeExtents(1, [{ length: 0, flags: 0 }]))).toBeNull();
  expect(decodeExtents(encodeExtents(1, []))).toBeNull();
  expect(decodeChunkError(encodeChunkError(5, 'no'), 0x8001)).toBe(5);
  expect(decodeChunkError(encodeChunkError(0, ''), 0x8001)).toBeNull();
  expect(decodeChunkError(encodeChunkError(5, 'no').subarray(0, 7), 0x8001)).toBeNull();
});

it('the set-up of a queue pair has the layout of decision D1, D2 and D3', () => {
  const setup = { version: 1, mode: 'direct', depth: 16, name: 'disk' } as const;
  expect(hex(encodeSetup(setup))).toBe('4e424452010100106469736b');
  expect(decodeSetup(encodeSetup(setup))).toEqual(setup);
  expect(decodeSetup(bytes('4e424452 01 02 0010'))).toBeNull();
  expect(decodeSetup(Buffer.concat([encodeSetup(setup), Buffer.alloc(64, 'a')]))).toBeNull();
  const grant = { size: 1n << 40n, flags: 0x101, blocks: { minimum: 1, preferred: 4096, maximum: 262_144 } };
  expect(hex(encodeGrant(grant))).toBe('00000100000000000101000000010000100000040000');
  expect(decodeGrant(Buffer.concat([encodeGrant(grant), Buffer.alloc(9)]))).toEqual(grant);
  expect(decodeGrant(encodeGrant(grant).subarray(1))).toBeNull();
  expect(decodeRefusal(encodeRefusal(2, 'no'))).toEqual({ error: 2, message: 'no' });
  expect(decodeRefusal(bytes('00'))).toEqual({ error: 0, message: '' });
});

it('a direct request has 44 bytes and a reserved word of zero', () => {
  const request = Buffer.alloc(44);
  const header = { flags: 0, command: 0, cookieHi: 0, cookieLo: 1, offset: 0n, length: 512 };
  encodeRequest(viewOf(request), 0, header);
  encodeRemoteMemory(viewOf(request), 28, { stag: 7, to: 9n });
  expect(hex(request.subarray(28))).toBe('00000007000000000000000000000009');
  expect(decodeDirectRequest(request)).toEqual({ request: header, memory: { stag: 7, to: 9n } });
  request[32] = 1;
  expect(decodeDirectRequest(request)).toBeNull();
  expect(decodeDirectRequest(request.subarray(1))).toBeNull();
});

it('what a connection may need is bounded: the maximum falls with the depth', () => {
  expect(grantedMaximum('message', 16, 1 << 25, true)).toBe(262_144);
  expect(grantedMaximum('message', 1024, 1 << 25, true)).toBe(65_536);
  expect(grantedMaximum('direct', 16, 1 << 25, true)).toBe(1 << 25);
  expect(grantedMaximum('direct', 16, 1 << 25, false)).toBe(4 << 20);
});

it('URIs name a host and port or a socket', () => {
  expect(parseUri('nbd://localhost')).toEqual({ kind: 'tcp', host: 'localhost', port: 10_809, name: '' });
  expect(parseUri('rdma://[::1]:7/a%20b')).toEqual({ kind: 'rdma', host: '::1', port: 7, name: 'a b' });
  expect(parseUri('nbd+unix:///d?socket=/tmp/s')).toEqual({ kind: 'unix', path: '/tmp/s', name: 'd' });
  for (const wrong of [
    '',
    'x',
    'nbd:/a',
    'nbd://',
    'nbd://h:0',
    'nbd://h:65536',
    'nbd+unix:///d',
    'nbd://h/%',
    7,
  ])
    expect(() => parseUri(wrong)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }));
});
