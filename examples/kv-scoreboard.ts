/**
 * A scoreboard that several processes keep without a server program: players count their points in words of a
 * store by FetchAdd, and the holder of a lock writes the headline. The owner lends its memory.
 *
 *   npx tsx examples/kv-scoreboard.ts
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { connect, createStore } from 'iwarp/kv';

const NAMES = ['ann', 'bob', 'cem'];
const ROUNDS = 100;

/** One player, which is one process. */
async function play(port: number, name: string): Promise<void> {
  const kv = await connect({ port });
  const points = await kv.counter(`points:${name}`);
  const all = await kv.counter('points');
  const pen = await kv.lock('pen', { lease: 2000 });
  for (let round = 0; round < ROUNDS; round++) {
    const won = 1 + Math.floor(Math.random() * 3);
    await points.add(won);
    await all.add(won);
    if (round % 25 !== 0) continue;
    await pen.acquire();
    const before = Number(Buffer.from((await kv.get('headlines')) ?? '0').toString());
    await kv.set('headlines', String(before + 1));
    await kv.set('headline', `${name} has ${await points.get()} points`);
    await pen.release();
  }
  await kv.close();
}

async function main(): Promise<void> {
  const store = createStore({ octets: 2 ** 20 });
  const { rdma } = await store.listen({ rdma: 0 });
  const players = NAMES.map((name) => fork(fileURLToPath(import.meta.url), [String(rdma), name]));
  await Promise.all(players.map((player) => once(player, 'exit')));

  const kv = await connect({ port: rdma! });
  const text = async (key: string): Promise<string> => Buffer.from((await kv.get(key))!).toString();
  let sum = 0;
  for (const name of NAMES) {
    const points = Number(await text(`points:${name}`));
    sum += points;
    console.log(`${name}: ${points}`);
  }
  console.log(`all: ${await text('points')}`);
  console.log(`the last headline of ${await text('headlines')}: ${await text('headline')}`);
  const { hits } = store.stats();
  await kv.close();
  await store.close();
  const isRight = sum > 0 && players.every(({ exitCode }) => exitCode === 0);
  console.log(
    isRight && hits < ROUNDS ? 'no point was lost, and the owner looked nothing up for it' : 'wrong',
  );
  process.exitCode = isRight ? 0 : 1;
}

const [port, name] = process.argv.slice(2);
if (port !== undefined && name !== undefined) await play(Number(port), name);
else await main();
