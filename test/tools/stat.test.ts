/** `iwarp stat` and `iwarp devinfo` against a running process (this one), over the control socket. */
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { serveControl, type ControlServer } from '../../src/index.ts';
import { run as devinfo } from '../../src/tools/devinfo.ts';
import { run as stat } from '../../src/tools/stat.ts';
import { askAll, controlFolder } from '../../src/tools/support/control-socket.ts';
import { pairOf, pattern, type Ends } from '../api/support.ts';

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
  ends = await pairOf('memory');
  const { client, server } = ends;
  const region = server.register(new Uint8Array(4096), 'read-write');
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

describe('the control socket', () => {
  it('lies in a folder that only this user can enter, answers with the state, and goes away when closed', async () => {
    control = await serveControl();
    expect(await serveControl()).toBe(control);
    expect(statSync(controlFolder()).mode & 0o777).toBe(0o700);
    expect(statSync(control.path).mode & 0o777).toBe(0o600);
    await busyPair();
    const [answer, ...others] = await askAll();
    expect(others).toEqual([]);
    expect(answer!.pid).toBe(process.pid);
    const device = answer!.devices.at(-1)!;
    expect(device.attributes.inUse).toMatchObject({ qp: 2, cq: 2 });
    expect(device.connections).toHaveLength(2);
    await control.close();
    control = null;
    expect(await askAll()).toEqual([]);
  });

  it('is refused in a folder that others can enter, or that is not one', async () => {
    mkdirSync(join(runtime, 'iwarp'));
    chmodSync(join(runtime, 'iwarp'), 0o755);
    await expect(serveControl()).rejects.toMatchObject({ code: 'ERR_ACCESS' });
    rmSync(join(runtime, 'iwarp'), { recursive: true });
    mkdirSync(join(runtime, 'elsewhere'), { mode: 0o700 });
    symlinkSync(join(runtime, 'elsewhere'), join(runtime, 'iwarp'));
    await expect(serveControl()).rejects.toMatchObject({ code: 'ERR_ACCESS' });
  });

  it('a socket that nobody serves is passed over and cleared away', async () => {
    const folder = controlFolder();
    const left = join(folder, '999999.sock');
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(folder, 'x.sock'), resolve));
    await new Promise((resolve) => server.close(resolve));
    writeFileSync(left, '');
    expect(await askAll()).toEqual([]);
    expect(readdirSync(folder)).toEqual([]);
  });
});

describe('iwarp stat', () => {
  it('shows the counters of devices and connections in the layout of rdma statistic', async () => {
    control = await serveControl();
    await busyPair();
    const line = (await lines(stat)).at(-1)!;
    expect(line).toMatch(/^link iwarp0\/1 in_fpdus \d+ out_fpdus \d+ /);
    expect(line).toMatch(/ out_rdma_writes 1 out_rdma_reads 2 /); // the second Read is the RTR message
    expect(line).toMatch(/ in_rdma_sends 1 /);
    expect(line).toContain(' crc_errors 0 marker_errors 0 ');
    expect(line).toContain(` connections_established 2 connections_rejected 0 connections_failed 0 connections_closed 0 connections_broken 0 pid ${process.pid} `);
    const perQp = (await lines(stat, 'qp')).slice(-2);
    for (const each of perQp) expect(each).toMatch(/^link iwarp0\/1 lqpn \d+ pid \d+ comm \S+ in_fpdus \d+ /);
  });

  it('shows the objects in the layout of rdma resource, as text and as JSON', async () => {
    control = await serveControl();
    await busyPair();
    expect((await lines(stat, 'resource')).at(-1)).toMatch(/^iwarp0: pd 2 cq 2 qp 2 cm_id 2 mr 3 mw 0 srq 0 pid \d+ comm \S+ $/);
    expect((await lines(stat, 'resource', 'qp')).at(-1)).toMatch(/^link iwarp0\/1 lqpn \d+ type RC state RTS sq-psn 0 pdn \d+ sq-outstanding 0 rq-posted 68 pid \d+ comm \S+ $/);
    expect((await lines(stat, 'resource', 'show', 'cm_id')).at(-1)).toMatch(
      /^link iwarp0\/1 cm-idn 1 lqpn \d+ qp-type RC state CONNECT ps TCP pid \d+ comm \S+ src-addr 127\.0\.0\.1:\d+ dst-addr 127\.0\.0\.1:\d+ $/,
    );
    expect((await lines(stat, 'resource', 'cq')).at(-1)).toMatch(/^dev iwarp0 cqn \d+ cqe 325 users 2 pid /);
    expect((await lines(stat, 'resource', 'mr')).at(-1)).toMatch(/^dev iwarp0 mrn \d+ mrlen 4096 pdn \d+ pid /);
    expect((await lines(stat, 'resource', 'pd')).at(-1)).toMatch(/^dev iwarp0 pdn \d+ users \d+ pid /);
    const json = JSON.parse((await lines(stat, '-j', 'resource', 'qp')).join('')) as Record<string, unknown>[];
    expect(json.at(-1)).toMatchObject({ ifname: 'iwarp0/1', type: 'RC', state: 'RTS', pid: process.pid });
    expect((await lines(stat, '-p', 'resource', 'pd')).length).toBeGreaterThan(4);
    expect(await stat(['--pid', '1'])).toBe(1);
  });

  it.each([[['nonsense']], [['resource', 'ctx']], [['--colour']], [['qp', 'qp']]])('%j is wrong usage', async (args) => {
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
    expect(text).toMatch(/^hca_id:\tiwarp0\n\ttransport:\t\t\tiWARP \(1\)\n\tfw_ver:\t\t\t\t\d+\.\d+\.\d+\n\tnode_guid:\t\t\t0200:/);
    expect(text).toMatch(/\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE \(4\)\n\t\t\tmax_mtu:\t\t4096 \(5\)\n/);
    expect(text).not.toContain('max_qp_wr');
    const verbose = (await lines(devinfo, '-v', '-d', 'iwarp0')).join('\n');
    expect(verbose).toContain('\tmax_qp:\t\t\t\t65536\n\tmax_qp_wr:\t\t\t65536\n');
    expect(verbose).toContain('\tatomic_cap:\t\t\tATOMIC_HCA (1)\n');
    expect((await lines(devinfo, '-l'))[0]).toMatch(/^\d+ HCAs? found:$/);
  });

  it('finds nothing when nothing shows itself, and refuses wrong flags', async () => {
    expect(await devinfo([])).toBe(1);
    expect(output.err).toBe('No IB devices found\n');
    expect(await devinfo(['--colour'])).toBe(2);
  });
});
