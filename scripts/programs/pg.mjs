// pg with the real PostgreSQL behind a gateway.
import pg from 'pg';
import { Socket } from 'iwarp/sockets';
import { gateway } from './gateway.mjs';
import { check, done, same } from './kit.mjs';

const server = await gateway({ host: '127.0.0.1', port: Number(process.env.PGPORT) });
const options = {
  host: '127.0.0.1',
  port: server.address().port,
  user: 'postgres',
  database: 'postgres',
  stream: () => new Socket(),
};
const client = new pg.Client(options);

await check('pg: connect', () => client.connect());
await check('pg: a query with a parameter', async () => {
  const { rows } = await client.query('select $1::int + 1 as answer', [41]);
  same(rows[0].answer, 42);
});
await check('pg: 20,000 rows of 1,000 bytes', async () => {
  const { rows } = await client.query("select repeat('x', 1000) as text from generate_series(1, 20000)");
  same(rows.filter(({ text }) => text.length === 1000).length, 20_000);
});
await check('pg: a parameter of 16 MiB', async () => {
  const { rows } = await client.query('select length($1::bytea) as length', [Buffer.alloc(16 * 2 ** 20)]);
  same(rows[0].length, 16 * 2 ** 20);
});
await check('pg: a transaction', async () => {
  await client.query('create table if not exists trial (n int)');
  await client.query('begin');
  await client.query('insert into trial select generate_series(1, 1000)');
  await client.query('rollback');
  const { rows } = await client.query('select count(*)::int as count from trial');
  same(rows[0].count, 0);
});
await check('pg: listen and notify', async () => {
  await client.query('listen news');
  const heard = new Promise((resolve) => client.once('notification', ({ payload }) => resolve(payload)));
  await client.query("notify news, 'it works'");
  same(await heard, 'it works');
});
await check("pg: an error of the server's", async () => {
  const error = await client.query('select nonsense').catch((reason) => reason);
  same(error.code, '42703');
});
await check('pg: end', () => client.end());

const pool = new pg.Pool({ ...options, max: 5 });
await check('pg: 200 queries of a pool', async () => {
  const ones = Array.from({ length: 200 }, (_, i) => pool.query('select $1::int as n', [i]));
  same((await Promise.all(ones)).every(({ rows }, i) => rows[0].n === i), true);
});
await check('pg: a backend is ended', async () => {
  const ended = new pg.Client(options);
  await ended.connect();
  const lost = new Promise((resolve) => ended.on('error', resolve));
  const { rows } = await ended.query('select pg_backend_pid() as pid');
  await pool.query('select pg_terminate_backend($1)', [rows[0].pid]);
  same((await lost).code, '57P01');
});
await check('pg: nobody listens', async () => {
  const lone = new pg.Client({ ...options, port: 1 });
  const error = await lone.connect().catch((reason) => reason);
  same(error.code, 'ECONNREFUSED');
});
await check('pg: end of the pool', () => pool.end());
server.close();
done();
