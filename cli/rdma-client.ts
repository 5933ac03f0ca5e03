/**
 * `iwarp rdma_client`: librdmacm's smallest client. Sends 16 octets, receives 16, says how it ended. The
 * server is rdma-server.ts.
 */
import { IwarpError } from '../src/base/errors.ts';
import { runSmallTool, SMALL_MESSAGE } from './rdma-server.ts';
import { PROCESS_IO, type Tool, type ToolIo } from './support/tool.ts';

/** Entry point; the result is the exit status. */
export function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  return runSmallTool('rdma_client', 'connect', '127.0.0.1', args, io, exchange);
}

async function exchange(tool: Tool, host: string | undefined, port: number): Promise<void> {
  tool.check();
  const session = tool.session({ maxSendWr: 1, maxRecvWr: 1 });
  const memory = session.register(SMALL_MESSAGE);
  session.postRecv({ mr: memory });
  // Without parameters librdmacm asks for as many reads as the device has; the tool issues none.
  session.use(tool.rnic.cm.connect(session.qp, { host: host!, port, policy: tool.policy }));
  await session.established;
  const answer = session.receive();
  answer.catch(() => undefined);
  await session.execute({ opcode: 'send', inline: new Uint8Array(SMALL_MESSAGE) });
  const { byteLength } = await answer;
  await session.close();
  if (byteLength !== SMALL_MESSAGE)
    throw new IwarpError('ERR_INVALID_STATE', `the server answered with ${byteLength} bytes`);
}
