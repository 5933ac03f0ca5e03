// express, fastify, ws and undici, each at both ends of byte streams over RDMA.
import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import express from 'express';
import fastify from 'fastify';
import { Agent, fetch, Pool, request } from 'undici';
import { WebSocket, WebSocketServer } from 'ws';
import { connect, createServer } from 'iwarp/sockets';
import { check, done, listen, same } from './kit.mjs';

const MIB = 2 ** 20;
const digest = (bytes) => createHash('sha256').update(bytes).digest('hex');

/** An agent of node:http over RDMA. */
class RdmaAgent extends http.Agent {
  createConnection({ port, host }) {
    return connect(port, host);
  }
}

function overRdma(web) {
  return listen(createServer((socket) => web.emit('connection', socket)));
}

/** The reply that node:http's client gets. */
async function ask(agent, port, path, { method = 'GET', body, headers } = {}) {
  const response = await new Promise((resolve, reject) => {
    const call = http.request({ agent, host: '127.0.0.1', port, path, method, headers }, resolve);
    call.once('error', reject).end(body);
  });
  return { status: response.statusCode, body: Buffer.concat(await response.toArray()) };
}

const connectOver = ({ hostname, port }, callback) => {
  const socket = connect({ host: hostname, port });
  socket.once('connect', () => callback(null, socket)).once('error', (error) => callback(error, null));
};

// ----------------------------------------------------------------------------------------------- express

const app = express();
app.get('/json', (_, response) => response.json({ by: 'express' }));
app.post('/digest', express.raw({ limit: '64mb', type: '*/*' }), (call, response) => {
  response.send(digest(call.body));
});
app.get('/missing', (_, response) => response.sendStatus(404));
const expressPort = await overRdma(http.createServer(app));
const agent = new RdmaAgent({ keepAlive: true, maxSockets: 8 });

await check('express: JSON', async () => {
  const { body } = await ask(agent, expressPort, '/json');
  same(body.toString(), '{"by":"express"}');
});
await check('express: a body of 16 MiB arrives whole', async () => {
  const body = randomBytes(16 * MIB);
  const headers = { 'content-type': 'application/octet-stream' };
  const answer = await ask(agent, expressPort, '/digest', { method: 'POST', body, headers });
  same(answer.body.toString(), digest(body));
});
await check('express: 404', async () => same((await ask(agent, expressPort, '/missing')).status, 404));
await check('express: 500 requests over 8 connections', async () => {
  const all = await Promise.all(Array.from({ length: 500 }, () => ask(agent, expressPort, '/json')));
  same(all.every(({ status }) => status === 200), true);
});

// ----------------------------------------------------------------------------------------------- fastify

let web;
const serverFactory = (handler) => (web = http.createServer(handler));
const other = fastify({ serverFactory, bodyLimit: 64 * MIB });
other.get('/json', async () => ({ by: 'fastify' }));
other.post('/echo', async (call) => call.body);
other.get('/stream', (_, reply) => reply.send(new Blob([Buffer.alloc(8 * MIB, 5)]).stream()));
await other.ready();
const fastifyPort = await overRdma(web);

await check('fastify: JSON', async () => {
  const { body } = await ask(agent, fastifyPort, '/json');
  same(body.toString(), '{"by":"fastify"}');
});
await check('fastify: JSON there and back', async () => {
  const body = JSON.stringify({ list: Array.from({ length: 50_000 }, (_, i) => i) });
  const headers = { 'content-type': 'application/json' };
  const answer = await ask(agent, fastifyPort, '/echo', { method: 'POST', body, headers });
  same(answer.body.toString(), body);
});
await check('fastify: a stream of 8 MiB', async () => {
  const { body } = await ask(agent, fastifyPort, '/stream');
  same(digest(body), digest(Buffer.alloc(8 * MIB, 5)));
});

// ------------------------------------------------------------------------------------------------ undici

const dispatcher = new Agent({ connect: connectOver, connections: 8, pipelining: 1 });
const at = (port, path) => `http://127.0.0.1:${port}${path}`;
await check('undici: fetch', async () => {
  const response = await fetch(at(expressPort, '/json'), { dispatcher });
  same((await response.json()).by, 'express');
});
await check('undici: fetch with a body of 16 MiB', async () => {
  const body = randomBytes(16 * MIB);
  const headers = { 'content-type': 'application/octet-stream' };
  const response = await fetch(at(expressPort, '/digest'), { dispatcher, method: 'POST', body, headers });
  same(await response.text(), digest(body));
});
await check('undici: 500 requests of a pool', async () => {
  const options = { connect: connectOver, connections: 8, pipelining: 4 };
  const pool = new Pool(`http://127.0.0.1:${expressPort}`, options);
  const ones = Array.from({ length: 500 }, async () => {
    const { body } = await pool.request({ path: '/json', method: 'GET' });
    return await body.text();
  });
  same((await Promise.all(ones)).every((text) => text === '{"by":"express"}'), true);
  await pool.close();
});
await check('undici: an abort', async () => {
  const given = AbortSignal.timeout(1000);
  const never = http.createServer(() => undefined);
  const port = await overRdma(never);
  const error = await request(at(port, '/'), { dispatcher, signal: given }).catch((reason) => reason);
  same(error.name, 'TimeoutError');
});
await check('undici: nobody listens', async () => {
  const error = await request(at(1, '/'), { dispatcher }).catch((reason) => reason);
  same(error.code, 'ECONNREFUSED');
});
await dispatcher.close();

// ---------------------------------------------------------------------------------------------------- ws

const host = http.createServer();
const chat = new WebSocketServer({ server: host, maxPayload: 64 * MIB, perMessageDeflate: true });
chat.on('connection', (peer) => {
  peer.on('message', (data, binary) => peer.send(data, { binary }));
});
const chatPort = await overRdma(host);
async function open() {
  const socket = new WebSocket(`ws://127.0.0.1:${chatPort}/`, {
    createConnection: () => connect(chatPort, '127.0.0.1'),
    maxPayload: 64 * MIB,
  });
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  return socket;
}
const next = (socket) => new Promise((resolve) => socket.once('message', (data) => resolve(data)));

await check('ws: text', async () => {
  const socket = await open();
  socket.send('hello');
  same(String(await next(socket)), 'hello');
  socket.close(1000);
  const code = await new Promise((resolve) => socket.once('close', resolve));
  same(code, 1000);
});
await check('ws: 16 MiB there and back', async () => {
  const socket = await open();
  const bytes = randomBytes(16 * MIB);
  socket.send(bytes);
  same(digest(await next(socket)), digest(bytes));
  socket.terminate();
});
await check('ws: 5,000 messages in order', async () => {
  const socket = await open();
  let count = 0;
  const all = new Promise((resolve, reject) => {
    socket.on('message', (data) => {
      if (String(data) !== String(count++)) reject(new Error(`message ${count} is ${String(data)}`));
      if (count === 5000) resolve();
    });
  });
  for (let i = 0; i < 5000; i++) socket.send(String(i));
  await all;
  socket.close();
});
await check('ws: ping and pong', async () => {
  const socket = await open();
  socket.ping('are you there');
  const data = await new Promise((resolve) => socket.once('pong', resolve));
  same(String(data), 'are you there');
  socket.close();
});
done();
