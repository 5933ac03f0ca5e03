// Our own stack behind the tester protocol: the target of the `self` profile, in this process or as a
// separate program. An implementer of another stack writes the like of this file; PROTOCOL.md says how.
// Everything here goes through the public verbs and connection manager.

import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { ConnectionManager, InlineEngine } from 'iwarp/cm';
import type { CmEvent, CmListener, ConnectionPolicy, PassiveConnection, CmConnection } from 'iwarp/cm';
import { realScheduler, TcpTransport } from 'iwarp/testing';
import { ACCESS, createWorkCompletion, Device } from 'iwarp/verbs';
import type {
  CompletionQueue,
  MemoryRegion,
  ProtectionDomain,
  QueuePair,
  SendWorkRequest,
  Sge,
  WorkCompletion,
} from 'iwarp/verbs';
import { createRandom } from '../probe/random.ts';
import type {
  Access,
  AnswerLine,
  CompletionInfo,
  EndpointOptions,
  EventInfo,
  OperationName,
  Operations,
  PostOptions,
  RequestLine,
  TesterPort,
} from './protocol.ts';
import { fromHex, pattern, toHex } from './protocol.ts';

const QUEUE_DEPTH = 256;
const MAX_DATA = 65_536;
const ACCESS_BITS: Readonly<Record<Access, number>> = {
  'local-write': ACCESS.LOCAL_WRITE,
  'remote-read': ACCESS.REMOTE_READ,
  'remote-write': ACCESS.REMOTE_WRITE,
  'remote-atomic': ACCESS.REMOTE_ATOMIC,
};

interface Endpoint {
  readonly pd: ProtectionDomain;
  readonly options: EndpointOptions;
  readonly qp: QueuePair;
  readonly cq: CompletionQueue;
  listener: CmListener | null;
  connection: CmConnection | null;
  readonly buffers: Map<number, MemoryRegion>;
  readonly events: EventInfo[];
  readonly fresh: CompletionInfo[];
  nextWr: number;
}

type Handlers = {
  [Op in OperationName]: (
    args: Operations[Op]['request'],
  ) => Operations[Op]['answer'] | Promise<Operations[Op]['answer']>;
};

/** One tester with one device; `reset` gives it a new one. */
export class SelfTarget implements TesterPort {
  #device = new Device();
  #manager = managerOf(this.#device);
  #pds = new Map<string, ProtectionDomain>();
  #endpoints: Endpoint[] = [];
  #regions: MemoryRegion[] = [];
  readonly #wakes = new Set<() => void>();

  async call<Op extends OperationName>(
    op: Op,
    args: Operations[Op]['request'],
  ): Promise<Operations[Op]['answer']> {
    return this.#handlers[op](args as never) as Operations[Op]['answer'];
  }

  close(): void {
    this.#drop();
  }

