/**
 * `iwarp ucmatose`: the connection test of librdmacm's ucmatose, both sides, with its flags and words. On
 * each of `-c` connections the server sends `-C` messages of `-S` octets, the client takes them all and sends
 * as many back; then the server disconnects.
 *
 * The server sends first, which RFC 5044 (MPA-028) lets no responder do: so this tool's server is a relaxed
 * one unless an option says otherwise.
 */
// cspell:ignore igrate
import { IwarpError } from '../src/base/errors.ts';
import { connectFailure } from '../src/cm/connect-failure.ts';
import type { MemoryRegion } from '../src/verbs/memory.ts';
import {
  addressOption,
  atoi,
  hostOption,
  portOption,
  textOption,
  UsageError,
  type ParsedOptions,
} from './support/options.ts';
import { checkAddressFormat } from './support/address-format.ts';
import { runTool } from './support/run-tool.ts';
import { OWN_WORK, type Session } from './support/session.ts';
import { PROCESS_IO, type Tool, type ToolIo } from './support/tool.ts';

const USAGE = `usage: ucmatose
\t[-s server_address]
\t[-b bind_address]
\t[-f address_format]
\t    name, ip, ipv6, or gid
\t[-P port_space]
\t    tcp or ib
\t[-c connections]
\t[-C message_count]
\t[-S message_size]
\t[-t type_of_service]
\t[-p port_number]
\t[-m(igrate)]
\t[-a ack_timeout]
`;

/** Linux error numbers, as the stock tool shows and returns them. */
const ECONNRESET = 104;
const ETIMEDOUT = 110;
const ERROR_NUMBERS: Readonly<Record<string, number>> = {
  EINVAL: 22,
  EPROTO: 71,
  EADDRINUSE: 98,
  EADDRNOTAVAIL: 99,
  ENETUNREACH: 101,
  ECONNRESET,
  ETIMEDOUT,
  ECONNREFUSED: 111,
  EHOSTUNREACH: 113,
};
const MAX_CONNECTIONS = 10_000;
/** Room for the messages of one connection in either queue. */
const MAX_MESSAGES = 65_535;
const MAX_SIZE = 0x3fff_ffff;

interface Settings {
  readonly server: string | undefined;
  readonly bind: string | undefined;
  readonly port: number;
  readonly connections: number;
  readonly messages: number;
  readonly size: number;
  readonly migrate: boolean;
}

function readSettings(options: ParsedOptions): Settings {
  const number = (flag: string, fallback: number, max: number): number => {
    const text = textOption(options, flag);
    const value = text === undefined ? fallback : atoi(text);
    if (value < 0 || value > max) throw new UsageError(`-${flag} must be from 0 to ${max}, got ${value}`);
    return value;
  };
  const size = number('S', 100, MAX_SIZE);
  const messages = size === 0 ? 0 : number('C', 10, MAX_MESSAGES);
  return {
    server: hostOption(options, 's'),
    bind: options.flags.has('s') ? addressOption(options, 'b') : hostOption(options, 'b'),
    port: portOption(options, 7471, options.flags.has('s') ? 'connect' : 'listen'),
    connections: number('c', 1, MAX_CONNECTIONS),
    messages,
    size,
    migrate: options.flags.has('m'),
  };
}

/**
 * iWARP has the port space of TCP; a word that is none gets the stock tool's warning, and no effect. @throws
 * UsageError
 */
function checkPortSpace(options: ParsedOptions, warn: (line: string) => void): void {
  const space = textOption(options, 'P')?.toLowerCase();
  if (space === undefined || space.startsWith('tcp')) return;
  if (space.startsWith('ib')) throw new UsageError('-P ib: there is no such port space over iWARP; use tcp');
  warn('Warning: unknown port space format');
}

