/**
 * Measures the cost of a message to the heap: runs Writes over loopback TCP inside one process and prints as
 * JSON how the heap grew: octets kept by each stretch after a full collection, and octets of garbage for each
 * FPDU by each. `bare` sends as many messages of the size through bare sockets. Needs --expose-gc and a young
 * generation large enough for one stretch.
 *
 *     node --expose-gc --max-semi-space-size=128 --min-semi-space-size=128 dist/bench/micro/growth.js SIZE
 * MESSAGES plain|markers|bare [STRETCHES]
 */
import { connect, createServer, type Socket } from 'node:net';
import { openRnic } from '../../src/api/environment.ts';
import { adopt } from '../../src/transport/adopt.ts';
import { ACCESS, createWorkCompletion, type QueuePair } from '../../src/verbs/index.ts';

/** The printed result. */
export interface Growth {
  /** FPDUs of the stretches that count for `kept`, messages where there are none. */
  readonly fpdus: number;
  /** Octets that a stretch has left after a full collection, for each stretch. */
  readonly kept: readonly number[];
  /** Octets of garbage for each FPDU, for each stretch. */
  readonly garbage: readonly number[];
}

/** One end that sends, one that receives. */
interface Path {
  readonly run: (count: number) => Promise<void>;
  /** FPDUs sent so far. */
  readonly fpdus: () => number;
}

const DEPTH = 16;
const WARM_STRETCHES = 6;
const READ_OCTETS = 65_536;

/** Keep `DEPTH` messages under way until `count` are done. */
function keepUnderWay(send: () => void): { readonly run: Path['run']; readonly done: () => void } {
  let left = 0;
  let pending = 0;
  let finished: () => void = () => undefined;
  const next = (): void => {
    left--;
    pending++;
    send();
  };
  return {
    run: (count) => {
      left = count;
      return new Promise((resolve) => {
        finished = resolve;
        for (let i = 0; i < DEPTH; i++) next();
      });
    },
    done: () => {
      pending--;
      if (left > 0) next();
      else if (pending === 0) finished();
    },
  };
}

async function stack(size: number, markers: boolean): Promise<Path> {
  const rnic = openRnic();
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(1024);
  const make = (): QueuePair => pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 64 });
  const [client, server] = [make(), make()];
  const memory = pd.registerMemory(
    rnic.device.allocateMemory(1 << 20),
    ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE,
  );
  const request = {
    opcode: 'rdma-write',
    sges: [{ mr: memory, length: size }],
    rkey: memory.rkey,
    remoteAddr: 0,
  } as const;
  const out = Array.from({ length: 64 }, createWorkCompletion);
  const { run, done } = keepUnderWay(() => client.postSend(request));
  cq.setHandler(() => {
    for (let n = cq.poll(out); n > 0; n = cq.poll(out)) {
      for (let i = 0; i < n; i++) {
        if (out[i]!.status !== 'success') throw new Error(out[i]!.status);
        done();
      }
    }
    cq.requestNotify();
  });
  cq.requestNotify();
  const policy = { markers };
  const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0, policy }, (connection) =>
    connection.accept(server),
  );
  const connection = rnic.cm.connect(client, { host: '127.0.0.1', port: listener.address.port, policy });
  await new Promise<void>((resolve) =>
    connection.setHandler((event) => event.type === 'established' && resolve()),
  );
  return { run, fpdus: () => client.counters()!.fpdusOut };
}

/** The receiving end reads into one buffer, as the stack's does. */
async function bare(size: number): Promise<Path> {
  const payload = new Uint8Array(size);
  let sent = 0;
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (accepted) => {
    adopt(accepted, { buffer: new Uint8Array(READ_OCTETS), callback: () => true }).socket.resume();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const socket: Socket = connect({
    host: '127.0.0.1',
    port: (server.address() as { port: number }).port,
    noDelay: true,
  });
  await new Promise<void>((resolve) => socket.once('connect', resolve));
  const { run, done } = keepUnderWay(() => {
    sent++;
    socket.write(payload, done);
  });
  return { run, fpdus: () => sent };
}

async function measure({ run, fpdus }: Path, stretch: number, stretches: number): Promise<Growth> {
  const collect = (globalThis as unknown as { gc: () => void }).gc;
  const heap = (): number => process.memoryUsage().heapUsed;
  const settled = (): number => {
    collect();
    collect();
    return heap();
  };
  for (let i = 0; i < WARM_STRETCHES; i++) await run(stretch);
  const first = fpdus();
  const kept: number[] = [];
  for (let i = 0, before = settled(); i < stretches; i++) {
    await run(stretch);
    const after = settled();
    kept.push(after - before);
    before = after;
  }
  const counted = fpdus() - first;
  const garbage: number[] = [];
  for (let i = 0; i < stretches; i++) {
    const from = settled();
    await run(stretch);
    garbage.push((heap() - from) / (counted / stretches));
  }
  return { fpdus: counted, kept, garbage };
}

async function main([size, stretch, how, stretches = '4']: readonly string[]): Promise<void> {
  const path = how === 'bare' ? await bare(Number(size)) : await stack(Number(size), how === 'markers');
  console.log(JSON.stringify(await measure(path, Number(stretch), Number(stretches))));
  process.exit(0);
}

if (process.argv[1] !== undefined && /growth\.[jt]s$/.test(process.argv[1]))
  await main(process.argv.slice(2));
