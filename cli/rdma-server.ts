/**
 * `iwarp rdma_server`: librdmacm's smallest server. Takes one connection, receives 16 octets, sends 16, says
 * how it ended.
 */
import { hostOption, portOption } from './support/options.ts';
import { runTool } from './support/run-tool.ts';
import { PROCESS_IO, type Tool, type ToolIo } from './support/tool.ts';

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
export function runSmallTool(
  name: string,
  role: 'connect' | 'listen',
  defaultHost: string | undefined,
  args: string[],
  io: ToolIo,
  exchange: (tool: Tool, host: string | undefined, port: number) => Promise<void>,
): Promise<number> {
  return runTool(
    {
      name,
      usage: `usage: ${name}\n\t[-s server_address]\n\t[-p port_number]\n`,
      shorts: 's:p:',
      settings: (options) => ({
        host: hostOption(options, 's') ?? defaultHost,
        port: portOption(options, 7471, role),
      }),
      run: async (tool, { host, port }) => {
        tool.say(`${name}: start`);
        await exchange(tool, host, port);
        return 0;
      },
      failed: (tool, _settings, error) => {
        tool.complain(`${name}: ${error.message}`);
        return -1;
      },
      farewell: (tool, status) => tool.say(`${name}: end ${status}`),
    },
    args,
    io,
  );
}