/** Entry point; the result is the exit status. */
export function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  const complete = (tool: Tool, status: number): number => {
    tool.say('test complete');
    return status;
  };
  return runTool(
    {
      name: 'ucmatose',
      usage: USAGE,
      shorts: 's:b:f:P:c:C:S:t:p:a:m',
      policy: { responder: 'relaxed' },
      settings: (options) => {
        const settings = readSettings(options);
        checkAddressFormat(options, (line) => io.err(`${line}\n`));
        checkPortSpace(options, (line) => io.err(`${line}\n`));
        return settings;
      },
      run: async (tool, settings) =>
        complete(
          tool,
          settings.server === undefined
            ? await runServer(tool, settings)
            : await runClient(tool, settings, settings.server),
        ),
      failed: (tool, { server }, error) =>
        complete(tool, tellFailure(tool, error, server === undefined ? 'passive' : 'active')),
      farewell: (tool, status) => tool.say(`return status ${status}`),
    },
    args,
    io,
  );
}

/** Calls of the system that fail before there is anything to raise an event for. */
const BEFORE_EVENTS: readonly unknown[] = ['bind', 'listen', 'getaddrinfo'];

function isBeforeEvents(error: Error): boolean {
  const { syscall, cause } = error as NodeJS.ErrnoException;
  return BEFORE_EVENTS.includes(syscall) || (cause instanceof Error && isBeforeEvents(cause));
}

/**
 * The event that librdmacm would raise for this error, and its status; without an event -1, what the call
 * that failed has returned.
 */
function tellFailure(tool: Tool, error: IwarpError, role: 'active' | 'passive'): number {
  if (isBeforeEvents(error)) {
    tool.complain(`ucmatose: ${error.message}`);
    return -1;
  }
  const [event, status] = eventOf(error, role);
  tool.say(`cmatose: event: ${event}, error: ${status}`);
  tool.complain(`ucmatose: ${error.message}`);
  return status;
}

/** A listening side has no event for a set-up that failed; it sees a connection that has ended. */
function eventOf(error: IwarpError, role: 'active' | 'passive'): readonly [string, number] {
  if (error.code === 'ERR_REJECTED') return ['RDMA_CM_EVENT_REJECTED', -ECONNRESET];
  // `--timeout` is our own: an established connection that falls silent has no event of librdmacm.
  if (error.code === 'ERR_TIMEOUT') return ['RDMA_CM_EVENT_UNREACHABLE', -ETIMEDOUT];
  const isAttempt = error.code === 'ERR_CONNECT' || error.systemCode !== undefined;
  if (role === 'passive' || !isAttempt) return ['RDMA_CM_EVENT_DISCONNECTED', -ECONNRESET];
  const { type, status = '' } = connectFailure(error);
  return [EVENT_NAMES[type], -(ERROR_NUMBERS[status] ?? ECONNRESET)];
}

const EVENT_NAMES = {
  rejected: 'RDMA_CM_EVENT_REJECTED',
  unreachable: 'RDMA_CM_EVENT_UNREACHABLE',
  'address-error': 'RDMA_CM_EVENT_ADDR_ERROR',
  'connect-error': 'RDMA_CM_EVENT_CONNECT_ERROR',
} as const;

/** One connection with its message buffer and its counts of sent and received messages. */
class Node {
  readonly session: Session;
  readonly #memory: MemoryRegion;
  readonly #messages: number;
  readonly #size: number;
  readonly #done = { sends: 0, receives: 0 };
  readonly #waiting = new Map<
    'sends' | 'receives',
    { resolve: () => void; reject: (error: Error) => void }
  >();

