/**
 * Linux's own block device driver on our server: a file system made, filled, unmounted, mounted again and
 * compared, which is the test of the paper "Queue-Pair IP". The driver speaks TCP; what lies behind it are
 * our server's byte streams, its queue pairs over plain TCP, or `attach`, which goes on over iWARP.
 */
import { check, type Bench, type InteropCase, type ToolProcess } from './bench.ts';

/** Bytes of the export and of the file that is copied. */
const SIZE = '64M';
const FILE_BYTES = 24 * 1024 * 1024;

/** Makes the server; returns the port to which the guest connects. */
type Serve = (bench: Bench) => Promise<number>;

interface Way {
  readonly name: string;
  readonly serve: Serve;
}

/** `iwarp nbd ARGS...`, listening on `port`. */
async function start(bench: Bench, args: readonly string[], port: number): Promise<ToolProcess> {
  return await bench.startListening(['nbd', ...args], port);
}

const WAYS: readonly Way[] = [
  {
    name: 'byte stream over TCP',
    async serve(bench) {
      const port = await bench.freePort();
      await start(bench, ['serve', '--memory', SIZE, '--nbd', `${bench.peer.bindAddress}:${port}`], port);
      return port;
    },
  },
  ...(['thread', 'worker'] as const).map(
    (engine): Way => ({
      name: `queue pairs over plain TCP, engine ${engine}`,
      async serve(bench) {
        const port = await bench.freePort();
        const where = ['--rdma', `${bench.peer.bindAddress}:${port}`, '--wire', 'qpip', '--engine', engine];
        await start(bench, ['serve', '--memory', SIZE, ...where], port);
        return port;
      },
    }),
  ),
  ...(['message', 'direct'] as const).map(
    (mode): Way => ({
      name: `attach, ${mode} mode over iWARP`,
      async serve(bench) {
        const far = await bench.freePort();
        await start(bench, ['serve', '--memory', SIZE, '--rdma', `127.0.0.1:${far}`], far);
        const port = await bench.freePort();
        const local = ['--mode', mode, '--nbd', `${bench.peer.bindAddress}:${port}`];
        await start(bench, ['attach', `rdma://127.0.0.1:${far}`, ...local], port);
        return port;
      },
    }),
  ),
];

/** One shell command of the guest, which must succeed. */
async function step(bench: Bench, command: string): Promise<string> {
  const { status, output } = await bench.stock(command);
  check(status === 0, `${command}: status ${status}: ${output.slice(-400)}`);
  return output;
}

async function fileSystem(bench: Bench, { serve }: Way): Promise<string> {
  const port = await serve(bench);
  await step(bench, `nbd-client ${bench.peer.hostAddress} ${port} /dev/nbd0`);
  try {
    await step(bench, 'mke2fs -q -F /dev/nbd0 && mkdir -p /mnt && mount -t ext2 /dev/nbd0 /mnt');
    await step(bench, `head -c ${FILE_BYTES} /dev/urandom > /tmp/there`);
    const began = performance.now();
    await step(bench, 'cp /tmp/there /mnt/file && sync && umount /mnt');
    const seconds = (performance.now() - began) / 1000;
    // So that the file comes from the server again.
    await step(bench, 'echo 3 > /proc/sys/vm/drop_caches && mount -t ext2 /dev/nbd0 /mnt');
    await step(bench, 'cmp /tmp/there /mnt/file && umount /mnt');
    const said = await step(bench, 'e2fsck -f -n /dev/nbd0');
    // Ten that every ext2 has, lost+found, and ours.
    check(/: 12\/\d+ files/.test(said), `e2fsck does not count the file: ${said}`);
    return `ext2 with ${FILE_BYTES} bytes, written in ${seconds.toFixed(1)} s, compared, clean`;
  } finally {
    await bench.stock('umount /mnt; nbd-client -d /dev/nbd0; rm -f /tmp/there');
  }
}

/** All of these, in the order of the table. */
export const NBD_CASES: readonly InteropCase[] = WAYS.map((way) => ({
  driver: 'stock',
  tool: 'nbd-client',
  name: `and ext2 on our ${way.name}`,
  ours: 'server',
  topic: 'block',
  guestOnly: true,
  run: (bench) => fileSystem(bench, way),
}));
