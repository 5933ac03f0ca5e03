/**
 * The programs opposite a scripted peer: the longer destination of version 6.29, the credits of send_bw,
 * nonsense on the control connection.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import type { PassiveConnection } from '../../src/cm/index.ts';
import { perftest } from '../../cli/perftest.ts';
import { Control } from '../../cli/perftest/control.ts';
import {
  decodeDestination,
  encodeDestination,
  encodeMtu,
  encodeU32,
  encodeVersion,
  NO_DESTINATION,
  type Destination,
  type DestinationOctets,
} from '../../cli/perftest/wire.ts';
import { Session } from '../../cli/support/session.ts';
import { ACCESS } from '../../src/ddp/stag-table.ts';
import { traceFrames } from '../../src/index.ts';
import { DEFAULT_POLICY, type ConnectionPolicy } from '../../src/mpa/policy.ts';
import { PRESET_NAMES, PRESETS } from '../../src/mpa/presets.ts';
import { Side } from './pair.ts';

const open: Session[] = [];
afterEach(async () => {
  for (const session of open.splice(0)) await session.close();
});

function session(rnic: Rnic, pd?: Session): Session {
  const made = new Session(rnic, {
    maxSendWr: 600,
    maxRecvWr: 16,
    ...(pd === undefined ? {} : { pd: pd.pd }),
  });
  open.push(made);
  return made;
}

async function connect(
  rnic: Rnic,
  made: Session,
  port: number,
  policy: Partial<ConnectionPolicy> = {},
  depth = 0,
): Promise<Session> {
  made.use(
    rnic.cm.connect(made.qp, {
      host: '127.0.0.1',
      port,
      policy,
      responderResources: depth,
      initiatorDepth: depth,
    }),
  );
  await made.established;
  return made;
}

/** A client up to its data connection; `handshake` speaks the form asked for. */
async function scriptedClient(
  port: number,
  version: string,
  octets: DestinationOctets,
  policy: Partial<ConnectionPolicy> = {},
  depth = 0,
): Promise<{
  control: Control;
  data: Session;
  answers: number[];
  handshake: (mine?: Destination) => Promise<Destination>;
}> {
  const rnic = openRnic();
  const first = session(rnic);
  const control = new Control(first, 'client');
  await connect(rnic, first, port, policy);
  expect(Buffer.from(await control.exchange(encodeVersion(version))).toString()).toBe(
    `6.06${'\0'.repeat(12)}`,
  );
  expect(Buffer.from(await control.exchange(encodeU32(4096))).toString('hex')).toBe('00001000');
  expect(Buffer.from(await control.exchange(encodeU32(64))).toString('hex')).toBe('00000040');
  expect(Buffer.from(await control.exchange(encodeMtu(1024))).toString('hex')).toBe('3300');
  const answers: number[] = [];
  const handshake = async (mine: Destination = NO_DESTINATION): Promise<Destination> => {
    const answer = await control.exchange(encodeDestination(mine, octets));
    answers.push(answer.length);
    return decodeDestination(answer);
  };
  await handshake();
  const data = await connect(rnic, session(rnic, first), port, policy, depth);
  await handshake();
  return { control, data, answers, handshake };
}

interface Served {
  readonly memory: Uint8Array;
  /** Lengths of the client's destinations. */
  readonly forms: readonly number[];
  readonly figures: readonly Uint8Array[];
}

/** A server of a test in one direction, of version 6.29; `serve` goes through it with one client. */
async function scriptedServer(policy: Partial<ConnectionPolicy> = {}): Promise<{
  readonly at: string[];
  readonly serve: (remote: number, before?: (memory: Uint8Array) => void) => Promise<Served>;
  readonly close: () => Promise<void>;
}> {
  // Frames of workers are not seen.
  const rnic = openRnic({ engine: 'thread' });
  const requests: PassiveConnection[] = [];
  let wake: (() => void) | null = null;
  const listener = await rnic.cm.listen(
    { host: '127.0.0.1', policy: { ...DEFAULT_POLICY, ...policy } },
    (request) => {
      requests.push(request);
      wake?.();
    },
  );
  const accept = async (made: Session): Promise<void> => {
    while (requests.length === 0) await new Promise<void>((resolve) => (wake = resolve));
    const request = requests.shift()!;
    made.use(request);
    request.accept(made.qp);
    await made.established;
  };
  const serve = async (remote: number, before?: (memory: Uint8Array) => void): Promise<Served> => {
    const first = session(rnic);
    const control = new Control(first, 'server');
    await accept(first);
    const lengths: number[] = [];
    for (const answer of [encodeVersion('6.29'), encodeU32(4096), encodeU32(64), encodeMtu(4096)])
      lengths.push((await control.exchange(answer)).length);
    expect(lengths).toEqual([16, 4, 4, 2]);
    const data = session(rnic, first);
    const memory = data.register(8192, remote);
    before?.(memory.bytes);
    const message = encodeDestination({ ...NO_DESTINATION, rkey: memory.rkey, vaddr: memory.addr }, 64);
    const forms = [(await control.exchange(message)).length];
    await accept(data);
    // After the data connection; twice for the queue pair; once more; at the client's end; then five figures
    // and the last one.
    for (let i = 0; i < 5; i++) forms.push((await control.exchange(message)).length);
    const figures: Uint8Array[] = [];
    for (let i = 0; i < 5; i++) figures.push(await control.exchange(new Uint8Array(8)));
    await control.exchange(message);
    // The client leaves the end of the test's connections to the server.
    await data.close();
    return { memory: memory.bytes, forms, figures };
  };
  return {
    at: ['-p', String(listener.address.port)],
    serve,
    close: () => new Promise((resolve) => listener.close(resolve)),
  };
}