  readonly #handlers: Handlers = {
    hello: () => ({ name: 'iwarp', extensions: true, firstMsn: true }),
    reset: ({ seed }) => {
      this.#drop();
      const random = createRandom(seed, 'target');
      this.#device = new Device({ random: () => random.u32() });
      this.#manager = managerOf(this.#device);
      return {};
    },
    listen: async ({ host, options }) => {
      const endpoint = this.#endpoint(options);
      endpoint.listener = await this.#managerFor(options).listen(
        { host, port: 0, policy: policyOf(options) },
        (connection) => this.#arrive(endpoint, connection),
      );
      return { endpoint: this.#endpoints.length - 1, port: endpoint.listener.address.port };
    },
    connect: ({ host, port, options }) => {
      const endpoint = this.#endpoint(options);
      const connection = this.#managerFor(options).connect(endpoint.qp, {
        host,
        port,
        policy: policyOf(options),
        ...parametersOf(options),
      });
      this.#watch(endpoint, connection);
      return { endpoint: this.#endpoints.length - 1 };
    },
    region: ({ length, access, pd = 'a', endpoint, fill, base, shared }) => {
      const memory = fill === undefined ? pattern(length) : new Uint8Array(length).fill(fill);
      const bits = access.reduce((all, right) => all | ACCESS_BITS[right], 0);
      const region = this.#pd(pd).registerMemory(memory, bits, {
        iova: BigInt(base ?? '4096'),
        ...(shared === undefined ? {} : { shared }),
        ...(endpoint === undefined ? {} : { queuePair: this.#endpoints[endpoint]!.qp }),
      });
      this.#regions.push(region);
      return { region: this.#regions.length - 1, stag: region.rkey, to: region.addr.toString() };
    },
    peek: ({ region, offset = 0, length }) => {
      const { bytes } = this.#regions[region]!;
      return { data: toHex(bytes.subarray(offset, length === undefined ? bytes.length : offset + length)) };
    },
    deregister: ({ region }) => {
      this.#regions[region]!.deregister();
      return {};
    },
    receive: ({ endpoint, count, size }) => {
      this.#postReceives(this.#endpoints[endpoint]!, count, size);
      return {};
    },
    post: ({ endpoint, ...options }) => {
      const target = this.#endpoints[endpoint]!;
      for (let i = 0; i < (options.count ?? 1); i++) this.#post(target, options);
      return {};
    },
    completions: async ({ endpoint, min, ms }) => {
      const target = this.#endpoints[endpoint]!;
      await this.#until(() => {
        this.#collect(target);
        return target.fresh.length >= min;
      }, ms);
      return { completions: target.fresh.splice(0) };
    },
    events: async ({ endpoint, type, ms }) => {
      const target = this.#endpoints[endpoint]!;
      await this.#until(() => target.events.some((event) => event.type === type), ms);
      return { events: [...target.events] };
    },
    close: ({ endpoint, how }) => {
      const { connection, qp } = this.#endpoints[endpoint]!;
      if (how === 'graceful') connection?.disconnect();
      else if (how === 'abort') connection?.abort();
      else qp.modify({ state: 'terminate' });
      return {};
    },
  };

  #pd(name: string): ProtectionDomain {
    let pd = this.#pds.get(name);
    if (pd === undefined) this.#pds.set(name, (pd = this.#device.allocatePd()));
    return pd;
  }

  /** A separate manager where the endpoint begins with other message numbers. */
  #managerFor({ firstMsn }: EndpointOptions): ConnectionManager {
    return firstMsn === undefined ? this.#manager : managerOf(this.#device, { firstMsn });
  }

  #endpoint(options: EndpointOptions): Endpoint {
    const pd = this.#pd(options.pd ?? 'a');
    const cq = this.#device.createCq(4 * QUEUE_DEPTH);
    const qp = pd.createQp({
      sendCq: cq,
      recvCq: cq,
      maxSendWr: QUEUE_DEPTH,
      maxRecvWr: QUEUE_DEPTH,
      ...(options.extensions === undefined ? {} : { extensions: options.extensions }),
    });
    const endpoint: Endpoint = {
      pd,
      options,
      qp,
      cq,
      listener: null,
      connection: null,
      buffers: new Map(),
      events: [],
      fresh: [],
      nextWr: 1,
    };
    cq.setHandler(() => this.#wake());
    cq.requestNotify();
    this.#endpoints.push(endpoint);
    this.#postReceives(endpoint, options.receives ?? 16, options.receiveSize ?? 4096);
    return endpoint;
  }

  #arrive(endpoint: Endpoint, connection: PassiveConnection): void {
    // A listener serves one connection; whatever else comes (a case that connects again) finds the queue pair
    // taken.
    if (endpoint.connection !== null && !endpoint.connection.finished) {
      connection.abort();
      return;
    }
    this.#watch(endpoint, connection);
    const { parameters } = connection;
    endpoint.events.push({
      type: 'request',
      privateData: toHex(parameters?.privateData ?? new Uint8Array(0)),
      ...(parameters?.initiatorDepth === undefined ? {} : { ird: parameters.initiatorDepth }),
      ...(parameters?.responderResources === undefined ? {} : { ord: parameters.responderResources }),
      revision: parameters?.revision ?? 0,
    });
    const parametersOut = parametersOf(endpoint.options);
    if (endpoint.options.reject === true) connection.reject(parametersOut.privateData);
    else connection.accept(endpoint.qp, parametersOut);
    this.#wake();
  }

  #watch(endpoint: Endpoint, connection: CmConnection): void {
    endpoint.connection = connection;
    connection.setHandler((event) => {
      endpoint.events.push(eventInfo(event));
      this.#wake();
    });
  }

  #postReceives(endpoint: Endpoint, count: number, size: number): void {
    for (let i = 0; i < count; i++) {
      const mr = endpoint.pd.registerMemory(new Uint8Array(size), ACCESS.LOCAL_WRITE);
      const wrId = this.#remember(endpoint, mr);
      endpoint.qp.postRecv({ wrId, sges: [{ mr }] });
    }
  }

  #remember(endpoint: Endpoint, mr: MemoryRegion): number {
    const wrId = endpoint.nextWr++;
    endpoint.buffers.set(wrId, mr);
    return wrId;
  }

  #post(endpoint: Endpoint, options: PostOptions): void {
    const { kind } = options;
    const isRead = kind === 'read';
    const isAtomic = kind === 'fetch-add' || kind === 'cmp-swap';
    const data =
      options.data === undefined ? pattern(isAtomic ? 8 : (options.length ?? 0)) : fromHex(options.data);
    const mr = endpoint.pd.registerMemory(
      isRead || isAtomic ? new Uint8Array(data.length) : data,
      ACCESS.LOCAL_WRITE,
    );
    const wrId = this.#remember(endpoint, mr);
    const common = { wrId, ...(options.fence === undefined ? {} : { fence: options.fence }) };
    endpoint.qp.postSend(workRequest(options, common, [{ mr }]));
  }

  #collect(endpoint: Endpoint): void {
    const out: WorkCompletion[] = [createWorkCompletion()];
    while (endpoint.cq.poll(out) === 1) {
      const wc = out[0]!;
      const mr = endpoint.buffers.get(Number(wc.wrId));
      endpoint.buffers.delete(Number(wc.wrId));
      endpoint.fresh.push(completionInfo(wc, mr));
      if (mr?.valid === true) mr.deregister();
    }
    endpoint.cq.requestNotify();
  }

  async #until(done: () => boolean, ms: number): Promise<void> {
    if (done()) return;
    await new Promise<void>((resolve) => {
      const finish = (): void => {
        clearTimeout(timer);
        this.#wakes.delete(look);
        resolve();
      };
      const look = (): void => {
        if (done()) finish();
      };
      const timer = setTimeout(finish, ms);
      this.#wakes.add(look);
    });
  }

  #wake(): void {
    for (const wake of [...this.#wakes]) wake();
  }

  #drop(): void {
    for (const endpoint of this.#endpoints) {
      endpoint.listener?.close();
      if (endpoint.connection !== null && !endpoint.connection.finished) endpoint.connection.abort();
    }
    this.#endpoints = [];
    this.#regions = [];
    this.#pds = new Map();
  }
}

