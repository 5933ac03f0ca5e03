/**
 * `iwarp rdma_server`: librdmacm's smallest server. Takes one connection, receives 16 octets, sends 16, says
 * how it ended.
 */
import { IwarpError } from '../src/base/errors.ts';
import { COMMON_USAGE, hostOption, parseOptions, portOption, UsageError } from './support/options.ts';
import { POLICY_USAGE } from './support/policy-flags.ts';
import { PROCESS_IO, Tool, type ToolIo } from './support/tool.ts';

export const SMALL_MESSAGE = 16;

/** Entry point; the result is the exit status. */
export function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  return runSmallTool('rdma_server', 'listen', undefined, args, io, exchange);
}

async function exchange(tool: Tool, host: string | undefined, port: number): Promise<void> {
  const requests = await tool.listen({ host, port });
  const request = await requests.next();
  const session = tool.session({ maxSendWr: 1, maxRecvWr: 1 });
  const memory = session.register(SMALL_MESSAGE);
  session.postRecv({ mr: memory });
  session.use(request);
  request.accept(session.qp);
  await session.receive();
  await session.execute({ opcode: 'send', inline: new Uint8Array(SMALL_MESSAGE) });
  await session.close();
}

/** Runs either of the two tools: flags, first and last line, exit status. */
export async function runSmallTool(
  name: string,
  role: 'connect' | 'listen',
  defaultHost: string | undefined,
  args: string[],
  io: ToolIo,
  exchange: (tool: Tool, host: string | undefined, port: number) => Promise<void>,
): Promise<number> {
  const usage = `usage: ${name}\n\t[-s server_address]\n\t[-p port_number]\n`;
  let host: string | undefined;
  let port: number;
  let tool: Tool;
  try {
    const options = parseOptions(args, 's:p:', { help: {} });
    if (options.flags.has('help')) {
      io.out(`${usage}${COMMON_USAGE}${POLICY_USAGE}`);
      return 0;
    }
    host = hostOption(options, 's') ?? defaultHost;
    port = portOption(options, 7471, role);
    tool = new Tool(io, options);
  } catch (error) {
    if (!(error instanceof UsageError) && !(error instanceof IwarpError)) throw error;
    io.err(`${name}: ${error.message}\n`);
    io.out(usage);
    return 1;
  }
  tool.say(`${name}: start`);
  let status = 0;
  try {
    await exchange(tool, host, port);
  } catch (error) {
    if (!(error instanceof IwarpError)) throw error;
    tool.complain(`${name}: ${error.message}`);
    status = -1;
  }
  await tool.close();
  tool.say(`${name}: end ${status}`);
  return status & 0xff;
}
