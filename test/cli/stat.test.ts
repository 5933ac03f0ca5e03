/** `iwarp stat` and `iwarp devinfo` against a running process (this one), over the control socket. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { seededRandom } from '../../src/base/random.ts';
import { snapshot } from '../../src/observe/snapshot.ts';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { serveControl, type ControlServer } from '../../src/index.ts';
import { controlFolder } from '../../src/observe/control-socket.ts';
import * as sockets from '../../src/sockets/index.ts';
import { run as devinfo } from '../../cli/devinfo.ts';
import { run as stat } from '../../cli/stat.ts';
import { pairOf, pattern, type Ends } from '../api/support.ts';
import { identity } from '../support/certificates.ts';

let runtime: string;
let control: ControlServer | null = null;
let ends: Ends | null = null;
let output: { out: string; err: string };

beforeEach(() => {
  runtime = mkdtempSync(join(tmpdir(), 'iwarp-stat-'));
  vi.stubEnv('XDG_RUNTIME_DIR', runtime);
  output = { out: '', err: '' };
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => ((output.out += String(text)), true));
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => ((output.err += String(text)), true));
});

afterEach(async () => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  await ends?.close();
  await control?.close();
  [control, ends] = [null, null];
  rmSync(runtime, { recursive: true, force: true });
});

/** A pair that has moved something. */
async function busyPair(): Promise<Ends> {
  ends = await pairOf('memory', { receives: 64 }, { receives: 64 });
  const { client, server } = ends;
  const region = server.allocate(4096, 'read-write');
  await client.write(pattern(4096), server.share(region));
  await client.read(server.share(region));
  await client.send('hello');
  (await server.receive())!.release();
  return ends;
}

async function lines(run: (args: string[]) => Promise<number>, ...args: string[]): Promise<string[]> {
  output.out = '';
  expect(await run(args)).toBe(0);
  return output.out.replace(/\n$/, '').split('\n');
}

