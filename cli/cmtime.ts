/**
 * `iwarp cmtime`: the connection-time test of librdmacm's cmtime (rdma-core 44 and its neighbours), both
 * sides. The client makes its connections all at once, ends them all at once, and prints how long each step
 * has taken; the server accepts, and goes on for ever. No message crosses.
 *
 * The stock steps "create id", "resolve addr" and "resolve route" have no counterpart here, so their lines
 * are not printed. Newer versions of the stock tool (from rdma-core 52 on) speak over a second connection.
 */
import {
  addressOption,
  atoi,
  hostOption,
  portOption,
  textOption,
  UsageError,
  type ParsedOptions,
} from './support/options.ts';
import { runTool } from './support/run-tool.ts';
import type { Session } from './support/session.ts';
import { PROCESS_IO, type Tool, type ToolIo } from './support/tool.ts';

const USAGE = `usage: cmtime
\t[-s server_address]
\t[-b bind_address]
\t[-c connections]
\t[-p port_number]
\t[-r retries]
\t[-t timeout_ms]
-r and -t are for the resolution of addresses, which is the system's here: they are taken, and do nothing.
`;

const MAX_CONNECTIONS = 10_000;

interface Settings {
  readonly server: string | undefined;
  readonly bind: string | undefined;
  readonly port: number;
  readonly connections: number;
}

function readSettings(options: ParsedOptions): Settings {
  const isClient = options.flags.has('s');
  const text = textOption(options, 'c');
  const connections = text === undefined ? 100 : atoi(text);
  if (connections < 1 || connections > MAX_CONNECTIONS)
    throw new UsageError(`-c must be from 1 to ${MAX_CONNECTIONS}, got ${connections}`);
  return {
    server: hostOption(options, 's'),
    bind: isClient ? addressOption(options, 'b') : hostOption(options, 'b'),
    port: portOption(options, 7471, isClient ? 'connect' : 'listen'),
    connections,
  };
}

/** Entry point; the result is the exit status. */
export function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  return runTool(
    {
      name: 'cmtime',
      usage: USAGE,
      shorts: 's:b:c:p:r:t:',
      settings: readSettings,
      run: (tool, settings) =>
        settings.server === undefined ? serve(tool, settings) : measure(tool, settings, settings.server),
    },
    args,
    io,
  );
}

/** For ever: the wait for the next connection ends when the tool does. */
async function serve(tool: Tool, { bind, port }: Settings): Promise<never> {
  const requests = await tool.listen({ host: bind, port });
  for (;;) {
    const request = await requests.next();
    const session = tool.session({ maxSendWr: 1, maxRecvWr: 1 }, 'alone');
    session.use(request);
    request.accept(session.qp, { responderResources: 1, initiatorDepth: 1 });
    void session.closed.then(() => session.release());
  }
}

/** When a step of each connection began and ended, in milliseconds. */
class Step {
  readonly name: string;
  readonly #began: number[] = [];
  readonly #ended: number[] = [];

  constructor(name: string) {
    this.name = name;
  }

  begin(connection: number): void {
    this.#began[connection] = performance.now();
  }

  end(connection: number): void {
    this.#ended[connection] = performance.now();
  }

  /** The line of the table: the whole step, its longest and shortest connection, and the average. */
  line(connections: number): string {
    const each = this.#ended.map((end, i) => end - this.#began[i]!);
    const total = Math.max(...this.#ended) - Math.min(...this.#began);
    const figures = [total, Math.max(...each), Math.min(...each) * 1000, (total * 1000) / connections];
    return `${this.name.padEnd(13)}: ${figures.map((figure) => figure.toFixed(2).padStart(11)).join('')}`;
  }
}

async function measure(tool: Tool, s: Settings, host: string): Promise<number> {
  tool.check();
  const steps = { create: new Step('create qp'), connect: new Step('connect'), end: new Step('disconnect') };
  tool.say('creating qp');
  const sessions: Session[] = [];
  for (let i = 0; i < s.connections; i++) {
    steps.create.begin(i);
    sessions.push(tool.session({ maxSendWr: 1, maxRecvWr: 1 }));
    steps.create.end(i);
  }
  tool.say('connecting');
  await Promise.all(
    sessions.map((session, i) => {
      steps.connect.begin(i);
      session.use(
        tool.rnic.cm.connect(session.qp, {
          ...tool.target({ host, port: s.port, source: s.bind }),
          policy: tool.policy,
          responderResources: 1,
          initiatorDepth: 1,
        }),
      );
      return session.established.then(() => steps.connect.end(i));
    }),
  );
  tool.say('disconnecting');
  const ends = await Promise.all(
    sessions.map(async (session, i) => {
      steps.end.begin(i);
      const end = await session.close();
      steps.end.end(i);
      return end;
    }),
  );
  tool.say('step              total ms     max ms     min us  us / conn');
  for (const step of Object.values(steps)) tool.say(step.line(s.connections));
  const lost = ends.find(({ cause }) => cause !== 'graceful' && cause !== 'reset' && cause !== 'bad-close');
  if (lost !== undefined) throw lost.error!;
  return 0;
}
