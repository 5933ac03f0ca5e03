/**
 * Text of a peer or of another process is shown with its control characters escaped, by every tool: escape
 * sequences, line ends, C1 controls, directional marks, U+2028, and HTML in the page.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as tcpServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { dissect } from '../../cli/dissect.ts';
import { run as nbd } from '../../cli/nbd.ts';
import { run as rcopy } from '../../cli/rcopy.ts';
import { run as rping } from '../../cli/rping.ts';
import type { ParsedOptions } from '../../cli/support/options.ts';
import { Tool } from '../../cli/support/tool.ts';
import { printableLines, quoted } from '../../src/base/printable.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { createServer as nbdServer, listExports, memoryDevice } from '../../src/nbd/index.ts';
import { conversation, pcapOf, wireOf } from '../inspect/support.ts';
import { openStream, Pieces } from '../../cli/support/stream-tool.ts';
import { encodeOpen } from '../../cli/rcopy.ts';
import { Side } from './pair.ts';

const HOSTILE =
  'a\u001b[2J\u009b31m\r\u0007\u202eb\u2066\u2028\u2029\u200fc</script><img src=x onerror=1>"\\\u007f';
/** What must not reach a terminal or a page: everything that is neither printable nor a line end or tab. */
const UNSAFE = /(?![\t\n])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
const folder = mkdtempSync(join(tmpdir(), 'names-'));
afterAll(() => rmSync(folder, { recursive: true }));
const PLAIN: ParsedOptions = { flags: new Map(), policy: {}, rest: [] };

function collect(): { io: { out(text: string): void; err(text: string): void }; text: () => string } {
  let all = '';
  const add = (text: string): void => void (all += text);
  return { io: { out: add, err: add }, text: () => all };
}

it('the helper leaves nothing unsafe, and loses nothing', () => {
  expect(quoted(HOSTILE)).not.toMatch(UNSAFE);
  expect(quoted(HOSTILE)).not.toContain('\n');
  expect(printableLines(`${HOSTILE}\n\tx`)).not.toMatch(UNSAFE);
  expect(printableLines('a\n\tb é → …')).toBe('a\n\tb é → …');
});

it('what any tool says of an error is safe', async () => {
  const { io, text } = collect();
  const tool = new Tool(io, PLAIN);
  tool.complain(`tool: ${new IwarpError('ERR_REJECTED', HOSTILE).message}`);
  tool.say(HOSTILE);
  await tool.close();
  expect(text()).toContain('a\\x1b[2J\\x9b31m');
  expect(text()).not.toMatch(UNSAFE);
});

it('rcopy names a file of its client in quotes', async () => {
  const side = new Side(rcopy, ['-p', '0', '--dir', folder]);
  const tool = new Tool({ out: () => undefined, err: () => undefined }, PLAIN);
  const pieces: Pieces = await openStream(
    tool,
    { host: '127.0.0.1', port: await side.port },
    { patience: 0 },
  );
  await pieces.write(encodeOpen(`${HOSTILE}\nnext`, 0o644));
  await side.said('c<');
  await pieces.close();
  await tool.close();
  side.kill();
  await side.status;
  expect(side.out).toContain('"a\\x1b[2J');
  expect(side.out).not.toMatch(UNSAFE);
  expect(side.out).toContain('\\x0anext');
});

it('nbd shows the names and messages of a server in quotes', async () => {
  const server = nbdServer({
    exports: { [HOSTILE]: memoryDevice({ size: 4096 }), plain: memoryDevice({ size: 4096 }) },
  });
  const { port } = (await server.listen({ port: 0, host: '127.0.0.1' })) as AddressInfo;
  const { io, text } = collect();
  const writes = [process.stdout, process.stderr].map((stream) => {
    const { write } = stream;
    stream.write = (part: string | Uint8Array) => (io.out(String(part)), true);
    return () => void (stream.write = write);
  });
  try {
    await nbd(['info', `nbd://127.0.0.1:${port}/plain`]);
  } finally {
    for (const restore of writes) restore();
  }
  await server.close();
  expect(text()).toContain('\\x1b[2J');
  expect(text()).not.toMatch(UNSAFE);
});

it('nbd serves exports whose names every object has', async () => {
  const { io, text } = collect();
  const stop = new AbortController();
  const names = ['__proto__', 'constructor', 'toString'];
  const served = await new Promise<readonly string[]>((resolve, reject) => {
    const listening = (port: number): void =>
      void listExports(`nbd://127.0.0.1:${port}`)
        .then(resolve, reject)
        .finally(() => stop.abort());
    const args = names.flatMap((name) => ['--export', `${name}=memory:4096`]);
    nbd(['serve', '--nbd', '127.0.0.1:0', ...args], { ...io, listening, signal: stop.signal }).then(
      (status) => reject(new Error(`ended with ${status}: ${text()}`)),
      reject,
    );
  });
  expect([...served].sort()).toEqual(names);
  expect([await nbd(['toString'], io), text()]).toEqual([2, expect.stringContaining('give serve, attach')]);
});

describe('dissect', () => {
  const talk = conversation();
  // A damaged key is shown as text: C1 controls and DEL are among the values that one octet can have.
  talk.request.set([0x1b, 0x9b, 0x7f, 0x0a, 0x85, 0x3c, 0x22], 9);
  const file = join(folder, '<img src=x>.pcap');
  writeFileSync(file, pcapOf(wireOf(talk).packets));

  it.each([[['-V']], [['-x']], [['--json']], [['--summary']], [[]]])('%j', (flags) => {
    const { io, text } = collect();
    expect(dissect([file, ...flags], io)).toBe(0);
    expect(text()).not.toMatch(UNSAFE);
    expect(text().length).toBeGreaterThan(50);
  });
});

it('a peer that answers with text instead of MPA is not shown as it came', async () => {
  const server = tcpServer((socket) => socket.on('error', () => undefined).end(HOSTILE));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const side = new Side(rping, [
    '-c',
    '-a',
    '127.0.0.1',
    '-p',
    String((server.address() as AddressInfo).port),
  ]);
  expect(await side.status).toBe(1);
  expect(side.out + side.err).not.toMatch(UNSAFE);
  server.close();
});
