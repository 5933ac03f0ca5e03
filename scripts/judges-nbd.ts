/**
 * Judges of the block device, none of them ours: `npx tsx scripts/judges-nbd.ts` after `npm run build`.
 * libnbd, QEMU and fio use our server, directly and through `attach`; our client uses nbdkit and qemu-nbd.
 * With `--smoke` nbdcopy there and back, and our client with nbdkit's memory.
 * Installs missing tools from Debian. Prints a line for each check; the status is 1 if one failed.
 */
import { spawnSync, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { aptInstall, background, report, SMOKE, stop, sums } from './judge.ts';
import { freePort } from './ports.ts';

const COMMAND = fileURLToPath(new URL('../bin/iwarp.js', import.meta.url));
const PACKAGES: Readonly<Record<string, string>> = {
  nbdinfo: 'libnbd-bin',
  nbdkit: 'nbdkit',
  ...(SMOKE ? {} : { 'qemu-io': 'qemu-utils', fio: 'fio' }),
};
const SIZE = 64 * 1024 * 1024;
const folder = mkdtempSync(join(tmpdir(), 'iwarp-judges-'));
const path = (name: string): string => join(folder, name);

/** Runs a program; its failure is a failed check. */
function check(name: string, program: string, args: readonly string[]): string {
  const run = spawnSync(program, args, { encoding: 'utf8', timeout: 120_000, cwd: folder });
  const isFine = run.status === 0;
  report(name, isFine, isFine ? '' : `${String(run.error ?? '')}${run.stdout ?? ''}${run.stderr ?? ''}`);
  return run.stdout ?? '';
}

function iwarp(...args: string[]): [string, string[]] {
  return [process.execPath, [COMMAND, 'nbd', ...args]];
}

/** A program in the folder of the files. */
const inFolder = (program: [string, string[]], ready: RegExp | number): Promise<ChildProcess> =>
  background(program, ready, folder);

/** All that the stock tools ask of an export of SIZE bytes. */
function judge(name: string, uri: string): void {
  const size = check(`${name}: nbdinfo --size`, 'nbdinfo', ['--size', uri]).trim();
  report(`${name}: the size is ${SIZE}`, size === String(SIZE), size === String(SIZE) ? '' : size);
  for (const flag of ['flush', 'fua', 'trim', 'zero', 'multi-conn'])
    check(`${name}: nbdinfo --can ${flag}`, 'nbdinfo', ['--can', flag, uri]);
  check(`${name}: nbdcopy there`, 'nbdcopy', [path('in'), uri]);
  check(`${name}: nbdcopy back`, 'nbdcopy', [uri, path('out')]);
  check(`${name}: cmp`, 'cmp', [path('in'), path('out')]);
  if (SMOKE) return;
  const io = ['write -P 0x5a 4096 65536', 'read -P 0x5a 4096 65536', 'discard 1M 1M', 'write -z 8192 4096'];
  const more = [
    'read -P 0 8192 4096',
    'read -P 0x5a 4096 4096',
    'write -f -P 7 0 512',
    'flush',
    'read -P 7 0 512',
  ];
  const commands = [...io, ...more].flatMap((command) => ['-c', command]);
  const said = check(`${name}: qemu-io`, 'qemu-io', ['-f', 'raw', ...commands, uri]);
  report(`${name}: qemu-io reads what it wrote`, !/verification failed|error/i.test(said));
  for (const write of [[], ['-w']]) {
    const words = ['bench', '-f', 'raw', '-c', '2000', '-d', '32', '-s', '4096', '-t', 'none', ...write, uri];
    check(`${name}: qemu-img bench${write.join(' ')}`, 'qemu-img', words);
  }
  check(`${name}: fio randrw, crc32c, depth 32`, 'fio', [
    ...['--name=judge', '--ioengine=nbd', `--uri=${uri}`, '--rw=randrw', '--bs=4k-64k', '--iodepth=32'],
    ...['--size=32M', '--verify=crc32c', '--verify_fatal=1', '--randseed=7', '--minimal'],
  ]);
}

async function ourServer(engine: string): Promise<void> {
  const [nbd, rdma] = [await freePort(), await freePort()];
  const file = path('disk');
  writeFileSync(file, '');
  const server = await inFolder(
    iwarp(
      ...['serve', '--export', `memory=memory:${SIZE}`, '--export', `file=${file}`, '--size', String(SIZE)],
      ...['--nbd', `127.0.0.1:${nbd}`, '--nbd-unix', path('server')],
      ...['--rdma', `127.0.0.1:${rdma}`, '--engine', engine],
    ),
    /serving rdma:/,
  );
  if (engine === 'thread') {
    judge('memory over TCP', `nbd://127.0.0.1:${nbd}/memory`);
    judge('file over a Unix socket', `nbd+unix:///file?socket=${path('server')}`);
    check('nbdinfo --list', 'nbdinfo', ['--list', `nbd://127.0.0.1:${nbd}`]);
  }
  for (const mode of SMOKE ? ['direct'] : ['message', 'direct'])
    for (const name of ['memory', 'file']) {
      const socket = path(`attach-${mode}-${name}`);
      const words = ['attach', `rdma://127.0.0.1:${rdma}/${name}`, '--mode', mode, '--unix', socket];
      const gateway = await inFolder(iwarp(...words, '--engine', engine, '--depth', '64'), /serving/);
      judge(`${name} through attach, ${mode} mode, engine ${engine}`, `nbd+unix:///${name}?socket=${socket}`);
      await stop(gateway);
    }
  await stop(server);
}

/** Queue pairs on plain TCP: stock clients use them, and so does `attach`, whose clients are stock again. */
async function plainQueuePairs(engine: string): Promise<void> {
  const port = await freePort();
  const wire = ['--wire', 'qpip', '--engine', engine];
  const where = ['--memory', String(SIZE), '--rdma', `127.0.0.1:${port}`];
  const server = await inFolder(iwarp('serve', ...where, ...wire), /serving rdma:/);
  judge(`queue pairs on plain TCP, engine ${engine}`, `nbd://127.0.0.1:${port}`);
  const socket = path('attach-qpip');
  const words = ['attach', `rdma://127.0.0.1:${port}`, '--unix', socket, '--depth', '64'];
  const gateway = await inFolder(iwarp(...words, ...wire), /serving/);
  judge(`attach over plain TCP, engine ${engine}`, `nbd+unix:///?socket=${socket}`);
  await stop(gateway);
  await stop(server);
}

/** Without CRC the server sends from the memory of its device in place. */
async function withoutCrc(): Promise<void> {
  const port = await freePort();
  const where = ['--memory', String(SIZE), '--rdma', `127.0.0.1:${port}`, '--crc', 'off'];
  const server = await inFolder(iwarp('serve', ...where), /serving rdma:/);
  const socket = path('attach-no-crc');
  const words = ['attach', `rdma://127.0.0.1:${port}`, '--unix', socket, '--depth', '64', '--crc', 'off'];
  const gateway = await inFolder(iwarp(...words), /serving/);
  judge('attach, direct mode without CRC', `nbd+unix:///?socket=${socket}`);
  await stop(gateway);
  await stop(server);
}

async function ourClient(name: string, program: string, args: string[], uri: string): Promise<void> {
  const server = await inFolder([program, args], 700);
  check(`our client, ${name}: info`, ...iwarp('info', uri));
  check(
    `our client, ${name}: copy there`,
    ...iwarp('copy', path('in'), uri, '--quiet', '--connections', '4'),
  );
  check(
    `our client, ${name}: copy back`,
    ...iwarp('copy', uri, path('out'), '--quiet', '--connections', '4'),
  );
  report(`our client, ${name}: the same bytes`, readFileSync(path('in')).equals(readFileSync(path('out'))));
  await stop(server);
}

aptInstall(PACKAGES);
writeFileSync(path('in'), Buffer.alloc(SIZE, spawnSync('head', ['-c', '1048583', '/dev/urandom']).stdout));
try {
  for (const engine of SMOKE ? ['thread'] : ['thread', 'worker']) {
    await ourServer(engine);
    await plainQueuePairs(engine);
  }
  if (!SMOKE) await withoutCrc();
  const port = await freePort();
  const plain = ['-f', '-p', String(port), '-i', '127.0.0.1'];
  await ourClient('nbdkit memory', 'nbdkit', [...plain, 'memory', String(SIZE)], `nbd://127.0.0.1:${port}`);
  if (!SMOKE) {
    writeFileSync(path('raw'), Buffer.alloc(SIZE));
    await ourClient('nbdkit file', 'nbdkit', [...plain, 'file', path('raw')], `nbd://127.0.0.1:${port}`);
    const qemu = ['-t', '-f', 'raw', '-e', '8', '-k', path('qemu'), path('raw')];
    await ourClient('qemu-nbd', 'qemu-nbd', qemu, `nbd+unix:///?socket=${path('qemu')}`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(sums());
