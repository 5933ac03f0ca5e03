/**
 * A key-value store whose reads cost the server nothing. The server's memory is a table of slots that clients
 * see through one ticket:
 *
 *   slot: version u32, value length u32, key (32 octets), value (up to 88 octets)
 *
 * GET is one RDMA Read: the client computes the slot and reads it, without the server's program. PUT is an
 * RDMA Write of the new slot into a mailbox of this client, then a Send: the server checks the new slot and
 * installs it. So the table is read-only for clients, and no client can corrupt what others read.
 *
 *   npx tsx examples/kv.ts                          both in one process
 *   npx tsx examples/kv.ts server 127.0.0.1 4711
 *   npx tsx examples/kv.ts client 127.0.0.1 4711
 */
import assert from 'node:assert/strict';
import {
  ACCESS,
  connect,
  createServer,
  openRnic,
  RemoteBuffer,
  REMOTE_BUFFER_OCTETS,
  type Connection,
  type Server,
} from 'iwarp';

const [SLOTS, SLOT_OCTETS] = [1024, 128];
const [KEY_AT, VALUE_AT] = [8, 40];

/** FNV-1a: both sides must agree on where a key lives. */
function slotOf(key: string): number {
  let hash = 0x811c9dc5;
  for (const octet of Buffer.from(key)) hash = Math.imul(hash ^ octet, 0x01000193) >>> 0;
  return hash % SLOTS;
}

function encodeSlot(key: string, value: string): Uint8Array {
  const slot = Buffer.alloc(SLOT_OCTETS);
  assert(
    Buffer.byteLength(key) <= VALUE_AT - KEY_AT && Buffer.byteLength(value) <= SLOT_OCTETS - VALUE_AT,
    'key and value fit in a slot',
  );
  slot.write(key, KEY_AT);
  slot.writeUInt32BE(slot.write(value, VALUE_AT), 4);
  return slot;
}

const keyIn = (slot: Buffer): string => slot.toString('utf8', KEY_AT, VALUE_AT).replace(/\0+$/, '');

async function server(host: string, port: number): Promise<Server> {
  // One protection domain for all connections, so that one registration of the table serves them all.
  const rnic = openRnic();
  const pd = rnic.device.allocatePd();
  const table = pd.registerMemory(rnic.device.allocateMemory(SLOTS * SLOT_OCTETS), ACCESS.REMOTE_READ, {
    shared: true,
  });
  const memory = Buffer.from(table.bytes.buffer);
  return await createServer({ rnic, pd }, (connection) => {
    void serve(connection, memory, RemoteBuffer.of(table)).catch((error: Error) =>
      console.log(`a client left: ${error.message}`),
    );
  }).listen({ host, port });
}

async function serve(connection: Connection, table: Buffer, ticket: RemoteBuffer): Promise<void> {
  const mailbox = connection.allocate(SLOT_OCTETS, 'write');
  const box = mailbox.bytes;
  await connection.send(Buffer.concat([ticket.toBytes(), connection.share(mailbox).toBytes()]));
  for await (const message of connection) {
    message.release();
    // The Send came after the Write on the same stream, so the mailbox is complete. Copy first: the client
    // could write again.
    const slot = Buffer.from(box);
    const at = slotOf(keyIn(slot)) * SLOT_OCTETS;
    const old = table.subarray(at, at + SLOT_OCTETS);
    const fits = slot.readUInt32BE(4) <= SLOT_OCTETS - VALUE_AT;
    // else another key has the slot
    const good = fits && (old.readUInt32BE(0) === 0 || keyIn(old) === keyIn(slot));
    if (good) slot.writeUInt32BE(old.readUInt32BE(0) + 1, 0);
    if (good) slot.copy(table, at);
    await connection.send(good ? 'ok' : 'refused');
  }
}

/** A client's access to the server, by two tickets. */
class Store {
  readonly #connection: Connection;
  readonly #table: RemoteBuffer;
  readonly #mailbox: RemoteBuffer;
  constructor(connection: Connection, tickets: Uint8Array) {
    this.#connection = connection;
    this.#table = RemoteBuffer.fromBytes(tickets);
    this.#mailbox = RemoteBuffer.fromBytes(tickets.subarray(REMOTE_BUFFER_OCTETS));
  }

  async get(key: string): Promise<string | undefined> {
    const slot = Buffer.alloc(SLOT_OCTETS);
    await this.#connection.read(this.#table.slice(slotOf(key) * SLOT_OCTETS, SLOT_OCTETS), slot);
    if (slot.readUInt32BE(0) === 0 || keyIn(slot) !== key) return undefined;
    return slot.toString('utf8', VALUE_AT, VALUE_AT + slot.readUInt32BE(4));
  }

  async put(key: string, value: string): Promise<void> {
    const written = this.#connection.write(encodeSlot(key, value), this.#mailbox);
    await Promise.all([written, this.#connection.send('put')]);
    using answer = await this.#connection.receive();
    assert(answer !== null && Buffer.from(answer.data).toString() === 'ok', `the server takes ${key}`);
  }
}

async function client(host: string, port: number): Promise<void> {
  await using connection = await connect({ host, port });
  using hello = await connection.receive();
  assert(hello !== null, 'the server says hello');
  const store = new Store(connection, hello.data);
  await store.put('colour', 'green');
  await store.put('size', 'large');
  await store.put('colour', 'blue');
  for (const [key, expected] of [
    ['colour', 'blue'],
    ['size', 'large'],
    ['weight', undefined],
  ] as const) {
    const value = await store.get(key);
    assert(value === expected, `${key} is ${expected}, got ${value}`);
    console.log(`get ${key}: ${value ?? '(nothing)'}`);
  }
  console.log('three puts by Write and Send, three gets by Read: all as expected');
}

/**
 * Both halves here, or `server [HOST [PORT]]` or `client HOST PORT`. A check that fails ends the program with
 * status 1.
 */
async function main([mode, host = '127.0.0.1', port = '0']: string[]): Promise<void> {
  if (mode === 'client') return await client(host, Number(port));
  const running = await server(host, Number(port));
  console.log(`listening on ${host} port ${running.address().port}`);
  if (mode === 'server') return; // it goes on until it is interrupted
  await client(host, running.address().port);
  await running.close();
}

await main(process.argv.slice(2));
