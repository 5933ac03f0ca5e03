// iWARP over UDP before tshark: one capture of each operation, made by our stack; tshark's own dissector of
// DDP and RDMAP, behind ten lines of Lua (trp.lua), says the same as ours of every datagram.
// `npx tsx scripts/tshark-trp.ts`; needs tshark (Debian package). Exit status 1 on any other verdict.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CaptureDissector } from '../src/inspect/decode/capture.ts';
import type { DecodedDatagram } from '../src/inspect/decode/types.ts';
import type { SendWorkRequest } from '../src/verbs/index.ts';
import { captureOf } from '../test/trp/capture.ts';
import { World } from '../test/trp/support.ts';

const LUA = fileURLToPath(new URL('trp.lua', import.meta.url));

/** tshark's field, and ours as the same number. */
const FIELDS: readonly (readonly [string, (one: DecodedDatagram) => number | bigint | undefined])[] = [
  ['trp.psn', ({ psn }) => psn],
  ['iwarp_rdma.opcode', ({ rdmap }) => rdmap?.opcode],
  ['iwarp_ddp.last_flag', ({ ddp }) => (ddp?.last === true ? 1 : 0)],
  ['iwarp_ddp.stag', ({ ddp }) => (ddp?.tagged === true ? ddp.stag : undefined)],
  ['iwarp_ddp.tagged_offset', ({ ddp }) => (ddp?.tagged === true ? ddp.to : undefined)],
  ['iwarp_ddp.qn', ({ ddp }) => (ddp?.tagged === false ? ddp.qn : undefined)],
  ['iwarp_ddp.msn', ({ ddp }) => (ddp?.tagged === false ? ddp.msn : undefined)],
  ['iwarp_ddp.mo', ({ ddp }) => (ddp?.tagged === false ? ddp.mo : undefined)],
  ['iwarp_rdma.sinkstag', ({ readRequest }) => readRequest?.sinkStag],
  ['iwarp_rdma.sinkto', ({ readRequest }) => readRequest?.sinkTo],
  ['iwarp_rdma.rdmardsz', ({ readRequest }) => readRequest?.size],
  ['iwarp_rdma.srcstag', ({ readRequest }) => readRequest?.sourceStag],
  ['iwarp_rdma.srcto', ({ readRequest }) => readRequest?.sourceTo],
  ['iwarp_rdma.term_layer', ({ terminate }) => terminate?.layer],
];

interface Operation {
  readonly name: string;
  readonly requests: (rkey: number) => SendWorkRequest[];
  readonly octets?: number;
  readonly lossy?: boolean;
}

const OCTETS = 5000;
const remote = { remoteAddr: 0 };
const OPERATIONS: readonly Operation[] = [
  { name: 'send', requests: () => [{ opcode: 'send' }] },
  { name: 'send, zero length', octets: 0, requests: () => [{ opcode: 'send' }] },
  { name: 'send with solicited event', requests: () => [{ opcode: 'send', solicited: true }] },
  { name: 'send with invalidate', requests: (rkey) => [{ opcode: 'send', invalidate: rkey }] },
  {
    name: 'send with solicited event and invalidate',
    requests: (rkey) => [{ opcode: 'send', invalidate: rkey, solicited: true }],
  },
  { name: 'write', requests: (rkey) => [{ opcode: 'rdma-write', rkey, ...remote }] },
  { name: 'read', requests: (rkey) => [{ opcode: 'rdma-read', rkey, ...remote }] },
  { name: 'immediate data', octets: 0, requests: () => [{ opcode: 'immediate', immediate: 7n }] },
  {
    name: 'fetch and add',
    octets: 8,
    requests: (rkey) => [{ opcode: 'atomic-fetch-add', sges: [], rkey, ...remote, add: 1n }],
  },
  {
    name: 'compare and swap',
    octets: 8,
    requests: (rkey) => [{ opcode: 'atomic-cmp-swap', sges: [], rkey, ...remote, compare: 0n, swap: 1n }],
  },
  {
    name: 'terminate: write to an unknown STag',
    requests: () => [{ opcode: 'rdma-write', rkey: 0x7f00_0001, ...remote }],
  },
  {
    name: 'terminate: read from an unknown STag',
    requests: () => [{ opcode: 'rdma-read', rkey: 0x7f00_0001, ...remote }],
  },
  {
    name: 'send, write and read with every fifth datagram lost',
    lossy: true,
    requests: (rkey) => [
      { opcode: 'send' },
      { opcode: 'rdma-write', rkey, ...remote },
      { opcode: 'rdma-read', rkey, ...remote },
    ],
  },
];

function capture({ requests, octets = OCTETS, lossy = false }: Operation, v6: boolean): Uint8Array {
  const world = World.connected({ host: v6 ? '::1' : '127.0.0.1', network: { latency: 1 } });
  const { client, server, network } = world;
  if (lossy) network.mayPass = ({ opcode, nth }) => opcode !== 0 || nth % 5 !== 4;
  server.qp.postRecv([0, 1, 2, 3].map((i) => ({ wrId: i, sges: [{ mr: server.memory, length: 1 << 16 }] })));
  const sges = octets === 0 ? [] : [{ mr: client.memory, length: octets }];
  client.qp.postSend(
    requests(server.memory.rkey).map((one) =>
      one.opcode === 'immediate' ? one : ({ ...one, sges } as SendWorkRequest),
    ),
  );
  world.run(2000);
  client.connection!.disconnect();
  world.run(2000);
  return captureOf(world, v6);
}

/** One line for each datagram with a DDP segment. */
function ours(file: Uint8Array): string[] {
  const lines: string[] = [];
  const dissector = new CaptureDissector({
    event: (_connection, event) => {
      if (event.kind !== 'trp' || event.ddp === undefined) return;
      lines.push(FIELDS.map(([, take]) => String(take(event) ?? '')).join(' '));
    },
    remark: (offset, message) => lines.push(`at file offset ${offset}: ${message}`),
  });
  dissector.push(file);
  dissector.end();
  return lines;
}

/** tshark gives hexadecimal or decimal numbers, and a Terminate's included headers behind its own. */
function number(text: string): string {
  const [first = ''] = text.split(',');
  return first === '' ? '' : String(BigInt(first));
}

function theirs(path: string): string[] {
  const fields = FIELDS.flatMap(([name]) => ['-e', name]);
  const text = execFileSync(
    'tshark',
    ['-r', path, '-X', `lua_script:${LUA}`, '-Y', 'trp', '-T', 'fields', '-E', 'separator=|', ...fields],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], maxBuffer: 1 << 28 },
  );
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split('|').map(number).join(' '));
}

const folder = mkdtempSync(join(tmpdir(), 'iwarp-tshark-trp-'));
let failed = 0;
for (const v6 of [false, true]) {
  for (const operation of OPERATIONS) {
    const bytes = capture(operation, v6);
    const path = join(folder, 'capture.pcap');
    writeFileSync(path, bytes);
    const [us, them] = [ours(bytes), theirs(path)];
    const at = us.findIndex((line, i) => line !== them[i]);
    const ok = us.length > 0 && us.length === them.length && at < 0;
    if (!ok) failed++;
    console.log(
      `${ok ? 'ok  ' : 'FAIL'} ${operation.name}, IPv${v6 ? 6 : 4}: ${us.length} segments` +
        (ok ? '' : `, tshark ${them.length}; ours ${us[at] ?? 'none'}, tshark ${them[at] ?? 'none'}`),
    );
  }
}
rmSync(folder, { recursive: true, force: true });
console.log(`tshark over UDP: ${2 * OPERATIONS.length - failed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