function policyOf(options: EndpointOptions): Partial<ConnectionPolicy> {
  const {
    crc,
    markers,
    revision,
    peerToPeer,
    rtr,
    maxIrd,
    negotiateDepths,
    requiredOrd,
    emss,
    requestTimeout,
    replyTimeout,
    closeTimeout,
    ird,
    ord,
  } = options;
  return {
    // The probe counts octets: what wakes a sleeping peer would only blur the picture.
    silentPeerNudge: 0,
    ...(crc === undefined ? {} : { crc: crc ? ('required' as const) : ('off' as const) }),
    ...(revision === undefined ? {} : { mpaRevision: revision }),
    ...(rtr === undefined ? {} : { rtrOffered: rtr, rtrAccepted: rtr }),
    ...defined({
      markers,
      peerToPeer,
      maxIrd,
      negotiateDepths,
      requiredOrd,
      emss,
      requestTimeout,
      replyTimeout,
      closeTimeout,
      ird,
      ord,
    }),
  };
}

function defined<T extends Record<string, unknown>>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };
}

function parametersOf(options: EndpointOptions): {
  privateData: Uint8Array;
  responderResources?: number;
  initiatorDepth?: number;
} {
  return {
    privateData: fromHex(options.privateData ?? ''),
    // A depth given here is not raised: where it may be, `maxIrd` says how far, and the policy has both.
    ...(options.ird === undefined || options.maxIrd !== undefined ? {} : { responderResources: options.ird }),
    ...(options.ord === undefined ? {} : { initiatorDepth: options.ord }),
  };
}