describe('perftest opposite a script', () => {
  it.each([
    ['6.06', 56],
    ['6.29', 64],
  ] as const)('the server answers version %s in its form of %i octets', async (version, octets) => {
    const side = new Side(perftest('write', 'bw'), ['-p', '0', '-n', '5']);
    const { control, data, answers, handshake } = await scriptedClient(await side.port, version, octets);
    await handshake();
    const remote = await handshake();
    await handshake();
    const payload = Uint8Array.from({ length: 200 }, (_, i) => i);
    await data.execute({
      opcode: 'rdma-write',
      inline: payload,
      rkey: remote.rkey,
      remoteAddr: remote.vaddr,
    });
    await handshake();
    // The five figures, which the server prints.
    const values = [
      '0000000000010000',
      '0000000000000005',
      '4000000000000000',
      '3ff0000000000000',
      '3fe0000000000000',
    ];
    for (const value of values) expect(await control.exchange(Buffer.from(value, 'hex'))).toHaveLength(8);
    await handshake();
    await Promise.all(open.splice(0).map((each) => each.close()));
    expect(await side.status).toBe(0);
    expect(new Set(answers)).toEqual(new Set([octets]));
    expect(side.out).toContain(' 65536      5                2.00               1.00   \t\t   0.500000\n');
  });

  it('a client speaks the form of 64 octets to a server of version 6.29', async () => {
    const server = await scriptedServer();
    const side = new Side(perftest('read', 'bw'), [...server.at, '-n', '7', '-s', '100', '127.0.0.1']);
    const { forms, figures } = await server.serve(ACCESS.REMOTE_READ);
    expect(new Set(forms)).toEqual(new Set([64]));
    expect(Buffer.concat(figures.slice(0, 2)).toString('hex')).toBe(`0000000000000064${'0000000000000007'}`);
    expect(await side.status).toBe(0);
    await server.close();
  });

  it('what a client writes is the payload of its file', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'perftest-'));
    const file = join(folder, 'payload');
    writeFileSync(file, '0x11223344,0x55667788,0x99aabbcc\n');
    const server = await scriptedServer();
    const side = new Side(perftest('write', 'bw'), [
      ...server.at,
      ...['-n', '5', '-s', '10', `--payload_file_path=${file}`, '127.0.0.1'],
    ]);
    const { memory } = await server.serve(ACCESS.REMOTE_WRITE);
    // The file's first ten bytes, over and over in the sender's buffer; operations are a cache line apart.
    const pattern = Buffer.from('4433221188776655ccbb', 'hex');
    for (let i = 0; i < 5; i++)
      for (let at = 0; at < 10; at++) expect(memory[64 * i + at]).toBe(pattern[(64 * i + at) % 10]);
    expect([memory[10], memory[5 * 64]]).toEqual([0, 0]);
    expect(await side.status).toBe(0);
    await server.close();
    rmSync(folder, { recursive: true });
  });

  // The only one that the default policy does not fit.
  const softiwarp = ['--mpa-revision', '1', '--crc', 'off', '--no-peer-to-peer'];

  describe.each(PRESET_NAMES)('atomics, with a peer that starts as %s', (name) => {
    it('the server does them', async () => {
      const side = new Side(perftest('atomic', 'bw'), ['-p', '0']);
      const { control, data, handshake } = await scriptedClient(
        await side.port,
        '6.06',
        56,
        PRESETS[name],
        16,
      );
      await handshake();
      const { rkey, vaddr } = await handshake();
      await handshake();
      const sink = data.register(8);
      const original = async (
        request: { readonly add: number } | { readonly compare: number },
      ): Promise<bigint> => {
        const target = { sges: [{ mr: sink }], rkey, remoteAddr: vaddr };
        await data.execute(
          'add' in request
            ? { opcode: 'atomic-fetch-add', ...target, ...request }
            : { opcode: 'atomic-cmp-swap', ...target, ...request, swap: 9 },
        );
        return new BigUint64Array(sink.bytes.buffer, sink.bytes.byteOffset, 1)[0]!;
      };
      expect(await original({ add: 5 })).toBe(0n);
      expect(await original({ compare: 5 })).toBe(5n);
      expect(await original({ compare: 5 })).toBe(9n);
      await handshake();
      for (let i = 0; i < 5; i++) await control.exchange(new Uint8Array(8));
      await handshake();
      await Promise.all(open.splice(0).map((each) => each.close()));
      expect(await side.status).toBe(0);
    });

    it.each([
      ['FETCH_AND_ADD', /AtomicReq {2}.* FetchAdd 0x1 at /],
      ['CMP_AND_SWAP', /AtomicReq {2}.* CmpSwap 0x0→0x0 at /],
    ] as const)('the client asks for %s', async (type, request) => {
      const frames: string[] = [];
      const stop = traceFrames(({ direction, text }) => {
        if (direction === 'in') frames.push(text);
      });
      const server = await scriptedServer(PRESETS[name]);
      const side = new Side(perftest('atomic', 'bw'), [
        ...server.at,
        ...(name === 'softiwarp' ? softiwarp : []),
        ...['-n', '7', '-A', type, '127.0.0.1'],
      ]);
      const { memory, figures } = await server.serve(ACCESS.REMOTE_ATOMIC, (bytes) => bytes.fill(3, 64, 72));
      stop();
      expect(await side.status).toBe(0);
      await server.close();
      expect(frames.filter((text) => request.test(text))).toHaveLength(7);
      expect(Buffer.concat(figures.slice(0, 2)).toString('hex')).toBe('00000000000000080000000000000007');
      // Each word is one greater, or as it was: zero is replaced by zero, another value is left alone.
      const words = new BigUint64Array(memory.buffer, memory.byteOffset, 64);
      const more = type === 'FETCH_AND_ADD' ? 1n : 0n;
      const second = 0x0303030303030303n + more;
      expect([...words].filter((_, i) => i % 8 === 0)).toEqual([
        more,
        second,
        more,
        more,
        more,
        more,
        more,
        0n,
      ]);
    });
  });

  it('the server of send_bw gives credits at every third of its queue, and at each end', async () => {
    const side = new Side(perftest('send', 'bw'), ['-p', '0', '-n', '690', '-s', '8']);
    const { data, handshake } = await scriptedClient(await side.port, '6.06', 56);
    const word = data.register(4);
    const mine = { ...NO_DESTINATION, rkey: word.rkey, vaddr: word.addr };
    await handshake(mine);
    await handshake(mine);
    await handshake(mine);
    await handshake(mine); // the server has its receives now
    const seen: number[] = [];
    const credit = (): number => word.bytes[0]! | (word.bytes[1]! << 8);
    const send = async (messages: number): Promise<void> => {
      for (let n = 0; n < messages; n++) await data.execute({ opcode: 'send', inline: new Uint8Array(8) });
    };
    // Each step stops where a credit is due; a read of nothing comes back after it.
    for (const due of [170, 340, 510, 512]) {
      await send(due - (seen.at(-1) ?? 0));
      while (credit() !== due) await new Promise((resolve) => setImmediate(resolve));
      seen.push(credit());
    }
    await send(690 - 512);
    expect(seen).toEqual([170, 340, 510, 512]);
    await handshake(mine);
    await Promise.all(open.splice(0).map((each) => each.close()));
    expect(await side.status).toBe(0);
    expect(credit()).toBe(682);
  });

  it.each([
    ['an old version', encodeVersion('5.33'), 'versions older than 5.70'],
    ['a version of nothing', new Uint8Array(0), 'versions older than 5.70'],
  ])('%s is refused and told', async (_what, message, words) => {
    const side = new Side(perftest('write', 'bw'), ['-p', '0']);
    const rnic = openRnic();
    const first = session(rnic);
    const control = new Control(first, 'client');
    await connect(rnic, first, await side.port);
    const answer = control.exchange(message);
    answer.catch(() => undefined);
    expect(await side.status).toBe(1);
    expect(side.err).toContain(words);
    open.splice(0);
  });

  it('a destination of odd length ends the test with its reason', async () => {
    const side = new Side(perftest('write', 'bw'), ['-p', '0']);
    const rnic = openRnic();
    const first = session(rnic);
    const control = new Control(first, 'client');
    await connect(rnic, first, await side.port);
    for (const message of [encodeVersion('6.06'), encodeU32(4096), encodeU32(64), encodeMtu(1024)])
      await control.exchange(message);
    const answer = control.exchange(new Uint8Array(60));
    answer.catch(() => undefined);
    expect(await side.status).toBe(1);
    expect(side.err).toContain('60 bytes, neither 56 nor 64');
    open.splice(0);
  });
});
