/**
 * The control socket: its permissions, the removal of stale ones, and that it never harms the program that it
 * shows.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { serveControl, type ControlServer } from '../../src/index.ts';
import { askAll, controlFolder } from '../../src/observe/control-socket.ts';
import { pairOf } from '../api/support.ts';
import { plain } from '../support/plain.ts';

// The stack holds Node's timers; here it follows the fake clock of a test.
vi.mock('node:timers', async (original) => ({
  ...(await original<typeof import('node:timers')>()),
  setTimeout: (...given: Parameters<typeof setTimeout>) => globalThis.setTimeout(...given),
}));

const CHILD = plain('test/observe/shown.child.ts');

let runtime: string;
let control: ControlServer | null = null;
const children: ChildProcess[] = [];

beforeEach(() => {
  runtime = mkdtempSync(join(tmpdir(), 'iwarp-control-'));
  vi.stubEnv('XDG_RUNTIME_DIR', runtime);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await control?.close();
  control = null;
  for (const child of children.splice(0)) child.kill('SIGKILL');
  rmSync(runtime, { recursive: true, force: true });
});

/** Start the child program; settles with its first line of output. */
async function start(
  name: string,
  env: NodeJS.ProcessEnv,
  ...args: string[]
): Promise<{ child: ChildProcess; line: string }> {
  const child = spawn(process.execPath, [CHILD, name, ...args], {
    env: { ...process.env, XDG_RUNTIME_DIR: runtime, ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  children.push(child);
  const [output] = (await once(child.stdout!, 'data')) as [Buffer];
  return { child, line: output.toString() };
}

describe('the control socket', () => {
  it('lies in a folder that only this user can enter, gives the state, and goes when closed', async () => {
    control = await serveControl();
    expect(await serveControl()).toBe(control);
    expect(statSync(controlFolder()).mode & 0o777).toBe(0o700);
    expect(statSync(control.path).mode & 0o777).toBe(0o600);
    const ends = await pairOf('memory');
    const [answer, ...others] = await askAll();
    expect(others).toEqual([]);
    expect(answer!.pid).toBe(process.pid);
    const device = answer!.devices.at(-1)!;
    expect(device.attributes.inUse).toMatchObject({ qp: 2, cq: 2 });
    expect(device.connections).toHaveLength(2);
    expect(device.listeners).toHaveLength(1);
    await ends.close();
    await control.close();
    control = null;
    expect(await askAll()).toEqual([]);
  });

  it('is refused in a folder that others can enter, or that is a link', async () => {
    mkdirSync(join(runtime, 'iwarp'));
    chmodSync(join(runtime, 'iwarp'), 0o755);
    await expect(serveControl()).rejects.toMatchObject({ code: 'ERR_ACCESS' });
    rmSync(join(runtime, 'iwarp'), { recursive: true });
    mkdirSync(join(runtime, 'elsewhere'), { mode: 0o700 });
    symlinkSync(join(runtime, 'elsewhere'), join(runtime, 'iwarp'));
    await expect(serveControl()).rejects.toMatchObject({ code: 'ERR_ACCESS' });
    expect(readdirSync(join(runtime, 'elsewhere'))).toEqual([]);
  });

  // Only root can give a folder away; for others the same check is seen from the other side: root's folder.
  it('is refused in a folder of another user', async () => {
    const folder = join(runtime, 'iwarp');
    mkdirSync(folder, { mode: 0o700 });
    const root = process.getuid!() === 0;
    if (root) chownSync(folder, 65_534, 65_534);
    else vi.spyOn(process as { geteuid: () => number }, 'geteuid').mockReturnValue(0);
    await expect(serveControl()).rejects.toMatchObject({ code: 'ERR_ACCESS' });
    await expect(askAll()).rejects.toMatchObject({ code: 'ERR_ACCESS' });
    vi.restoreAllMocks();
    expect(readdirSync(folder)).toEqual([]);
  });

  it('is refused where no folder can be made, and where its path is too long for a socket', async () => {
    vi.stubEnv('XDG_RUNTIME_DIR', join(runtime, 'missing'));
    await expect(serveControl()).rejects.toMatchObject({ code: 'ERR_ACCESS' });
    const long = join(runtime, 'x'.repeat(120));
    mkdirSync(long);
    vi.stubEnv('XDG_RUNTIME_DIR', long);
    await expect(serveControl()).rejects.toMatchObject({
      code: 'ERR_CONNECT',
      message: expect.stringMatching(/\.sock has \d+ bytes, more than/) as string,
    });
    // Nor is there one under a shortened name, outside of the folder that guards it.
    expect(readdirSync(long)).toEqual(['iwarp']);
    expect(readdirSync(join(long, 'iwarp'))).toEqual([]);
    expect(readdirSync(runtime)).toEqual(['x'.repeat(120)]);
  });

  it('passes over the names of others with its number, and then listens once', async () => {
    const folder = controlFolder();
    const others = await Promise.all(
      ['', '-1'].map(async (suffix) => {
        const other = createServer((socket) => socket.end('{}'));
        await new Promise<void>((resolve) =>
          other.listen(join(folder, `${process.pid}${suffix}.sock`), resolve),
        );
        return other;
      }),
    );
    chmodSync(join(folder, `${process.pid}.sock`), 0o644);
    control = await serveControl();
    expect(control.path).toBe(join(folder, `${process.pid}-2.sock`));
    expect(statSync(join(folder, `${process.pid}.sock`)).mode & 0o777).toBe(0o644);
    for (const other of others) other.close();
  });

  it("a dead process's name is skipped and cleared, or reused by the next of that number", async () => {
    const folder = controlFolder();
    const left = join(folder, '999999.sock');
    writeFileSync(left, '');
    expect(await askAll()).toEqual([]);
    expect(readdirSync(folder)).toEqual([]);
    writeFileSync(join(folder, `${process.pid}.sock`), '');
    control = await serveControl();
    expect(control.path).toBe(join(folder, `${process.pid}.sock`));
    expect(await askAll()).toHaveLength(1);
  });

  it('a process whose answer never ends is not waited for', async () => {
    const served = createServer((socket) => {
      const more = setInterval(() => socket.write(' '), 100);
      socket.on('error', () => undefined).on('close', () => clearInterval(more));
    }).listen(join(controlFolder(), '999999.sock'));
    await once(served, 'listening');
    vi.useFakeTimers({ toFake: ['setTimeout'] });
    const unshown: unknown[] = [];
    const answers = askAll((...one) => void unshown.push(one));
    vi.advanceTimersByTime(20_000);
    vi.useRealTimers();
    expect(await answers).toEqual([]);
    expect(unshown).toEqual([[999_999, 'silent']]);
    served.close();
    await once(served, 'close');
  });

  it('a client that connects and never reads is not waited for', async () => {
    control = await serveControl();
    const idle = connect(control.path);
    await once(idle, 'connect');
    idle.pause();
    expect(await askAll()).toHaveLength(1);
    idle.destroy();
    await once(idle, 'close');
  });
});

describe('IWARP_CONTROL=1', () => {
  it('shows every process that opens a device, each by itself, until it ends', async () => {
    const [first, second] = await Promise.all([
      start('left0', { IWARP_CONTROL: '1' }),
      start('right0', { IWARP_CONTROL: '1' }),
    ]);
    expect([first.line, second.line]).toEqual(['up\n', 'up\n']);
    const names = async (): Promise<string[]> =>
      (await askAll()).flatMap(({ devices }) => devices.map(({ attributes }) => attributes.name)).sort();
    expect(await names()).toEqual(['left0', 'right0']);
    // One ends in order and takes its socket along, the other one is killed and leaves it behind.
    first.child.stdin!.end();
    expect(await once(first.child, 'exit')).toEqual([0, null]);
    expect(await names()).toEqual(['right0']);
    second.child.kill('SIGKILL');
    await once(second.child, 'exit');
    expect(existsSync(join(runtime, 'iwarp', `${second.child.pid}.sock`))).toBe(true);
    expect(await names()).toEqual([]);
    expect(existsSync(join(runtime, 'iwarp', `${second.child.pid}.sock`))).toBe(false);
  });

  it('does not keep a process alive, and does nothing where it is not set', async () => {
    const child = spawn(process.execPath, [CHILD, 'brief0', 'exit'], {
      env: { ...process.env, IWARP_CONTROL: '1' },
      stdio: 'ignore',
    });
    children.push(child);
    expect(await once(child, 'exit')).toEqual([0, null]);
    expect(readdirSync(join(runtime, 'iwarp'))).toEqual([]);
    const { child: silent } = await start('silent0', { IWARP_CONTROL: '' });
    expect(await askAll()).toEqual([]);
    silent.stdin!.end();
    expect(await once(silent, 'exit')).toEqual([0, null]);
  });

  it('a socket that cannot be had is a warning with a code, and the program goes on', async () => {
    mkdirSync(join(runtime, 'iwarp'));
    chmodSync(join(runtime, 'iwarp'), 0o777);
    const { child, line } = await start('refused0', { IWARP_CONTROL: '1', NODE_NO_WARNINGS: '1' });
    expect(line).toMatch(/^IwarpWarning ERR_ACCESS\n/);
    child.stdin!.end();
    expect(await once(child, 'exit')).toEqual([0, null]);
  });
});
