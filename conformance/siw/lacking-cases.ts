/**
 * What siw does not do, shown by two stock tools in the guest with nothing of ours: each case holds the words
 * with which they give up. A kernel that learns one of these makes its case fail, and the case goes then.
 */
import { check, pause, type Bench, type InteropCase } from './bench.ts';

const SERVER_PORT = 4000;
const POLL_MS = 50;

interface Lack {
  readonly tool: string;
  readonly name: string;
  /** Command lines, the client's with the server's address for `HOST`. */
  readonly server: string;
  readonly client: string;
  /** The words of the client that gives up. */
  readonly says: RegExp;
  /** What siw lacks. */
  readonly why: string;
}

const QPERF = `qperf -lp ${SERVER_PORT}`;
const NO_RECEIVES =
  'its client asks for a queue pair without receives, and libsiw cannot map a receive queue of no octets; ' +
  'its server asks for one without sends, which siw refuses';

const LACKS: readonly Lack[] = [
  {
    tool: 'ib_atomic_bw',
    name: '-R',
    server: `ib_atomic_bw -R -n 100 -p ${SERVER_PORT}`,
    client: `ib_atomic_bw -R -n 100 -p ${SERVER_PORT} HOST`,
    says: /^Couldn't post send: .*$/m,
    why: 'siw has no atomic operations',
  },
  {
    tool: 'rping',
    name: '-q',
    server: `rping -s -P -p ${SERVER_PORT}`,
    client: `rping -c -q -C 3 -p ${SERVER_PORT} -a HOST`,
    says: /^rdma_establish: Invalid argument$/m,
    why: 'iWARP connects a queue pair by itself: there is nothing left to establish',
  },
  {
    tool: 'rdma_xclient',
    name: '-c x',
    server: `rdma_xserver -c r -p ${SERVER_PORT}`,
    client: `rdma_xclient -c x -p ${SERVER_PORT} -s HOST`,
    says: /^rdma_create_ep: Operation not supported$/m,
    why: 'siw has no XRC queue pairs',
  },
  ...['rc_bw', 'rc_rdma_write_bw', 'rc_rdma_read_bw', 'rc_rdma_read_lat', 'rc_rdma_write_poll_lat'].map(
    (test): Lack => ({
      tool: 'qperf',
      name: `-cm 1 ${test}`,
      server: QPERF,
      client: `${QPERF} -cm 1 -t 2 HOST ${test}`,
      says: /^failed to create QP: Invalid argument$/m,
      why: NO_RECEIVES,
    }),
  ),
  {
    tool: 'qperf',
    name: '-cm 1 rc_rdma_write_lat',
    server: QPERF,
    client: `${QPERF} -cm 1 -t 2 HOST rc_rdma_write_lat`,
    says: /^failed to post rdma write with immediate$/m,
    why: 'siw has no RDMA Write with Immediate Data',
  },
];

async function run(bench: Bench, { server, client, says, why }: Lack): Promise<string> {
  await bench.listening(server, SERVER_PORT);
  const refused = bench.remote(client.replace('HOST', bench.peer.address));
  let status: number | undefined;
  void refused.ended.then((end) => (status = end.status));
  const until = Date.now() + bench.patience;
  // Some wait for ever once they have said it, and end with the case.
  while (!says.test(refused.output) && status === undefined && Date.now() < until) await pause(POLL_MS);
  const words = says.exec(refused.output)?.[0];
  check(words !== undefined, `no ${says}: status ${status}, ${refused.output.slice(-400)}`);
  check(status !== 0, `it went through: ${refused.output.slice(-400)}`);
  return `"${words}": ${why}`;
}

/** All of these, in the order of the table. */
export const LACKING_CASES: readonly InteropCase[] = LACKS.map((lack) => ({
  driver: 'stock',
  tool: lack.tool,
  name: lack.name,
  ours: 'nothing',
  topic: 'lacking',
  run: (bench) => run(bench, lack),
}));