  constructor(tool: Tool, s: Settings) {
    this.#messages = s.messages;
    this.#size = s.size;
    const depth = Math.max(1, s.messages);
    this.session = tool.session({
      maxSendWr: depth,
      maxRecvWr: depth,
      onCompletion: (wc) => {
        if (wc.status === 'success') this.#count(wc.opcode === 'receive' ? 'receives' : 'sends');
        return true;
      },
    });
    this.#memory = this.session.register(s.size);
    for (let i = 0; i < s.messages; i++)
      this.session.qp.postRecv({ wrId: OWN_WORK, sges: [{ mr: this.#memory, length: s.size }] });
    void this.session.closed.then((info) => {
      for (const { reject } of this.#waiting.values()) reject(info.error!);
      this.#waiting.clear();
    });
  }

  postSends(): void {
    if (this.session.over) throw this.session.failure!;
    for (let i = 0; i < this.#messages; i++) {
      this.session.qp.postSend({
        opcode: 'send',
        wrId: OWN_WORK,
        sges: [{ mr: this.#memory, length: this.#size }],
      });
    }
  }

  /** Settles when all messages of a kind have gone through. */
  all(what: 'sends' | 'receives'): Promise<void> {
    if (this.#done[what] >= this.#messages) return Promise.resolve();
    if (this.session.over) return Promise.reject(this.session.failure!);
    return new Promise((resolve, reject) => this.#waiting.set(what, { resolve, reject }));
  }

  #count(what: 'sends' | 'receives'): void {
    if (++this.#done[what] !== this.#messages) return;
    this.#waiting.get(what)?.resolve();
    this.#waiting.delete(what);
  }
}

async function everySend(nodes: readonly Node[]): Promise<void> {
  for (const node of nodes) await node.all('sends');
}

async function everyReceive(nodes: readonly Node[]): Promise<void> {
  for (const node of nodes) await node.all('receives');
}

async function runServer(tool: Tool, s: Settings): Promise<number> {
  tool.say('cmatose: starting server');
  const requests = await tool.listen({ host: s.bind, port: s.port });
  const nodes: Node[] = [];
  while (nodes.length < s.connections) {
    const request = await requests.next();
    const node = new Node(tool, s);
    nodes.push(node);
    node.session.use(request);
    request.accept(node.session.qp);
  }
  for (const node of nodes) await node.session.established;
  if (s.messages > 0) {
    tool.say('initiating data transfers');
    for (const node of nodes) node.postSends();
    tool.say('completing sends');
    await everySend(nodes);
    tool.say('receiving data transfers');
    await everyReceive(nodes);
    tool.say('data transfers complete');
  }
  if (s.migrate) tool.say('migrating to new event channel');
  tool.say('cmatose: disconnecting');
  const ends = await Promise.all(
    nodes.map(async ({ session }) => {
      await tool.rtrArrived(session);
      return await session.close();
    }),
  );
  tool.say('disconnected');
  return ends.every((end) => end.cause === 'graceful' || end.cause === 'reset' || end.cause === 'bad-close')
    ? 0
    : -ECONNRESET;
}

async function runClient(tool: Tool, s: Settings, host: string): Promise<number> {
  tool.say('cmatose: starting client');
  tool.check();
  tool.say('cmatose: connecting');
  const nodes = Array.from({ length: s.connections }, () => new Node(tool, s));
  for (const { session } of nodes) {
    session.use(
      tool.rnic.cm.connect(session.qp, {
        ...tool.target({ host, port: s.port, source: s.bind }),
        policy: tool.policy,
        responderResources: 1,
        initiatorDepth: 1,
      }),
    );
  }
  for (const node of nodes) await node.session.established;
  if (s.messages > 0) {
    tool.say('receiving data transfers');
    await everyReceive(nodes);
    tool.say('sending replies');
    for (const node of nodes) node.postSends();
    // The stock client does not wait for these; a node that is gone before they are out would be a server
    // that left early.
    await everySend(nodes);
    tool.say('data transfers complete');
  }
  if (s.migrate) tool.say('migrating to new event channel');
  const ends = await Promise.all(nodes.map((node) => node.session.closed));
  const lost = ends.find(
    (end) =>
      end.cause === 'timeout' ||
      end.cause === 'terminated' ||
      end.error?.code === 'ERR_ABORTED' ||
      end.error?.code === 'ERR_TIMEOUT',
  );
  if (lost !== undefined) throw lost.error!;
  return 0;
}
