/**
 * A chat room, with messages only. The server sends each client's messages to all others.
 *
 * The example shows private data in the connection request (the name), a server that can reject a request,
 * async iteration, and releasing messages.
 *
 *   npx tsx examples/chat.ts                          a room and three guests in one process
 *   npx tsx examples/chat.ts server 127.0.0.1 4711
 *   npx tsx examples/chat.ts client 127.0.0.1 4711 NAME    sends lines of standard input to the room
 */
import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { connect, createServer, RejectedError, type Connection, type Message, type Server } from 'iwarp';

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

async function server(host: string, port: number): Promise<Server> {
  const guests = new Map<Connection, string>();
  const tellAll = async (text: string, except?: Connection): Promise<void> => {
    // A guest that leaves meanwhile is none of the others' business.
    await Promise.allSettled(
      [...guests.keys()].filter((guest) => guest !== except).map((guest) => guest.send(text)),
    );
  };
  const attend = async (connection: Connection): Promise<void> => {
    const name = decode(connection.privateData);
    await tellAll(`* ${name} joins`);
    guests.set(connection, name);
    await connection.send(`* you are in, with ${guests.size - 1} others`);
    try {
      for await (const message of connection) {
        const text = decode(message.data);
        message.release(); // as soon as the octets have been copied: the buffer takes the next message
        await tellAll(`${name}: ${text}`, connection);
      }
    } finally {
      guests.delete(connection);
      await tellAll(`* ${name} leaves`);
    }
  };
  const onRequest = ({ privateData }: { privateData: Uint8Array }): void => {
    const name = decode(privateData);
    if (!/^\w{1,20}$/.test(name)) throw new RejectedError('no name', encode('a name has 1 to 20 letters'));
    if ([...guests.values()].includes(name))
      throw new RejectedError('taken', encode(`${name} is here already`));
  };
  return await createServer({ onRequest, maxMessage: 1024 }, (connection) => {
    attend(connection).catch((error: Error) => console.log(`a guest was lost: ${error.message}`));
  }).listen({ host, port });
}

function join(host: string, port: number, name: string): Promise<Connection> {
  return connect({ host, port, privateData: encode(name), maxMessage: 1200 });
}

/** The next line that a guest gets to see. */
async function heard(connection: Connection): Promise<string> {
  using message: Message | null = await connection.receive();
  assert(message !== null, 'the room is still open');
  return decode(message.data);
}

/** Three guests that know the messages they will receive. */
async function rehearsal(host: string, port: number): Promise<void> {
  const ann = await join(host, port, 'ann');
  assert.equal(await heard(ann), '* you are in, with 0 others');
  const bob = await join(host, port, 'bob');
  assert.equal(await heard(bob), '* you are in, with 1 others');
  assert.equal(await heard(ann), '* bob joins');
  await assert.rejects(join(host, port, 'ann'), (error: unknown) => {
    assert(error instanceof RejectedError);
    assert.equal(decode(error.privateData), 'ann is here already');
    console.log(`a second ann was rejected: ${decode(error.privateData)}`);
    return true;
  });
  // More than the server has receive buffers: credits make the sender wait, where a stream without them would
  // break.
  const lines = Array.from({ length: 200 }, (_, i) => `line ${i}`);
  const sending = (async () => {
    for (const line of lines) await ann.send(line);
  })();
  for (const line of lines) assert.equal(await heard(bob), `ann: ${line}`);
  await sending;
  console.log(`bob heard ${lines.length} lines of ann, in order`);
  await ann.close();
  assert.equal(await heard(bob), '* ann leaves');
  console.log('ann left, and bob was notified');
  await bob.close();
}

async function client(host: string, port: number, name: string): Promise<void> {
  await using connection = await join(host, port, name);
  const typed = createInterface({ input: process.stdin });
  typed.on('line', (line) => void connection.send(line).catch((error: Error) => console.log(error.message)));
  typed.once('close', () => void connection.close());
  for await (const message of connection) {
    console.log(decode(message.data));
    message.release();
  }
  typed.close();
}

/**
 * A rehearsal here, or `server [HOST [PORT]]` or `client HOST PORT NAME`. A check that fails ends the program
 * with status 1.
 */
async function main([mode, host = '127.0.0.1', port = '0', name = 'guest']: string[]): Promise<void> {
  if (mode === 'client') return await client(host, Number(port), name);
  const running = await server(host, Number(port));
  console.log(`listening on ${host} port ${running.address().port}`);
  if (mode === 'server') return; // it goes on until it is interrupted
  await rehearsal(host, running.address().port);
  await running.close();
}

await main(process.argv.slice(2));
