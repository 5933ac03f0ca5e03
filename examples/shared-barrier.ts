/**
 * A barrier between two programs without a message: each side writes the number of the round that it has
 * reached into the other side's region, and waits until its own region says the same. The wait is a look at
 * plain memory.
 *
 *   npx tsx examples/shared-barrier.ts                  both sides in one program
 *   npx tsx examples/shared-barrier.ts listen PORT      one side
 *   npx tsx examples/shared-barrier.ts connect HOST PORT
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, listen, type SharedConnection } from 'iwarp/shared';

const ROUNDS = 20;
/** Offsets in both regions: the peer's round, and the place that our own round is written from. */
const [THEIRS, OURS] = [0, 4];

/** Resolves when both sides have called it for the same time. */
function barrier({ socket, region }: SharedConnection): () => Promise<number> {
  const words = new DataView(region.buffer, region.byteOffset);
  let round = 0;
  return async () => {
    words.setUint32(OURS, ++round);
    await socket.settled(socket.write(4, OURS, THEIRS));
    while (words.getUint32(THEIRS) < round) {
      if (socket.state !== 'open') throw new Error('the other side has left');
      await new Promise((resolve) => setImmediate(resolve));
    }
    return round;
  };
}

/** Work of different lengths between barriers; `log` gets what happened. */
async function work(name: string, connection: SharedConnection, log: string[]): Promise<void> {
  const meet = barrier(connection);
  for (let i = 0; i < ROUNDS; i++) {
    await sleep(Math.random() * 10);
    log.push(`${name} ${i}`);
    await meet();
  }
}

const [role = 'both', ...args] = process.argv.slice(2);
if (role === 'both') {
  const listener = await listen({ host: '127.0.0.1', octets: 64 });
  const accepted = listener.accept();
  const a = await connect({ port: listener.address.port }, { octets: 64 });
  const b = await accepted;
  const log: string[] = [];
  await Promise.all([work('a', a, log), work('b', b, log)]);
  // Between two barriers each side works once, in either order.
  const together = log.every((line, i) => line.endsWith(` ${i >> 1}`));
  console.log(
    `${ROUNDS} rounds, ${together ? 'nobody was ever a round ahead' : `out of step: ${log.join(', ')}`}`,
  );
  process.exitCode = together ? 0 : 1;
  await a.socket.close();
  await listener.close();
} else {
  const [host, port] = role === 'listen' ? ['', Number(args[0])] : [args[0]!, Number(args[1])];
  const listener = role === 'listen' ? await listen({ host: '127.0.0.1', port, octets: 64 }) : null;
  const connection =
    listener === null ? await connect({ host, port }, { octets: 64 }) : await listener.accept();
  const log: string[] = [];
  await work(role, connection, log);
  console.log(`${log.length} rounds together`);
  await (role === 'listen' ? connection.socket.closed : connection.socket.close());
  await listener?.close();
}
