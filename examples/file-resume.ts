/**
 * Sends the files of a folder over byte streams, several at a time, and goes on where it was stopped: the
 * receiver says how much of each file it has. Either side may be killed at any moment and started again.
 *
 *   npx tsx examples/file-resume.ts                              a thousand files, and both ends are killed
 *   npx tsx examples/file-resume.ts receive 127.0.0.1 4711 TARGET
 *   npx tsx examples/file-resume.ts send 127.0.0.1 4711 SOURCE
 */
import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createClient, createServer, type ByteStream, type Connection, type Request } from 'iwarp';

/** Files under way at a time. */
const LANES = 8;
const FILES = 1000;
const PART = '.part';
const heartbeat = { interval: 2000, timeout: 2000 };

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const sizeOf = async (path: string): Promise<number> => (await stat(path).catch(() => null))?.size ?? -1;

/** The receiver: a part of a file has the name `NAME.part` until its hash has been compared. */
async function receive(host: string, port: number, folder: string): Promise<number> {
  await mkdir(folder, { recursive: true });
  const answer = async (request: Request): Promise<string> => {
    const { name, hash } = JSON.parse(request.text()) as { name: string; hash?: string };
    const path = join(folder, basename(name)); // whatever the sender says, it stays in the folder
    if (hash === undefined) return (await sizeOf(path)) >= 0 ? 'done' : String(await sizeOf(path + PART));
    const isEqual = sha256(await readFile(path + PART)) === hash;
    await (isEqual ? rename(path + PART, path) : rm(path + PART));
    return isEqual ? 'done' : 'again';
  };
  const store = async (stream: ByteStream): Promise<void> => {
    const [offset, ...words] = stream.name.split(' ');
    const path = join(folder, basename(words.join(' '))) + PART;
    await (await open(path, 'a')).close(); // now it exists
    await pipeline(stream, createWriteStream(path, { flags: 'r+', start: Number(offset) }), { end: true });
    stream.end(); // the answer: all bytes are in the file
  };
  const attend = async (connection: Connection): Promise<void> => {
    void connection.serve(answer).catch(() => undefined);
    for await (const stream of connection.streams()) store(stream).catch(() => stream.destroy());
  };
  const server = await createServer({ heartbeat }, (connection) => {
    attend(connection).catch((error: Error) => console.log(`a sender was lost: ${error.message}`));
  }).listen({ host, port });
  return server.address().port;
}

/** Send one file, or its missing part; the number of bytes that were sent. */
async function sendFile(connection: Connection, folder: string, name: string): Promise<number> {
  const ask = async (hash?: string): Promise<string> =>
    String(await connection.request(JSON.stringify({ name, hash })));
  const path = join(folder, name);
  let sent = 0;
  for (let have = await ask(); have !== 'done'; ) {
    const start = Math.max(0, Number(have));
    const stream = connection.stream(`${start} ${name}`);
    createReadStream(path, { start }).pipe(stream);
    for await (const _ of stream); // nothing but its end, which says that the file is written
    sent += (await sizeOf(path)) - start;
    const answer = await ask(sha256(await readFile(path)));
    have = answer === 'again' ? '0' : answer;
  }
  return sent;
}

async function send(host: string, port: number, folder: string): Promise<void> {
  await using client = createClient({ host, port, heartbeat, reconnect: { most: 500 } });
  const names = await readdir(folder);
  let sent = 0;
  const lane = async (): Promise<void> => {
    for (let name = names.pop(); name !== undefined; name = names.pop()) {
      const one = name; // when the receiver is lost, the file goes on over the next connection
      sent += await client.use((connection) => sendFile(connection, folder, one), { repeat: true });
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  console.log(`sent ${sent} bytes`);
}

const self = (...args: string[]): ChildProcess => fork(fileURLToPath(import.meta.url), args);

/** Wait until `folder` holds this number of whole files. */
async function holds(folder: string, count: number): Promise<void> {
  const whole = async (): Promise<number> =>
    (await readdir(folder).catch(() => [])).filter((name) => !name.endsWith(PART)).length;
  while ((await whole()) < count) await sleep(5);
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

async function rehearsal(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'iwarp-resume-'));
  const [source, target] = [join(folder, 'source'), join(folder, 'target')];
  await mkdir(source);
  for (let i = 0; i < FILES; i++)
    await writeFile(join(source, `file ${i}`), randomBytes(i % 100 === 0 ? 1 << 20 : (i * 61) % 40_000));
  let receiver = self('receive', '127.0.0.1', '0', target);
  const [port] = (await once(receiver, 'message')) as [number];
  const sender = self('send', '127.0.0.1', String(port), source);
  await holds(target, FILES / 4);
  await kill(sender);
  console.log('the sender was killed, and another goes on');
  const other = self('send', '127.0.0.1', String(port), source);
  await holds(target, FILES / 2);
  await kill(receiver);
  console.log('the receiver was killed, and comes back');
  receiver = self('receive', '127.0.0.1', String(port), target);
  const [status] = (await once(other, 'exit')) as [number];
  assert.equal(status, 0, 'the sender has sent everything');
  await kill(receiver);
  const names = await readdir(source);
  assert.deepEqual((await readdir(target)).toSorted(), names.toSorted());
  for (const name of names)
    assert.equal(sha256(await readFile(join(target, name))), sha256(await readFile(join(source, name))));
  console.log(`${names.length} files are equal`);
  await rm(folder, { recursive: true });
}

/** A rehearsal, or one side. A check that fails ends the program with status 1. */
async function main([mode, host = '127.0.0.1', port = '0', folder = '.']: string[]): Promise<void> {
  if (mode === 'send') return await send(host, Number(port), folder);
  if (mode !== 'receive') return await rehearsal();
  process.send?.(await receive(host, Number(port), folder));
}

await main(process.argv.slice(2));
