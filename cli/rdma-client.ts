/**
 * `iwarp rdma_client`: librdmacm's smallest client. Sends 16 octets, receives 16, says how it ended. The
 * server is rdma-server.ts, or stock rdma_xserver, which receives and ends the connection.
 */
import { IwarpError } from '../src/base/errors.ts';
import type { WorkCompletion } from '../src/verbs/cq.ts';
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
  await orFlushed(session.execute({ opcode: 'send', inline: new Uint8Array(SMALL_MESSAGE) }));
  const completion = await orFlushed(answer);
  await session.close();
  if (completion !== null && completion.byteLength !== SMALL_MESSAGE)
    throw new IwarpError('ERR_INVALID_STATE', `the server answered with ${completion.byteLength} bytes`);
}

/**
 * A completion; null for one that the server has flushed by ending the connection in order. The stock client
 * waits for completions and never looks at their status.
 */
async function orFlushed(completion: Promise<WorkCompletion>): Promise<WorkCompletion | null> {
  try {
    return await completion;
  } catch (error) {
    if (error instanceof IwarpError && error.code === 'ERR_CONNECTION_CLOSED') return null;
    throw error;
  }
}