describe('iwarp stat', () => {
  it.each([
    ['sdp', false],
    ['rsocket', false],
    ['sdp', true],
  ] as const)('shows that a connection carries %s (TLS: %s)', async (protocol, secure) => {
    control = await serveControl();
    const own = identity('localhost');
    const server = sockets.createServer({ protocol, ...(secure ? { tls: own } : {}) });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const options = { protocol, host: '127.0.0.1', port, ...(secure ? { tls: { ca: own.cert } } : {}) };
    const socket = sockets.connect(options);
    const [[there]] = await Promise.all([once(server, 'connection'), once(socket, 'connect')]);
    const shown = await lines(stat, '-d', 'resource', 'cm_id');
    const words = ` dst-addr 127.0.0.1:${port} drv_carries ${protocol}${secure ? '/tls' : ''} `;
    expect(shown.filter((line) => line.endsWith(words))).toHaveLength(1);
    socket.destroy();
    (there as sockets.RdmaSocket).destroy();
    server.close();
  });

  it('shows the counters of devices and connections in the layout of rdma statistic', async () => {
    control = await serveControl();
    await busyPair();
    const line = (await lines(stat)).at(-1)!;
    expect(line).toMatch(/^link iwarp0\/1 in_fpdus \d+ out_fpdus \d+ /);
    expect(line).toMatch(/ out_rdma_writes 2 out_rdma_reads 1 /); // the first Write is the RTR message
    expect(line).toMatch(/ in_rdma_sends 1 /);
    expect(line).toContain(' crc_errors 0 marker_errors 0 ');
    const ends = ['rejected', 'refused', 'failed', 'closed', 'broken'].map((end) => `connections_${end} 0 `);
    expect(line.endsWith(` connections_established 2 ${ends.join('')}`)).toBe(true);
    expect((await lines(stat, '-p')).at(-1)).toBe('    connections_broken 0 ');
    const perQp = (await lines(stat, 'qp', 'show')).slice(-4);
    for (const i of [0, 2]) {
      const lqpn = /^link iwarp0\/1 cntn (\d+) qp-type RC pid \d+ comm \S+ in_fpdus \d+ .* nudges 0 $/.exec(
        perQp[i]!,
      )![1];
      expect(perQp[i + 1]).toBe(`    LQPN: <${lqpn}>`);
    }
    const json = JSON.parse((await lines(stat, '-j', 'qp')).join('')) as Record<string, unknown>[];
    expect(json.at(-1)).toMatchObject({
      port: 1,
      ifname: 'iwarp0',
      lqpn: [expect.any(Number)],
      crc_errors: 0,
    });
  });

  it('shows the objects in the layout of rdma resource, as text and as JSON', async () => {
    control = await serveControl();
    await busyPair();
    // Receive buffers lie in as many pieces as an end's traffic has asked for; one end has the region, and
    // the client keeps a registration for what it reads.
    expect((await lines(stat, 'resource')).at(-1)).toMatch(
      /^\d+: iwarp0: pd 2 cq 2 qp 2 cm_id 3 mr [4-7] ctx 1 srq 0 $/,
    );
    expect((await lines(stat, 'resource', 'qp')).at(-1)).toMatch(
      /^link iwarp0\/1 lqpn \d+ pdn \d+ type RC state RTS sq-psn 0 pid \d+ comm \S+ $/,
    );
    const detailed = (await lines(stat, '-d', 'resource', 'show', 'qp')).at(-1)!;
    expect(detailed).toContain(' drv_state rts drv_sq_outstanding 0 drv_sq_depth 258 drv_rq_posted 8 ');
    expect(detailed).toMatch(/ drv_rq_posted 8 drv_rq_depth 68 drv_ird \d+ drv_ord \d+ $/);
    const ids = await lines(stat, 'resource', 'show', 'cm_id');
    expect(ids.at(-1)).toMatch(
      /^link iwarp0\/1 lqpn \d+ qp-type RC state CONNECT ps TCP pid \d+ comm \S+ cm-idn 2 src-addr /,
    );
    expect(ids.at(-1)).toMatch(/ cm-idn 2 src-addr 127\.0\.0\.1:\d+ dst-addr 127\.0\.0\.1:\d+ $/);
    expect(ids.at(-3)).toMatch(
      /^link iwarp0\/1 state LISTEN ps TCP pid \d+ comm \S+ cm-idn 0 src-addr 127\.0\.0\.1:\d+ $/,
    );
    expect((await lines(stat, '-d', 'resource', 'cm_id')).at(-1)).toMatch(/:\d+ drv_carries messages $/);
    expect((await lines(stat, 'resource', 'cq')).at(-1)).toMatch(/^dev iwarp0 cqn \d+ cqe 326 users 2 pid /);
    expect(await lines(stat, 'resource', 'mr')).toContainEqual(
      expect.stringMatching(/^dev iwarp0 mrn \d+ mrlen 4096 pdn \d+ pid /),
    );
    expect((await lines(stat, 'resource', 'pd')).at(-1)).toMatch(/^dev iwarp0 pdn \d+ users \d+ pid /);
    const json = JSON.parse((await lines(stat, '-j', 'resource', 'qp')).join('')) as Record<
      string,
      unknown
    >[];
    expect(json.at(-1)).toMatchObject({
      port: 1,
      ifname: 'iwarp0',
      type: 'RC',
      state: 'RTS',
      pid: process.pid,
    });
    expect((await lines(stat, '-jp', 'resource', 'pd')).length).toBeGreaterThan(4);
    expect(await stat(['--pid', '1'])).toBe(1);
    expect(output.err).toContain('stat: process 1 does not show itself; these do: ');
    expect(output.err).toContain(`${process.pid} (`);
    expect(await stat(['--pid', 'x'])).toBe(2);
    expect(output.err).toContain("stat: --pid must be a process number, got 'x'");
  });

  it('--prometheus shows counters that grow, in the format of Prometheus', async () => {
    control = await serveControl();
    const { client, server } = await busyPair();
    /** Every sample of this process: the sum over its devices by name; each line has to be of the format. */
    const scrape = async (): Promise<Map<string, number>> => {
      const sums = new Map<string, number>();
      const types = new Map<string, string>();
      for (const line of await lines(stat, '--prometheus', '--pid', String(process.pid))) {
        if (/^# HELP iwarp_[a-z_]+ \S.*$/.test(line)) continue;
        const [, typed, type] = /^# TYPE (iwarp_[a-z_]+) (counter|gauge)$/.exec(line) ?? [];
        if (typed !== undefined) {
          expect(types.has(typed)).toBe(false);
          types.set(typed, type!);
          continue;
        }
        const sample =
          /^(iwarp_[a-z_]+)\{device="iwarp\d+",index="\d+",pid="(\d+)",comm="[^"]+"\} (\d+)$/.exec(line);
        expect(sample, line).not.toBeNull();
        const [, name, pid, value] = sample!;
        expect(Number(pid)).toBe(process.pid);
        expect(types.get(name!), name).toBe(name!.endsWith('_total') ? 'counter' : 'gauge');
        sums.set(name!, (sums.get(name!) ?? 0) + Number(value));
      }
      return sums;
    };
    const before = await scrape();
    const region = server.allocate(100, 'write');
    for (let i = 0; i < 3; i++) await client.write(pattern(100), server.share(region));
    await client.rtt(); // the Writes have come
    const after = await scrape();
    const grown = (name: string): number => after.get(name)! - before.get(name)!;
    expect(grown('iwarp_out_rdma_writes_total')).toBe(3);
    expect(grown('iwarp_out_rdma_reads_total')).toBe(1);
    expect(grown('iwarp_in_octets_total')).toBeGreaterThan(300);
    expect(grown('iwarp_objects_mr')).toBeGreaterThan(0);
    expect(after.get('iwarp_connections')).toBeGreaterThanOrEqual(2);
    expect(after.get('iwarp_listeners')).toBeGreaterThanOrEqual(1);
  });

  it.each([
    [['nonsense']],
    [['resource', 'ctx']],
    [['--colour']],
    [['qp', 'qp']],
    [['toString']],
    [['resource', '__proto__']],
  ])('%j is wrong usage', async (args) => {
    expect(await stat(args)).toBe(2);
    expect(output.err).toContain('usage: iwarp stat');
  });

  it('says how processes show themselves when none does', async () => {
    expect(await stat([])).toBe(1);
    expect(output.err).toContain('IWARP_CONTROL=1');
    expect((await lines(stat, '--help')).join('\n')).toContain('usage: iwarp stat');
  });
});

describe('iwarp devinfo', () => {
  it('shows devices in the layout of ibv_devinfo', async () => {
    control = await serveControl();
    await busyPair();
    const text = (await lines(devinfo)).join('\n');
    expect(text).toMatch(
      new RegExp(
        '^hca_id:\\tiwarp0\\n' +
          '\\ttransport:\\t\\t\\tiWARP \\(1\\)\\n' +
          '\\tfw_ver:\\t\\t\\t\\t\\d+\\.\\d+\\.\\d+\\n' +
          '\\tnode_guid:\\t\\t\\t0200:',
      ),
    );
    expect(text).toContain(
      '\tphys_port_cnt:\t\t\t1\n' +
        '\t\tport:\t1\n' +
        '\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n' +
        '\t\t\tmax_mtu:\t\t4096 (5)\n',
    );
    expect(text).not.toContain('max_qp_wr');
    const verbose = (await lines(devinfo, '-v', '-d', 'iwarp0')).join('\n');
    expect(verbose).toContain(
      '\tmax_qp:\t\t\t\t65536\n' +
        '\tmax_qp_wr:\t\t\t65536\n' +
        '\tdevice_cap_flags:\t\t0x00222001\n' +
        '\t\t\t\t\tRESIZE_MAX_WR\n',
    );
    expect(verbose).toContain('\tmax_total_mcast_qp_attach:\t0\n\tmax_ah:\t\t\t\t0\n');
    expect(verbose).toContain(
      '\t\t\tlink_layer:\t\tEthernet\n\t\t\tmax_msg_sz:\t\t0xffffffff\n\t\t\tport_cap_flags:\t\t0x00000000\n',
    );
    expect(verbose).toContain('\tatomic_cap:\t\t\tATOMIC_HCA (1)\n');
    expect((await lines(devinfo, '-l'))[0]).toMatch(/^\d+ HCAs? found:$/);
  });

  it('finds nothing when nothing shows itself, and refuses wrong flags', async () => {
    expect(await devinfo([])).toBe(1);
    expect(output.err).toBe('No IB devices found\n');
    expect(await devinfo(['-d', 'siw0'])).toBe(1);
    expect(output.err).toContain("IB device 'siw0' wasn't found\n");
    expect(await devinfo(['--colour'])).toBe(2);
    expect(await devinfo(['-i', '2'])).toBe(2);
  });
});

describe('a process that is too busy to answer', () => {
  it('is named, whether others answer or not, unless another is asked for', async () => {
    const heard: Socket[] = [];
    const busy = createServer((socket) => void heard.push(socket)).listen(
      join(controlFolder(), '999999.sock'),
    );
    await once(busy, 'listening');
    for (const run of [stat, devinfo]) {
      const tool = run === stat ? 'stat' : 'devinfo';
      output.err = '';
      expect(await run([])).toBe(1);
      expect(output.err).toBe(`${tool}: process 999999 does not answer: its program may be computing\n`);
    }
    control = await serveControl();
    output.err = '';
    expect(await stat(['--pid', String(process.pid)])).toBe(0);
    expect(output.err).toBe('');
    expect(await stat([])).toBe(0);
    expect(output.err).toContain('process 999999 does not answer');
    for (const socket of heard) socket.destroy();
    busy.close();
    await once(busy, 'close');
  });
});

describe('a process whose answer is no state that this version knows', () => {
  it.each([
    '5',
    'null',
    '{}',
    '[]',
    '{"pid":1,"comm":"old","version":"0.0.1","node":"v20","devices":[{"attributes":{"name":"iwarp0"}}]}',
  ])('%s: is named, and the others are shown', async (answer) => {
    const strange = createServer((socket) => void socket.end(answer)).listen(
      join(controlFolder(), '999999.sock'),
    );
    await once(strange, 'listening');
    expect(await devinfo([])).toBe(1);
    expect(output.err).toBe(
      'devinfo: process 999999 answers what this version cannot show: it may be of another one\n',
    );
    await busyPair();
    control = await serveControl();
    for (const run of [stat, devinfo]) {
      output.err = '';
      expect((await lines(run)).length).toBeGreaterThan(0);
      expect(output.err).toContain('process 999999 answers what this version cannot show');
    }
    strange.close();
    await once(strange, 'close');
  });
});

describe('hostile processes of the same user', () => {
  const serve = async (act: (socket: Socket) => void): Promise<{ end(): Promise<void> }> => {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket.on('error', () => undefined));
      act(socket);
    }).listen(join(controlFolder(), '999999.sock'));
    await once(server, 'listening');
    const end = async (): Promise<void> => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    };
    return { end };
  };

  it('an answer without end is given up early, by name', async () => {
    const part = Buffer.alloc(1 << 20, 0x20);
    let sent = 0;
    const server = await serve((socket) => {
      const more = (): void => {
        while (!socket.destroyed && sent < 300) {
          sent++;
          if (!socket.write(part)) return void socket.once('drain', more);
        }
      };
      more();
    });
    expect(await stat([])).toBe(1);
    expect(output.err).toContain('process 999999 answers more than any state has');
    expect(sent).toBeLessThan(100);
    await server.end();
  });

  it('random and damaged answers neither throw nor end the tool', async () => {
    await busyPair();
    const good = JSON.stringify(snapshot());
    const random = seededRandom(11);
    let answer = '';
    const server = await serve((socket) => void socket.end(answer));
    for (let i = 0; i < 200; i++) {
      const at = random() % good.length;
      const junk = ['"', '{', ']', 'null', '\u0000', '9e999', '\u001b[2J', '__proto__', ''][random() % 9]!;
      answer = good.slice(0, at) + junk + good.slice(at + (random() % 40));
      output.out = '';
      expect([0, 1]).toContain(await (i % 2 === 0 ? stat([]) : devinfo([])));
      // A control character in a terminal's hands could rewrite what stands there.
      expect(output.out).not.toMatch(/(?![\t\n])\p{Cc}/u);
    }
    await server.end();
  });

  it('control characters of names are shown escaped', async () => {
    await busyPair();
    const answer = JSON.stringify({ ...snapshot(), comm: 'evil\u001b[31m\u202e\u009b2J' });
    const server = await serve((socket) => void socket.end(answer));
    output.out = '';
    expect(await stat(['-d'])).toBe(0);
    expect(output.out).toContain('evil\\x1b[31m\\u{202e}\\x9b2J');
    output.out = '';
    expect(await stat(['-d', '-j'])).toBe(0);
    expect(output.out).toContain('evil\\u001b[31m\\u202e\\u009b2J');
    await server.end();
  });
});