function workRequest(
  options: PostOptions,
  common: { wrId: number; fence?: boolean },
  sges: readonly Sge[],
): SendWorkRequest {
  const remote = { rkey: options.stag ?? 0, remoteAddr: BigInt(options.to ?? '0') };
  const value = BigInt(options.value ?? '0');
  switch (options.kind) {
    case 'send':
      return { ...common, opcode: 'send', sges };
    case 'send-se':
      return { ...common, opcode: 'send', sges, solicited: true };
    case 'send-inv':
      return { ...common, opcode: 'send', sges, invalidate: options.invalidate ?? 0 };
    case 'send-se-inv':
      return { ...common, opcode: 'send', sges, invalidate: options.invalidate ?? 0, solicited: true };
    case 'write':
      return { ...common, opcode: 'rdma-write', sges, ...remote };
    case 'read':
      return { ...common, opcode: 'rdma-read', sges, ...remote };
    case 'imm':
      return { ...common, opcode: 'immediate', immediate: value };
    case 'imm-se':
      return { ...common, opcode: 'immediate', immediate: value, solicited: true };
    case 'fetch-add':
      return {
        ...common,
        opcode: 'atomic-fetch-add',
        sges,
        ...remote,
        add: value,
        addMask: BigInt(options.mask ?? '0'),
      };
    case 'cmp-swap':
      return {
        ...common,
        opcode: 'atomic-cmp-swap',
        sges,
        ...remote,
        swap: value,
        compare: BigInt(options.compare ?? '0'),
      };
  }
}

function completionInfo(wc: WorkCompletion, mr: MemoryRegion | undefined): CompletionInfo {
  const receive = wc.opcode.startsWith('receive');
  const readable =
    mr !== undefined &&
    wc.status === 'success' &&
    (receive || wc.opcode === 'rdma-read' || wc.opcode.startsWith('atomic'));
  const octets = readable ? mr.bytes.subarray(0, Math.min(wc.byteLength, MAX_DATA)) : new Uint8Array(0);
  return {
    queue: receive ? 'receive' : 'send',
    opcode: wc.opcode,
    status: wc.status,
    length: wc.byteLength,
    data: toHex(octets),
    solicited: wc.solicited,
    ...(wc.invalidatedStag === undefined ? {} : { invalidated: wc.invalidatedStag }),
    ...(wc.immediate === undefined ? {} : { immediate: wc.immediate.toString() }),
  };
}

function eventInfo(event: CmEvent): EventInfo {
  // In this protocol `rejected` is a Reply with R=1.
  if (event.type === 'rejected' && event.error !== undefined)
    return { type: 'connect-error', cause: event.reason ?? 'connect' };
  switch (event.type) {
    case 'established':
    case 'rejected':
    case 'connect-response':
      return {
        type: event.type,
        privateData: toHex(event.parameters.privateData),
        revision: event.parameters.revision,
        ...(event.parameters.initiatorDepth === undefined ? {} : { ird: event.parameters.initiatorDepth }),
        ...(event.parameters.responderResources === undefined
          ? {}
          : { ord: event.parameters.responderResources }),
      };
    case 'terminate':
      return {
        type: 'terminate',
        code: (event.terminate.layer << 12) | (event.terminate.type << 8) | event.terminate.code,
        origin: event.terminate.origin,
      };
    case 'disconnected':
      return { type: 'disconnected', cause: event.cause };
    case 'unreachable':
    case 'connect-error':
      return { type: 'connect-error', cause: event.reason };
    default:
      return { type: event.type };
  }
}

/** Serve the tester protocol on a TCP port; settles with the port once it listens. */
export function serveTester(host: string, port: number): Promise<{ port: number; close: () => void }> {
  const server = createServer((socket) => {
    const target = new SelfTarget();
    let text = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => {
      text += chunk;
      const lines = text.split('\n');
      text = lines.pop() ?? '';
      for (const line of lines)
        void answer(target, line).then((reply) => socket.write(`${JSON.stringify(reply)}\n`));
    });
    socket.on('error', () => undefined);
    socket.on('close', () => target.close());
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () =>
      resolve({ port: (server.address() as AddressInfo).port, close: () => server.close() }),
    );
  });
}

async function answer(target: SelfTarget, line: string): Promise<AnswerLine> {
  let id = 0;
  try {
    const request = JSON.parse(line) as RequestLine;
    id = request.id;
    return { id, ok: true, answer: await target.call(request.op, request.args as never) };
  } catch (error) {
    return { id, ok: false, error: (error as Error).message };
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { port } = await serveTester('127.0.0.1', Number(process.argv[2] ?? '7200'));
  process.stdout.write(`tester protocol on 127.0.0.1:${port}\n`);
}

function managerOf(device: Device, engine: { readonly firstMsn?: number } = {}): ConnectionManager {
  return new ConnectionManager(device, new InlineEngine(new TcpTransport(), realScheduler, device, engine));
}
