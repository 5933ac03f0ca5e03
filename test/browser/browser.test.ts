/**
 * The folders that need no Node: they bundle for a browser, and a connection over the network in memory runs
 * in a realm that has the globals of the Web and neither `Buffer` nor `process`.
 */
// cspell:ignore undefinedundefined
import { readdirSync } from 'node:fs';
import { isIP as nodeIsIP } from 'node:net';
import { fileURLToPath } from 'node:url';
import { createContext, runInContext } from 'node:vm';
import { build } from 'esbuild';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isIP } from '../../src/transport/ip-address.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FOLDERS = [
  'base',
  'crc32c',
  'llp',
  'mpa',
  'ddp',
  'queues',
  'rdmap',
  'stream',
  'verbs',
  'cm',
  'simnet',
  'inspect',
];
/** Opens captures for the command line. */
const FILE_READER = 'read-file.ts';

async function bundle(contents: string): Promise<string> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: ROOT, sourcefile: 'program.ts' },
    bundle: true,
    platform: 'browser',
    format: 'iife',
    target: 'es2022',
    // Every module counts here, also one of which nothing is used.
    ignoreAnnotations: true,
    write: false,
    logLevel: 'silent',
  });
  return outputFiles[0]!.text;
}

/** The globals of Node that a program uses. */
async function nodeGlobals(contents: string): Promise<string[]> {
  const names = ['Buffer', 'process', 'setImmediate', 'clearImmediate', 'global', 'require', '__dirname'];
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: ROOT, sourcefile: 'program.ts' },
    bundle: true,
    platform: 'browser',
    format: 'esm',
    target: 'es2022',
    write: false,
    logLevel: 'silent',
    // A use of one becomes a name that nothing else has; a local variable or a property of that name does
    // not.
    define: Object.fromEntries(names.map((name) => [name, `NODE_GLOBAL_${name}`])),
  });
  return [...new Set(outputFiles[0]!.text.match(/(?<=NODE_GLOBAL_)\w+/g))].toSorted();
}

/** A realm with JavaScript's own globals and those of the Web that the stack may use. */
function bareRealm(): object {
  return createContext({
    AbortController,
    AbortSignal,
    TextDecoder,
    TextEncoder,
    clearTimeout,
    console,
    crypto,
    performance,
    queueMicrotask,
    setTimeout,
  });
}

describe.each(FOLDERS)('src/%s', (folder) => {
  const files = readdirSync(`${ROOT}src/${folder}`, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.ts') && name !== FILE_READER,
  );

  it('bundles for a browser, and loads without Node', async () => {
    expect(files.length).toBeGreaterThan(0);
    const program = files.map((name) => `import './src/${folder}/${name}';`).join('\n');
    const text = await bundle(program);
    expect(runInContext(`${text}; typeof Buffer + typeof process`, bareRealm())).toBe('undefinedundefined');
  });

  it('names no global of Node', async () => {
    const program = files.map(
      (name) => `export * as m${files.indexOf(name)} from './src/${folder}/${name}';`,
    );
    expect(await nodeGlobals(program.join('\n'))).toEqual([]);
  });
});

it('a global of Node would be seen, and a property of that name is none', async () => {
  const text = 'export const a = Buffer.from([1]), b = (o) => o.process, c = typeof process;';
  expect(await nodeGlobals(text)).toEqual(['Buffer', 'process']);
});

const PROGRAM = `
  import { ConnectionManager, InlineEngine } from './src/cm/index.ts';
  import { MemoryTransport, VirtualTime } from './src/simnet/memory.ts';
  import { ACCESS, createWorkCompletion, Device } from './src/verbs/index.ts';

  const SIZE = 70_000;
  const time = new VirtualTime();
  const network = new MemoryTransport(time);
  const side = () => {
    const device = new Device({ defer: (task) => time.defer(task) });
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 8, maxRecvWr: 8 });
    const mr = pd.registerMemory(new Uint8Array(SIZE), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE);
    return { cq, qp, mr, cm: new ConnectionManager(device, new InlineEngine(network, time, device)) };
  };
  const here = side();
  const there = side();
  void there.cm.listen({ host: '10.0.0.1', port: 1 }, (request) => request.accept(there.qp));
  time.run();
  const events = [];
  here.cm.connect(here.qp, { host: '10.0.0.1', port: 1 }).setHandler(({ type }) => events.push(type));
  time.run();
  here.mr.bytes.forEach((_byte, at, bytes) => (bytes[at] = at * 7));
  here.qp.postSend({
    opcode: 'rdma-write',
    sges: [{ mr: here.mr, offset: 0, length: SIZE }],
    rkey: there.mr.rkey,
    remoteAddr: 0n,
    signaled: true,
  });
  time.run();
  const done = [createWorkCompletion()];
  const polled = here.cq.poll(done);
  globalThis.result = JSON.stringify({
    events,
    polled,
    status: done[0].status,
    placed: there.mr.bytes.every((byte, at) => byte === ((at * 7) & 0xff)),
  });
`;

it('a connection and an RDMA Write run in a realm without Buffer and process', async () => {
  const realm = bareRealm();
  runInContext(await bundle(PROGRAM), realm);
  expect(JSON.parse((realm as { result: string }).result)).toEqual({
    events: ['established'],
    polled: 1,
    status: 'success',
    placed: true,
  });
});

describe('isIP', () => {
  it.each([
    ['127.0.0.1', 4],
    ['256.0.0.1', 0],
    ['01.2.3.4', 0],
    ['1.2.3', 0],
    ['1.2.3.4.', 0],
    ['::', 6],
    ['::1', 6],
    ['1::', 6],
    ['::ffff:10.0.0.1', 6],
    ['fe80::1%eth0', 6],
    ['fe80::1%', 0],
    ['1:2:3:4:5:6:7:8', 6],
    ['1:2:3:4:5:6:7::', 6],
    ['1:2:3:4:5:6:7:8::', 0],
    ['1::2::3', 0],
    [':::', 0],
    [':1', 0],
    ['12345::', 0],
    ['', 0],
  ] as const)('%s is %i, as node:net says', (text, version) => {
    expect([isIP(text), nodeIsIP(text)]).toEqual([version, version]);
  });

  it('agrees with node:net on any text of such characters', () => {
    const part = fc.constantFrom(
      '::',
      ':',
      '.',
      '%',
      '0',
      '1',
      'f',
      'ffff',
      '10',
      '255',
      '256',
      'eth0',
      '::1',
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 18 }), (parts) => {
        const text = parts.join('');
        expect(isIP(text), text).toBe(nodeIsIP(text));
      }),
      { numRuns: 20_000 },
    );
    fc.assert(fc.property(fc.ipV6(), (text) => isIP(text) === 6 && nodeIsIP(text) === 6));
    fc.assert(fc.property(fc.ipV4(), (text) => isIP(text) === 4));
  });
});
