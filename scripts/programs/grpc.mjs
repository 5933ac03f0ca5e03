// @grpc/grpc-js: its server is given our streams, its client a bridge to them.
import grpc from '@grpc/grpc-js';
import { createServer } from 'iwarp/sockets';
import { bridge } from './gateway.mjs';
import { check, done, listen, same, socketPath } from './kit.mjs';

const bytes = (value) => Buffer.from(value);
const method = (name, requestStream, responseStream) => ({
  path: `/Trial/${name}`,
  requestStream,
  responseStream,
  requestSerialize: bytes,
  requestDeserialize: bytes,
  responseSerialize: bytes,
  responseDeserialize: bytes,
});
const service = {
  Echo: method('Echo', false, false),
  Count: method('Count', false, true),
  Sum: method('Sum', true, false),
  Chat: method('Chat', true, true),
  Never: method('Never', false, false),
};
const trial = new grpc.Server();
trial.addService(service, {
  Echo: (call, reply) => reply(null, call.request),
  Count: (call) => {
    for (let i = 0; i < 1000; i++) call.write(String(i));
    call.end();
  },
  Sum: (call, reply) => {
    let sum = 0;
    call.on('data', (data) => (sum += data.length)).on('end', () => reply(null, String(sum)));
  },
  Chat: (call) => call.on('data', (data) => call.write(data)).on('end', () => call.end()),
  Never: () => undefined,
});
const injector = trial.createConnectionInjector(grpc.ServerCredentials.createInsecure());
const server = createServer({ allowHalfOpen: true }, (socket) => injector.injectConnection(socket));
const port = await listen(server);
const path = socketPath('grpc');
const local = await bridge({ host: '127.0.0.1', port }, path);
const Client = grpc.makeGenericClientConstructor(service, 'Trial');
const client = new Client(`unix:${path}`, grpc.credentials.createInsecure());
const call = (name, request, options = {}) =>
  new Promise((resolve, reject) => {
    client[name](request, new grpc.Metadata(), options, (error, value) => {
      if (error) reject(error);
      else resolve(value);
    });
  });

await check('grpc-js: a call', async () => same(String(await call('Echo', 'hello')), 'hello'));
await check('grpc-js: 3 MiB there and back', async () => {
  const back = await call('Echo', Buffer.alloc(3 * 2 ** 20, 7));
  same(back.equals(Buffer.alloc(3 * 2 ** 20, 7)), true);
});
await check('grpc-js: a stream of 1,000 answers', async () => {
  let count = 0;
  await new Promise((resolve, reject) => {
    const stream = client.Count('');
    stream.on('data', (data) => same(String(data), String(count++)));
    stream.on('error', reject).on('end', resolve);
  });
  same(count, 1000);
});
await check('grpc-js: a stream of 1,000 requests', async () => {
  const sum = await new Promise((resolve, reject) => {
    const stream = client.Sum((error, value) => (error ? reject(error) : resolve(String(value))));
    for (let i = 0; i < 1000; i++) stream.write(Buffer.alloc(1000));
    stream.end();
  });
  same(sum, '1000000');
});
await check('grpc-js: 500 messages in turn, both ways', async () => {
  let count = 0;
  await new Promise((resolve, reject) => {
    const stream = client.Chat();
    stream.on('data', () => (++count < 500 ? stream.write('x') : stream.end()));
    stream.on('error', reject).on('end', resolve);
    stream.write('x');
  });
  same(count, 500);
});
await check('grpc-js: 200 calls at once', async () => {
  const all = await Promise.all(Array.from({ length: 200 }, (_, i) => call('Echo', String(i))));
  same(all.every((value, i) => String(value) === String(i)), true);
});
await check('grpc-js: a deadline', async () => {
  const error = await call('Never', '', { deadline: Date.now() + 200 }).catch((reason) => reason);
  same(error.code, grpc.status.DEADLINE_EXCEEDED);
});
client.close();
local.close();
done();
