// Ordinary programs that know nothing of RDMA: servers and clients of npm packages at 127.0.0.2. PostgreSQL
// and redis-server, at 127.0.0.1, are reached through a relay of a few lines, as ordinary as they are.
import http from 'node:http';
import net from 'node:net';
import grpc from '@grpc/grpc-js';
import express from 'express';
import { Redis } from 'ioredis';
import pg from 'pg';
import { createClient } from 'redis';
import { request } from 'undici';
import { WebSocket, WebSocketServer } from 'ws';
import { check, done, listen, same } from './kit.mjs';

const HOST = '127.0.0.2';
const listenHere = (server) => listen(server, 0, HOST);

/** A port here that leads to a server of this machine. */
async function relay(port) {
  const server = net.createServer((socket) => {
    const onwards = net.connect(port, '127.0.0.1');
    socket.pipe(onwards).pipe(socket);
    for (const end of [socket, onwards])
      end.on('error', () => undefined).on('close', () => (end === socket ? onwards : socket).destroy());
  });
  return await listenHere(server);
}

const app = express();
app.use(express.json({ limit: '20mb' }));
app.post('/length', (asked, answer) => void answer.json({ length: asked.body.text.length }));
app.get('/', (_asked, answer) => void answer.send('hello'));
const web = http.createServer(app);
const url = `http://${HOST}:${await listenHere(web)}`;

await check('express, fetch: a page', async () => same(await (await fetch(url)).text(), 'hello'));
await check('express, undici: 5 MB of JSON', async () => {
  const body = JSON.stringify({ text: 'x'.repeat(5_000_000) });
  const { body: answer } = await request(`${url}/length`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json' },
  });
  same((await answer.json()).length, 5_000_000);
});
await check('express: 200 requests, 20 at a time', async () => {
  for (let i = 0; i < 10; i++) {
    const all = await Promise.all(Array.from({ length: 20 }, async () => (await fetch(url)).text()));
    same(all.filter((text) => text === 'hello').length, 20);
  }
});

const sockets = new WebSocketServer({ noServer: true });
sockets.on('connection', (socket) => socket.on('message', (data, binary) => socket.send(data, { binary })));
web.on('upgrade', (asked, socket, head) =>
  sockets.handleUpgrade(asked, socket, head, (made) => sockets.emit('connection', made)),
);
await check('ws: 1,000 messages and one of 8 MiB', async () => {
  const socket = new WebSocket(url.replace('http', 'ws'));
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  let octets = 0;
  const all = new Promise((resolve) =>
    socket.on('message', (data) => {
      octets += data.length;
      if (octets === 1_000 * 100 + 8 * 2 ** 20) resolve();
    }),
  );
  for (let i = 0; i < 1000; i++) socket.send(Buffer.alloc(100, i));
  socket.send(Buffer.alloc(8 * 2 ** 20));
  await all;
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.close();
  await closed;
});

await check('grpc-js: server and client, 3 MiB there and back', async () => {
  const bytes = (value) => Buffer.from(value);
  const serialize = {
    requestSerialize: bytes,
    requestDeserialize: bytes,
    responseSerialize: bytes,
    responseDeserialize: bytes,
  };
  const service = { Echo: { path: '/T/Echo', requestStream: false, responseStream: false, ...serialize } };
  const server = new grpc.Server();
  server.addService(service, { Echo: (call, reply) => reply(null, call.request) });
  const port = await new Promise((resolve, reject) =>
    server.bindAsync(`${HOST}:0`, grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    ),
  );
  const Client = grpc.makeGenericClientConstructor(service, 'T');
  const client = new Client(`${HOST}:${port}`, grpc.credentials.createInsecure());
  const sent = Buffer.alloc(3 * 2 ** 20, 7);
  const back = await new Promise((resolve, reject) =>
    client.Echo(sent, (error, value) => (error ? reject(error) : resolve(value))),
  );
  same(back.equals(sent), true);
  client.close();
  server.forceShutdown();
});

const redisPort = await relay(Number(process.env.REDIS_PORT));
await check('ioredis: set, get and a value of 4 MiB', async () => {
  const redis = new Redis({ host: HOST, port: redisPort });
  await redis.set('preload', 'yes');
  same(await redis.get('preload'), 'yes');
  await redis.set('large', Buffer.alloc(4 * 2 ** 20, 9));
  same((await redis.getBuffer('large')).length, 4 * 2 ** 20);
  await redis.quit();
});
await check('node-redis: 1,000 increments in a pipeline', async () => {
  const redis = createClient({ socket: { host: HOST, port: redisPort } });
  await redis.connect();
  await redis.del('count');
  await Promise.all(Array.from({ length: 1000 }, () => redis.incr('count')));
  same(await redis.get('count'), '1000');
  await redis.quit();
});
await check('pg: 20,000 rows', async () => {
  const port = await relay(Number(process.env.PGPORT));
  const client = new pg.Client({ host: HOST, port, user: 'postgres', database: 'postgres' });
  await client.connect();
  const { rows } = await client.query("select repeat('x', 100) as text from generate_series(1, 20000)");
  same(rows.filter(({ text }) => text.length === 100).length, 20_000);
  await client.end();
});
done();
