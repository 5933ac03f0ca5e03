/**
 * What an FPDU costs the heap in the stack itself: two queue pairs joined by ports that make no objects,
 * messages posted in lists that exist already, completions polled into entries that do. Prints the octets of
 * garbage for each FPDU, for each stretch, as JSON on standard output. Needs
 * --expose-gc and a young generation large enough for one stretch.
 *
 *     node --expose-gc --max-semi-space-size=128 --min-semi-space-size=128 --import tsx protocol.child.ts
 * send|write OCTETS LISTS crc|off|markers
 */
import type { Scheduler } from '../../src/base/clock.ts';
import { ConnectionManager, InlineEngine } from '../../src/cm/index.ts';
import type { Port, PortAddress, PortHandler, Transport, WriteDone } from '../../src/transport/port.ts';
import {
  ACCESS,
  createWorkCompletion,
  Device,
  type QueuePair,
  type ReceiveWorkRequest,
  type SendWorkRequest,
} from '../../src/verbs/index.ts';

/** Messages of a list, all of them posted by one call. */
const LIST = 256;
const WARM_STRETCHES = 6;
const STRETCHES = 9;
const READ_OCTETS = 65_536;
const PIPE_OCTETS = 1 << 20;

/** What runs after the present call, and no timers: nobody waits here. */
class Turns implements Scheduler {
  readonly #tasks: (() => void)[] = [];
  #count = 0;

  now(): number {
    return 0;
  }

  at(): () => void {
    return () => undefined;
  }

  defer(task: () => void): void {
    this.#tasks[this.#count++] = task;
  }

  /** Run all that is deferred, and what that defers; false if there was nothing. */
  run(): boolean {
    if (this.#count === 0) return false;
    for (let i = 0; i < this.#count; i++) this.#tasks[i]!();
    this.#count = 0;
    return true;
  }
}

const ADDRESS: PortAddress = { address: '127.0.0.1', port: 1, family: 'IPv4' };

/**
 * One end, which reads into memory of the CRC engine, as sockets do. A view for a whole read is shared by all
 * its FPDUs.
 */
class Pipe implements Port {
  readonly localAddress: PortAddress = ADDRESS;
  readonly remoteAddress: PortAddress = ADDRESS;
  peer!: Pipe;
  #handler: PortHandler | null = null;
  readonly #onTheWay: Uint8Array = new Uint8Array(PIPE_OCTETS);
  readonly #memory: Uint8Array;
  #filled = 0;
  readonly #dones: (WriteDone | null)[] = [null, null];
  #writes = 0;

  constructor(memory: Uint8Array) {
    this.#memory = memory;
  }

  attach(handler: PortHandler): void {
    this.#handler = handler;
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    for (let i = 0; i < count; i++) {
      this.#onTheWay.set(chunks[i]!, this.#filled);
      this.#filled += chunks[i]!.length;
    }
    this.#dones[this.#writes++] = done;
    return true;
  }

  /** Delivers the messages on the way from here; false if there is none. */
  deliver(): boolean {
    const writes = this.#writes;
    if (writes === 0) return false;
    const { peer } = this;
    const filled = this.#filled;
    for (let at = 0; at < filled; ) {
      const into = peer.#handler!.readTarget?.() ?? peer.#memory;
      const octets = Math.min(into.length, filled - at);
      into.set(this.#onTheWay.subarray(at, at + octets));
      peer.#handler!.onData(into, 0, octets);
      at += octets;
    }
    this.#filled = this.#writes = 0;
    for (let i = 0; i < writes; i++) this.#dones[i]!(true);
    return true;
  }

  end(): void {
    throw new Error('nothing ends here');
  }

  reset(): void {
    throw new Error('a connection was reset');
  }

  pause(): void {
    throw new Error('nobody pauses here');
  }

  resume(): void {
    throw new Error('nobody pauses here');
  }
}

async function main([kind, octets, lists, how]: readonly string[]): Promise<void> {
  const turns = new Turns();
  // STags above 2^31, as every second one is: V8 makes an object of such a number where it cannot keep it in
  // a register.
  let drawn = 0xf000_0000;
  const device = new Device({
    crc32c: 'auto',
    defer: (task) => turns.defer(task),
    random: () => (drawn += 0x1_0101),
  });
  const [a, b] = [
    new Pipe(device.resources.crc.allocate(READ_OCTETS)),
    new Pipe(device.resources.crc.allocate(READ_OCTETS)),
  ];
  [a.peer, b.peer] = [b, a];
  let accept: (port: Port) => void;
  const transport: Transport = {
    connect: (_target, done) => {
      turns.defer(() => (accept(b), done(a)));
      return () => undefined;
    },
    listen: (_target, accepted, ready) => {
      accept = accepted;
      turns.defer(() => ready({ address: ADDRESS, close: () => undefined }));
    },
  };
  const cm = new ConnectionManager(device, new InlineEngine(transport, turns, device));
  const pd = device.allocatePd();
  const cq = device.createCq(4 * LIST);
  const make = (): QueuePair => pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: LIST, maxRecvWr: LIST });
  const [client, server] = [make(), make()];
  const all = (): void => {
    for (let busy = true; busy; ) busy = [turns.run(), a.deliver(), b.deliver()].includes(true);
  };
  const policy = {
    crc: how === 'off' ? 'off' : 'preferred',
    markers: how === 'markers',
    silentPeerNudge: 0,
  } as const;
  const listening = cm.listen({ host: '127.0.0.1', port: 1, policy }, (connection) =>
    connection.accept(server),
  );
  all();
  await listening;
  cm.connect(client, { host: '127.0.0.1', port: 1, policy });
  all();

  const length = Number(octets);
  const mr = pd.registerMemory(new Uint8Array(1 << 20), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE);
  const sges = [{ mr, length }];
  // Each goes to another place, so that each FPDU has another CRC.
  const request = (i: number): SendWorkRequest =>
    kind === 'send'
      ? { opcode: 'send', sges }
      : { opcode: 'rdma-write', sges, rkey: mr.rkey, remoteAddr: 64 * i };
  const sends = Array.from({ length: LIST }, (_, i) => request(i));
  const receives = Array.from({ length: LIST }, (): ReceiveWorkRequest => ({ sges: [{ mr }] }));
  const out = Array.from({ length: LIST }, createWorkCompletion);
  const wanted = kind === 'send' ? 2 * LIST : LIST;
  /** Everything without a separate object, as far as the language lets. */
  const list = (): void => {
    if (kind === 'send') server.postRecv(receives);
    client.postSend(sends);
    for (let done = 0; done < wanted; ) {
      turns.run();
      a.deliver();
      b.deliver();
      const n = cq.poll(out);
      for (let i = 0; i < n; i++) if (out[i]!.status !== 'success') throw new Error(out[i]!.status);
      done += n;
    }
  };
  const stretch = async (): Promise<void> => {
    for (let i = 0; i < Number(lists); i++) list();
    // compilers in other threads hand over what they have made
    await new Promise((resolve) => setImmediate(resolve));
  };

  const collect = (globalThis as unknown as { gc: () => void }).gc;
  for (let i = 0; i < WARM_STRETCHES; i++) await stretch();
  const garbage: number[] = [];
  for (let i = 0; i < STRETCHES; i++) {
    collect();
    collect();
    const fpdus = client.counters()!.fpdusOut;
    const from = process.memoryUsage().heapUsed;
    await stretch();
    const left = process.memoryUsage().heapUsed - from;
    garbage.push(left / (client.counters()!.fpdusOut - fpdus));
  }
  console.log(JSON.stringify(garbage));
  process.exit(0);
}

await main(process.argv.slice(2));
