/**
 * A queue pair opposite a Redis server, which knows nothing of RDMA: with the wire `qpip` Sends and Receives
 * are plain TCP. All commands are posted as one list, answers land in the registered memory of receives.
 *
 *   npx tsx examples/qp-redis.ts                     a stand-in for Redis in this process
 *   npx tsx examples/qp-redis.ts 127.0.0.1 6379      redis-server
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { ACCESS, openRnic } from 'iwarp';

const RECEIVES = 4;
const RECEIVE_BYTES = 4096;

/** A command as Redis takes it: an array of strings. */
const encode = (...words: string[]): Buffer =>
  Buffer.from(
    `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`,
  );

/** The first answer in `text` and the rest, or null if it is not whole. */
function decode(text: string): { readonly value: string; readonly rest: string } | null {
  const end = text.indexOf('\r\n');
  if (end < 0) return null;
  const [kind, head] = [text[0], text.slice(1, end)];
  if (kind !== '$' || head === '-1')
    return { value: head === '-1' ? '(nil)' : head, rest: text.slice(end + 2) };
  const from = end + 2;
  const to = from + Number(head);
  return text.length < to + 2 ? null : { value: text.slice(from, to), rest: text.slice(to + 2) };
}

/** Knows PING, SET and GET: enough to show the queue pair without Redis. */
function standIn(): Server {
  const values = new Map<string, string>();
  return createServer((socket) => {
    socket.on('data', (data) => {
      for (const command of data
        .toString()
        .split(/\*\d+\r\n/)
        .slice(1)) {
        const [word, key = '', value = ''] = command.split('\r\n').filter((_line, i) => i % 2 === 1);
        if (word === 'SET') values.set(key, value);
        const found = values.get(key);
        const got = found === undefined ? '$-1\r\n' : `$${found.length}\r\n${found}\r\n`;
        socket.write(word === 'GET' ? got : word === 'SET' ? '+OK\r\n' : '+PONG\r\n');
      }
    });
  });
}

let [host = '127.0.0.1', port] = process.argv.slice(2);
const server = port === undefined ? standIn().listen(0, host) : null;
if (server !== null) {
  await once(server, 'listening');
  port = String((server.address() as AddressInfo).port);
}

const { device, cm } = openRnic({ wire: 'qpip' });
const pd = device.allocatePd();
const cq = device.createCq(64);
const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: RECEIVES });
const inbox = pd.registerMemory(device.allocateMemory(RECEIVES * RECEIVE_BYTES), ACCESS.LOCAL_WRITE);
const receive = (slot: number): void => {
  qp.postRecv({ wrId: slot, sges: [{ mr: inbox, offset: slot * RECEIVE_BYTES, length: RECEIVE_BYTES }] });
};
for (let slot = 0; slot < RECEIVES; slot++) receive(slot);

const connection = cm.connect(qp, { host, port: Number(port) });
const ended = new Promise<string>((resolve) => {
  connection.setHandler((event) => {
    if (event.type === 'connect-error') console.error(event.error?.message);
    if (event.type === 'disconnected') resolve(event.cause);
  });
});

const commands = [['PING'], ['SET', 'wire', 'qpip'], ['GET', 'wire'], ['GET', 'nothing of the kind']];
qp.postSend(
  commands.map((words) => ({ opcode: 'send' as const, inline: encode(...words), signaled: false })),
);

let text = '';
let answered = 0;
for await (const { status, wrId, byteLength } of cq) {
  if (status !== 'success') break;
  const at = Number(wrId) * RECEIVE_BYTES;
  text += Buffer.from(inbox.bytes.subarray(at, at + byteLength)).toString();
  receive(Number(wrId));
  for (let answer = decode(text); answer !== null; answer = decode(text)) {
    console.log(`${commands[answered++]!.join(' ')}: ${answer.value}`);
    text = answer.rest;
  }
  if (answered === commands.length) break;
}
const { octetsIn, octetsOut } = connection.counters();
connection.disconnect();
console.log(`${octetsOut} bytes out, ${octetsIn} in; the connection ended ${await ended}`);
qp.destroy();
server?.close();
