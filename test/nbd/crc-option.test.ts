/** `--crc` of `iwarp nbd`: what the MPA start-up frames of its connections ask for. */
import { randomFillSync } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect as connectNet, createServer as createNetServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { run } from '../../cli/nbd.ts';
import { createServer, memoryDevice } from '../../src/nbd/index.ts';

const MIB = 1 << 20;
/** Bit C of the flags, behind the key of 16 bytes. */
const FLAGS_AT = 16;
const CRC_BIT = 0x40;

const folder = mkdtempSync(join(tmpdir(), 'iwarp-crc-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** A relay that keeps the flags of the first frame of each direction. */
async function relay(target: number): Promise<{ port: number; crcBits: boolean[][]; close: () => void }> {
  const crcBits: boolean[][] = [];
  const server = createNetServer((near) => {
    const far = connectNet(target, '127.0.0.1');
    const bits: boolean[] = [];
    crcBits.push(bits);
    for (const [i, from, to] of [
      [0, near, far],
      [1, far, near],
    ] as const) {
      from.once('data', (data: Buffer) => (bits[i] = (data[FLAGS_AT]! & CRC_BIT) !== 0));
      from.on('error', () => undefined).pipe(to);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { port: (server.address() as AddressInfo).port, crcBits, close: () => void server.close() };
}

async function command(...words: string[]): Promise<{ status: number; out: string; err: string }> {
  let [out, err] = ['', ''];
  const status = await run(words, { out: (text) => (out += text), err: (text) => (err += text) });
  return { status, out, err };
}

/** A memory export behind a relay. */
async function served(crc: 'off' | 'required'): Promise<{
  uri: string;
  memory: Uint8Array;
  crcBits: boolean[][];
  close: () => Promise<void>;
}> {
  const disk = memoryDevice({ size: MIB, shared: true });
  const server = createServer({ exports: { disk } });
  const { port } = await server.listenRdma({ host: '127.0.0.1', policy: { crc } });
  const between = await relay(port);
  const close = async (): Promise<void> => {
    between.close();
    await server.close();
  };
  return {
    uri: `rdma://127.0.0.1:${between.port}/disk`,
    memory: disk.memory,
    crcBits: between.crcBits,
    close,
  };
}

describe('info and copy', () => {
  // Without the option the client requires a CRC; one side that does is enough for both (MPA-054).
  it.each([
    { server: 'off', words: ['--crc', 'off'], bits: [false, false] },
    { server: 'off', words: [], bits: [true, true] },
    { server: 'off', words: ['--crc', 'required'], bits: [true, true] },
    { server: 'required', words: ['--crc', 'off'], bits: [false, true] },
  ] as const)('server $server, client $words: CRC bits $bits', async ({ server, words, bits }) => {
    const remote = await served(server);
    const shown = await command('info', remote.uri, ...words);
    expect(shown).toMatchObject({ status: 0, out: expect.stringContaining(`${MIB} bytes`) });
    const [source, target] = [join(folder, 'source'), join(folder, 'target')];
    writeFileSync(source, randomFillSync(Buffer.alloc(MIB)));
    expect((await command('copy', source, remote.uri, '--quiet', ...words)).status).toBe(0);
    expect(Buffer.compare(remote.memory, readFileSync(source))).toBe(0);
    expect((await command('copy', remote.uri, target, '--quiet', ...words)).status).toBe(0);
    expect(Buffer.compare(readFileSync(target), readFileSync(source))).toBe(0);
    expect(remote.crcBits).toEqual([bits, bits, bits]);
    await remote.close();
  });

  it('another word is refused with the usage, before anything is connected', async () => {
    const { status, err } = await command('info', 'rdma://127.0.0.1:9/x', '--crc', 'maybe');
    expect(status).toBe(2);
    expect(err).toContain('--crc must be one of required, preferred, off, got "maybe"');
  });
});
