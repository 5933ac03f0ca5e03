// ioredis and node-redis with the real redis-server behind a gateway.
import { AbstractConnector, Redis } from 'ioredis';
import { createClient } from 'redis';
import { connect } from 'iwarp/sockets';
import { bridge, gateway } from './gateway.mjs';
import { check, done, same, socketPath } from './kit.mjs';

const server = await gateway({ host: '127.0.0.1', port: Number(process.env.REDIS_PORT) });
const there = { host: '127.0.0.1', port: server.address().port };

class RdmaConnector extends AbstractConnector {
  constructor({ host, port, disconnectTimeout }) {
    super(disconnectTimeout);
    this.where = { host, port };
  }
  async connect() {
    this.connecting = true;
    return (this.stream = connect(this.where));
  }
}
const open = (options = {}) => new Redis({ ...there, Connector: RdmaConnector, ...options });
const redis = open();

await check('ioredis: set and get', async () => {
  await redis.set('colour', 'blue');
  same(await redis.get('colour'), 'blue');
});
await check('ioredis: a value of 16 MiB', async () => {
  const value = Buffer.alloc(16 * 2 ** 20, 9);
  await redis.set('big', value);
  same((await redis.getBuffer('big')).equals(value), true);
});
await check('ioredis: a pipeline of 10,000', async () => {
  await redis.del('count');
  const pipeline = redis.pipeline();
  for (let i = 0; i < 10_000; i++) pipeline.incr('count');
  same((await pipeline.exec()).at(-1)[1], 10_000);
});
await check('ioredis: publish and subscribe', async () => {
  const listener = open();
  await listener.subscribe('news');
  const heard = new Promise((resolve) => listener.once('message', (_, text) => resolve(text)));
  await redis.publish('news', 'it works');
  same(await heard, 'it works');
  await listener.quit();
});
await check('ioredis: a blocking call', async () => {
  const waiting = open();
  await redis.del('queue');
  const popped = waiting.blpop('queue', 10);
  await redis.rpush('queue', 'next');
  same((await popped)[1], 'next');
  await waiting.quit();
});
await check('ioredis: tries again after a lost connection', async () => {
  const kept = open({ retryStrategy: () => 20 });
  const id = await kept.client('ID');
  const lost = new Promise((resolve) => kept.once('reconnecting', resolve));
  await redis.client('KILL', 'ID', String(id));
  await lost;
  same(await kept.get('colour'), 'blue');
  await kept.quit();
});
await check('ioredis: nobody listens', async () => {
  const lone = open({ port: 1, retryStrategy: () => null });
  lone.on('end', () => undefined);
  const error = await new Promise((resolve) => lone.once('error', resolve));
  same(error.code, 'ECONNREFUSED');
});
await check('ioredis: quit', () => redis.quit());

const path = socketPath('redis');
const local = await bridge(there, path);
const client = createClient({ socket: { path } });
await check('node-redis: connect', () => client.connect());
await check('node-redis: set and get', async () => {
  await client.set('shape', 'round');
  same(await client.get('shape'), 'round');
});
await check('node-redis: a value of 16 MiB', async () => {
  const value = 'x'.repeat(16 * 2 ** 20);
  await client.set('big', value);
  same(await client.get('big'), value);
});
await check('node-redis: 10,000 calls at once', async () => {
  await client.del('count');
  const all = await Promise.all(Array.from({ length: 10_000 }, () => client.incr('count')));
  same(all.at(-1), 10_000);
});
await check('node-redis: publish and subscribe', async () => {
  const listener = client.duplicate();
  await listener.connect();
  let hear;
  const heard = new Promise((resolve) => (hear = resolve));
  await listener.subscribe('news', hear);
  await client.publish('news', 'too');
  same(await heard, 'too');
  await listener.close();
});
await check('node-redis: close', () => client.close());
local.close();
done();
