/**
 * A lock and two counters in the server's memory, shared by several clients through RDMA atomics. The
 * server's program does nothing but hand out the ticket; the RNIC does the rest.
 *
 *   word 0: the lock, 0 or the number of the client that holds it     (compareSwap)
 *   word 1: a counter that clients add to with fetchAdd, without the lock
 *   word 2: a counter that they read, increment and write back, which is right only under the lock
 */
import assert from 'node:assert/strict';
import { ACCESS, connect, createServer, openRnic, RemoteBuffer, type Server } from 'iwarp';

const WORD_OCTETS = 8;
const CLIENTS = 4;
const ROUNDS = 25;
const EVERYTHING = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC;

async function server(host: string, port: number): Promise<Server> {
  const rnic = openRnic();
  const pd = rnic.device.allocatePd();
  // Words must lie on 8-octet boundaries; memory of the device's own always does. They are in the machine's
  // own byte order.
  const words = pd.registerMemory(rnic.device.allocateMemory(3 * WORD_OCTETS), EVERYTHING, { shared: true });
  return await createServer({ rnic, pd }, (connection) => {
    connection
      .send(RemoteBuffer.of(words).toBytes())
      .catch((error: Error) => console.log(`a client left: ${error.message}`));
  }).listen({ host, port });
}

/** One client: advances both counters `ROUNDS` times, then reports its observations. */
async function worker(host: string, port: number, me: bigint): Promise<{ ids: bigint[]; tries: number }> {
  await using connection = await connect({ host, port });
  using hello = await connection.receive();
  assert(hello !== null, 'the server says hello');
  const ticket = RemoteBuffer.fromBytes(hello.data);
  const [lock, fast, slow] = [0, 1, 2].map((i) => ticket.slice(i * WORD_OCTETS, WORD_OCTETS)) as [
    RemoteBuffer,
    RemoteBuffer,
    RemoteBuffer,
  ];
  const ids: bigint[] = [];
  let tries = 0;
  for (let round = 0; round < ROUNDS; round++) {
    ids.push(await connection.fetchAdd(fast, 1n));

    do tries++;
    while ((await connection.compareSwap(lock, 0n, me)) !== 0n);
    const value = new BigUint64Array(1);
    await connection.read(slow, value);
    value[0] = value[0]! + 1n;
    await connection.write(value, slow);
    // After the Write on the same stream, so the next holder of the lock sees the written value.
    const holder = await connection.compareSwap(lock, me, 0n);
    assert(holder === me, `client ${me} still holds its lock, found ${holder}`);
  }
  return { ids, tries };
}

async function client(host: string, port: number): Promise<void> {
  const results = await Promise.all(
    Array.from({ length: CLIENTS }, (_, i) => worker(host, port, BigInt(i + 1))),
  );
  const ids = results.flatMap((result) => result.ids);
  assert(new Set(ids).size === CLIENTS * ROUNDS, 'fetchAdd gave every number once');
  const tries = results.reduce((sum, result) => sum + result.tries, 0);

  await using connection = await connect({ host, port });
  using hello = await connection.receive();
  assert(hello !== null, 'the server says hello');
  const words = new BigUint64Array(3);
  await connection.read(RemoteBuffer.fromBytes(hello.data), words);
  const [lock, fast, slow] = words;
  assert(lock === 0n, 'the lock is free');
  // A server that has run for longer has counted for others before us.
  assert(fast! >= BigInt(CLIENTS * ROUNDS) && fast === slow, `both counters agree, got ${fast} and ${slow}`);
  console.log(
    `${CLIENTS} clients, ${ROUNDS} rounds each: fetchAdd counted to ${fast}, lock and Read/Write to ${slow}`,
  );
  console.log(`the lock was taken ${CLIENTS * ROUNDS} times in ${tries} tries`);
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
