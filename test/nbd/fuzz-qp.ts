/**
 * Both ends of NBD over queue pairs for the fuzzer, on a network in memory: a client that sends mutated
 * set-ups and requests to a server of ours, and a server that sends mutated grants and replies to a client.
 */
import { openRnic } from '../../src/index.ts';
import { connect, createServer, memoryDevice } from '../../src/nbd/index.ts';
import { decodeDirectRequest, encodeGrant, encodeRemoteMemory, encodeSetup } from '../../src/nbd/qp-wire.ts';
import { decodeRequest, viewOf } from '../../src/nbd/wire.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { ACCESS, createWorkCompletion, type MemoryRegion, type QueuePair } from '../../src/verbs/index.ts';
import { Chance, mutate, ours, REQUESTS, simple, strict } from './fuzz.ts';

const HOST = '10.0.0.1';
const MODES = ['message', 'direct'] as const;
const network = new MemoryTransport(realScheduler);
const rnic = openRnic({ transport: network });
/** Longest message of either side; longer ones are cut. Requests write at most 1024 bytes here. */
const MESSAGE_BYTES = 4096;
const RECEIVES = 16;

/** One queue pair with receives and memory for the peer. */
class End {
  readonly pd = rnic.device.allocatePd();
  readonly cq = rnic.device.createCq(256);
  readonly qp: QueuePair = this.pd.createQp({
    sendCq: this.cq,
    recvCq: this.cq,
    maxSendWr: 64,
    maxRecvWr: RECEIVES,
    maxInline: MESSAGE_BYTES,
  });
  readonly inbox: MemoryRegion = this.pd.registerMemory(new Uint8Array(MESSAGE_BYTES), ACCESS.LOCAL_WRITE);
  readonly memory: MemoryRegion = this.pd.registerMemory(
    new Uint8Array(MESSAGE_BYTES),
    ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ,
  );

  constructor() {
    for (let i = 0; i < RECEIVES; i++) this.qp.postRecv({ sges: [{ mr: this.inbox }] });
  }

  /** Messages that have come since the last call. All lie in the same memory, one at a time. */
  messages(): Uint8Array[] {
    const out = [createWorkCompletion()];
    const found: Uint8Array[] = [];
    while (this.cq.poll(out, 1) > 0) {
      const { opcode, status, byteLength } = out[0]!;
      if (opcode === 'receive' && status === 'success') found.push(this.inbox.bytes.slice(0, byteLength));
    }
    return found;
  }

  send(message: Uint8Array): void {
    const inline = message.subarray(0, MESSAGE_BYTES);
    this.qp.postSend({ opcode: 'send', inline, signaled: false });
  }

  destroy(): void {
    this.qp.destroy();
    this.cq.destroy();
    this.inbox.deregister();
    this.memory.deregister();
    this.pd.deallocate();
  }
}

let serving: Promise<number> | null = null;
/** The server of all inputs: one device that checks its ranges, and one that is memory. */
async function serve(): Promise<number> {
  const server = createServer({ exports: { disk: strict(), memory: memoryDevice({ size: 4096 }) } });
  return (await server.listenRdma({ host: HOST, rnic })).port;
}

export async function fuzzQpServer(chance: Chance): Promise<void> {
  const port = await (serving ??= serve());
  const mode = chance.pick(MODES);
  const setup = encodeSetup({ version: 1, mode, depth: 4, name: chance.pick(['disk', 'memory']) });
  const privateData = chance.below(8) === 0 ? mutate(chance, setup) : setup;
  const end = new End();
  const connection = rnic.cm.connect(end.qp, { host: HOST, port, privateData });
  await new Promise<void>((resolve) =>
    connection.setHandler(({ type }) => {
      if (type === 'rejected' || type === 'connect-error' || type === 'disconnected') return resolve();
      if (type !== 'established') return;
      for (let i = 1 + chance.below(6); i > 0; i--) {
        const request = chance.pick(REQUESTS);
        const message = mode === 'direct' ? withMemory(request, end.memory) : request;
        end.send(mutate(chance, message));
      }
      if (chance.below(2) === 0) connection.disconnect();
      else setImmediate(() => connection.abort());
    }),
  );
  end.destroy();
}

/** A request of direct mode has no data behind it. */
function withMemory(request: Uint8Array, { rkey, addr }: MemoryRegion): Uint8Array {
  const bytes = new Uint8Array(44);
  bytes.set(request.subarray(0, 28));
  encodeRemoteMemory(viewOf(bytes), 28, { stag: rkey, to: addr });
  return bytes;
}

const GRANT = encodeGrant({
  size: 4096n,
  flags: 0b1101,
  blocks: { minimum: 1, preferred: 512, maximum: 1024 },
});

/** A server that answers what it is asked, mutated, and leaves at some time. */
async function wilfulServer(chance: Chance, direct: boolean): Promise<number> {
  const end = new End();
  const privateData = chance.below(8) === 0 ? mutate(chance, GRANT) : GRANT;
  const listener = await rnic.cm.listen({ host: HOST, port: 0 }, (request) => {
    listener.close();
    request.setHandler(({ type }) => {
      if (type === 'disconnected') end.destroy();
      else if (type === 'established') setTimeout(() => request.disconnect(), 1);
    });
    request.accept(end.qp, { privateData });
  });
  end.cq.setHandler(() => {
    for (const message of end.messages()) answer(chance, end, message, direct);
    end.cq.requestNotify();
  });
  end.cq.requestNotify();
  return listener.address.port;
}

function answer(chance: Chance, end: End, message: Uint8Array, direct: boolean): void {
  const decoded = direct ? decodeDirectRequest(message) : null;
  const request = decoded?.request ?? decodeRequest(viewOf(message));
  if (request === null) return;
  const { command, cookieLo, length } = request;
  if (decoded !== null && command === 0 && chance.below(4) > 0)
    end.qp.postSend({
      opcode: chance.below(8) === 0 ? 'rdma-read' : 'rdma-write',
      sges: [{ mr: end.memory, length: chance.below(8) === 0 ? length + 1 : length }],
      rkey: decoded.memory.stag,
      remoteAddr: decoded.memory.to,
    });
  const reply = simple(cookieLo, chance.below(8) === 0 ? 28 : 0);
  const data = !direct && command === 0 ? Buffer.alloc(length, 1) : Buffer.alloc(0);
  for (let i = chance.below(8) === 0 ? 2 : 1; i > 0; i--)
    end.send(
      chance.below(3) === 0 ? mutate(chance, Buffer.concat([reply, data])) : Buffer.concat([reply, data]),
    );
}

export async function fuzzQpClient(chance: Chance): Promise<void> {
  const mode = chance.pick(MODES);
  const port = await wilfulServer(chance, mode === 'direct');
  const opened = connect({ uri: `rdma://${HOST}:${port}/disk`, rnic, mode, depth: 4 });
  const remote = await opened.catch((error: unknown) => void ours(error));
  if (remote === undefined) return;
  const memory = new Uint8Array(1024);
  const calls = [
    remote.read(memory.subarray(256, 768), 0n),
    remote.write(new Uint8Array(64), 0n),
    remote.flush?.() ?? Promise.resolve(),
    remote.read(memory.subarray(256, 300), 512n),
  ];
  await Promise.all(calls.map((call) => call.catch(ours)));
  await remote.close();
  if (memory.subarray(0, 256).some(Boolean) || memory.subarray(768).some(Boolean))
    throw new Error('a reply has written beside the memory of its caller');
}
