/**
 * An ordinary program that knows nothing of RDMA: `app.ts SCENARIO [PORTS]`. Prints one line of JSON with
 * what it has seen. APP_KEY and APP_CERT are what its TLS servers have.
 */
import { createHash } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import { connect, createServer, Server, Socket, type AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import tls from 'node:tls';

const [scenario = '', port = '0', ...ports] = process.argv.slice(2);
const HERE = '127.0.0.1';

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, HERE, resolve));
  return (server.address() as AddressInfo).port;
}

/** Send 5 MB through an echo and compare; then end in order. */
async function echo(socket: Socket): Promise<object> {
  const sent = Buffer.alloc(5_000_000, 'a piece of text ');
  const hash = createHash('sha256');
  let octets = 0;
  socket.on('data', (chunk: Buffer) => {
    octets += chunk.length;
    hash.update(chunk);
  });
  const ended = new Promise((resolve) => socket.once('end', resolve));
  await pipeline(
    Readable.from([sent.subarray(0, 1), sent.subarray(1, 70_000), sent.subarray(70_000)]),
    socket,
    {
      end: true,
    },
  );
  await ended;
  return { octets, same: hash.digest('hex') === createHash('sha256').update(sent).digest('hex') };
}

const scenarios: Readonly<Record<string, () => Promise<object>>> = {
  async echo() {
    const server = createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket));
    const at = await listening(server);
    const socket = connect(at, HERE);
    const isSocket = socket instanceof Socket;
    const result = await echo(socket);
    const closed = new Promise((resolve) => server.close(resolve));
    await closed;
    return { ...result, isSocket, peer: socket.remotePort === undefined || socket.remotePort === at };
  },
  async constructed() {
    const server = createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket));
    const socket = new Socket();
    socket.connect(await listening(server), HERE);
    socket.write('early ');
    socket.end('late');
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    server.close();
    return { text };
  },
  async http() {
    const server = http.createServer((request, response) => {
      let octets = 0;
      request.on('data', (chunk: Buffer) => (octets += chunk.length));
      request.on('end', () => response.end(`${request.method} ${octets}`));
    });
    const url = `http://${HERE}:${await listening(server)}/`;
    const agent = new http.Agent({ keepAlive: true });
    const answers: string[] = [];
    for (const body of ['', 'x'.repeat(100_000), 'y'])
      answers.push(
        await new Promise<string>((resolve, reject) => {
          const asked = http.request(url, { method: body === '' ? 'GET' : 'POST', agent }, (response) => {
            let text = '';
            response.setEncoding('utf8').on('data', (part: string) => (text += part));
            response.on('end', () => resolve(text));
          });
          asked.on('error', reject).end(body);
        }),
      );
    answers.push(await (await fetch(url, { headers: { connection: 'close' } })).text());
    agent.destroy();
    server.close();
    server.closeAllConnections();
    return { answers };
  },
  async https() {
    const { APP_KEY: key, APP_CERT: cert } = process.env;
    const server = https.createServer({ key, cert }, (request, response) => {
      request.pipe(response);
    });
    const at = await listening(server);
    const agent = new https.Agent({ keepAlive: true, ca: cert });
    const answers: unknown[] = [];
    for (const body of ['x', 'y'.repeat(1_000_000)])
      answers.push(
        await new Promise<string>((resolve, reject) => {
          const options = { host: HERE, port: at, method: 'POST', agent };
          const asked = https.request(options, (response) => {
            let text = '';
            response.setEncoding('utf8').on('data', (part: string) => (text += part));
            response.on('end', () => resolve(`${text[0]} ${text.length}`));
          });
          asked.on('error', reject).end(body);
        }),
      );
    agent.destroy();
    // A certificate that nobody vouches for, and another name than that in it.
    for (const options of [{}, { ca: cert, servername: 'other.example' }]) {
      const refused = tls.connect({ host: HERE, port: at, ...options });
      answers.push(
        await new Promise((resolve) =>
          refused.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code)),
        ),
      );
    }
    server.close();
    server.closeAllConnections();
    return { answers };
  },
  async 'tls-connect'() {
    const { APP_KEY: key, APP_CERT: cert } = process.env;
    const server = tls.createServer({ key, cert }, (socket) => {
      socket.on('error', () => undefined).end(`to ${String(socket.servername)}`);
    });
    const at = await listening(server);
    const texts: string[] = [];
    let heard = 0;
    const listener = (): void => void heard++;
    // The forms in which a program may call it.
    for (const connected of [
      tls.connect(at, HERE, { ca: cert }, listener),
      tls.connect(at, { ca: cert, host: HERE, servername: 'localhost' }, listener),
      tls.connect({ port: at, ca: cert }, listener),
    ]) {
      let text = '';
      for await (const chunk of connected) text += String(chunk);
      texts.push(`${text}, ${connected.authorized}`);
    }
    server.close();
    return { texts, heard };
  },
  /** TLS on a connection that has spoken another protocol, as clients of databases do. */
  async starttls() {
    const { APP_KEY: key, APP_CERT: cert } = process.env;
    const secureContext = tls.createSecureContext({ key, cert });
    const server = createServer((socket) => {
      socket.once('data', () => {
        const secure = new tls.TLSSocket(socket, { isServer: true, secureContext });
        secure.once('data', (chunk: Buffer) => secure.end(`secure ${String(chunk)}`));
        socket.write('go on');
      });
    });
    const plain = connect(await listening(server), HERE);
    plain.write('TLS, please');
    await new Promise((resolve) => plain.once('data', resolve));
    const secure = tls.connect({ socket: plain, ca: cert, host: HERE });
    secure.write('hello');
    let text = '';
    for await (const chunk of secure) text += String(chunk);
    secure.destroy();
    server.close();
    return { text };
  },
  async refused() {
    const server = createServer();
    const at = await listening(server);
    await new Promise((resolve) => server.close(resolve));
    const socket = connect(at, HERE);
    const error = await new Promise<NodeJS.ErrnoException>((resolve) => socket.once('error', resolve));
    return { code: error.code, syscall: error.syscall };
  },
  async 'server-begins'() {
    const server = createServer((socket) => socket.end('220 ready\r\n'));
    let text = '';
    for await (const chunk of connect(await listening(server), HERE)) text += String(chunk);
    server.close();
    return { text };
  },
  async timeout() {
    const server = createServer((socket) => void socket.on('data', () => undefined));
    const socket = connect(await listening(server), HERE);
    await new Promise((resolve) => socket.once('connect', resolve));
    socket.setTimeout(100);
    const began = performance.now();
    await new Promise((resolve) => socket.once('timeout', resolve));
    const took = performance.now() - began;
    socket.destroy();
    server.close();
    return { inTime: took > 80 && took < 5000 };
  },
  /** Serve an echo until the standard input ends. */
  async serve() {
    const server = createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket));
    console.log(await listening(server));
    await new Promise((resolve) => process.stdin.on('end', resolve).resume());
    server.close();
    return {};
  },
  async ask() {
    return await echo(connect(Number(port), HERE));
  },
  /** A connection to each port, which has carried something, until the standard input ends. */
  async hold() {
    const held = [port, ...ports].map((each) => connect(Number(each), HERE));
    for (const socket of held)
      await new Promise((resolve) => {
        socket.once('data', resolve);
        socket.write('x');
      });
    console.log('held');
    await new Promise((resolve) => process.stdin.on('end', resolve).resume());
    for (const socket of held) socket.destroy();
    return {};
  },
};

console.log(JSON.stringify(await scenarios[scenario]!()));
