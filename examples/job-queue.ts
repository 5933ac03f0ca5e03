/**
 * A job queue. Clients ask the broker for the result of a job; the broker asks a worker that is free, and
 * another one when that worker is lost or takes too long. Requests go both ways: a worker is a client of the
 * broker that answers its requests.
 *
 *   npx tsx examples/job-queue.ts                             a broker, workers and clients in one process
 *   npx tsx examples/job-queue.ts broker 127.0.0.1 4711
 *   npx tsx examples/job-queue.ts worker 127.0.0.1 4711
 *   npx tsx examples/job-queue.ts client 127.0.0.1 4711 NUMBER
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, createClient, createServer, type Client, type Connection, type Server } from 'iwarp';

/** Jobs that one worker has at a time. */
const AT_ONCE = 4;
/** Milliseconds that a worker may take for a job; then another one gets it. */
const PATIENCE = 2000;
const ATTEMPTS = 5;

/** Places at workers, first come first served, and the jobs that wait for one. */
class Workers {
  readonly #free: Connection[] = [];
  readonly #waiting: ((worker: Connection) => void)[] = [];

  offer(worker: Connection): void {
    if (worker.state !== 'open') return;
    const next = this.#waiting.shift();
    if (next === undefined) this.#free.push(worker);
    else next(worker);
  }

  async take(): Promise<Connection> {
    for (let worker = this.#free.shift(); worker !== undefined; worker = this.#free.shift())
      if (worker.state === 'open') return worker;
    return await new Promise((resolve) => this.#waiting.push(resolve));
  }
}

async function broker(host: string, port: number): Promise<Server> {
  const workers = new Workers();
  const work = async (job: Uint8Array): Promise<Uint8Array> => {
    for (let attempt = 1; ; attempt++) {
      const worker = await workers.take();
      try {
        return await worker.request(job, { timeout: PATIENCE });
      } catch (error) {
        // The worker's answer is an error of the job; everything else is one of the worker.
        if ((error as { code?: string }).code === 'ERR_REMOTE' || attempt === ATTEMPTS) throw error;
        console.log(`a worker was lost, its job goes to another: ${(error as Error).name}`);
      } finally {
        workers.offer(worker);
      }
    }
  };
  return await createServer((connection) => {
    const role = new TextDecoder().decode(connection.privateData);
    if (role === 'worker') for (let i = 0; i < AT_ONCE; i++) workers.offer(connection);
    else connection.serve((request) => work(request.data)).catch(() => undefined); // it has hung up
  }).listen({ host, port });
}

/** The job: the prime factors of a number. */
function factors(text: string): string {
  let left = Number(text);
  if (!Number.isSafeInteger(left) || left < 1) throw new RangeError(`${text} is no number`);
  const found: number[] = [];
  for (let divisor = 2; divisor * divisor <= left; divisor++)
    for (; left % divisor === 0; left /= divisor) found.push(divisor);
  return [...found, left].join(' x ');
}

/** `pace`: milliseconds for each job, for a rehearsal. */
function worker(host: string, port: number, pace = 0): Client {
  const onConnect = (connection: Connection): void => {
    const answer = async (text: string): Promise<string> => {
      await sleep(pace);
      return factors(text);
    };
    connection.serve((request) => answer(request.text())).catch(() => undefined); // the client connects again
  };
  const heartbeat = { interval: 2000, timeout: 2000 };
  return createClient({ host, port, privateData: Buffer.from('worker'), heartbeat, onConnect });
}

async function rehearsal(host: string, port: number): Promise<void> {
  const crew = [worker(host, port, 1), worker(host, port, 2), worker(host, port, 3)];
  await using connection = await connect({ host, port, privateData: Buffer.from('client') });
  const numbers = Array.from({ length: 300 }, (_, i) => 1_000_000 + i);
  const results = numbers.map(async (number) => String(await connection.request(String(number))));
  await sleep(20);
  crew[0]!.destroy();
  for (const [i, result] of (await Promise.all(results)).entries()) {
    const product = result.split(' x ').reduce((all, factor) => all * Number(factor), 1);
    assert.equal(product, numbers[i], 'each job has its own result');
  }
  console.log(`${results.length} jobs are done, although a worker was lost`);
  await assert.rejects(connection.request('x'), { code: 'ERR_REMOTE', message: 'x is no number' });
  console.log('a job that fails says so');
  await Promise.all(crew.map((each) => each.close()));
}

/** All in one process, or one role. A check that fails ends the program with status 1. */
async function main([mode, host = '127.0.0.1', port = '0', number = '1']: string[]): Promise<void> {
  if (mode === 'worker') {
    worker(host, Number(port));
  } else if (mode === 'client') {
    await using connection = await connect({ host, port: Number(port), privateData: Buffer.from('client') });
    console.log(String(await connection.request(number)));
  } else {
    const running = await broker(host, Number(port));
    console.log(`listening on ${host} port ${running.address().port}`);
    if (mode === 'broker') return; // it goes on until it is interrupted
    await rehearsal(host, running.address().port);
    await running.close();
  }
}

await main(process.argv.slice(2));
