/**
 * The promise layer as a program uses it: as many loops as calls may be under way, each awaiting one call
 * after the other, from and into a view that nobody has registered, the same for all as with verbs.
 */
import {
  connect as connectTo,
  createServer,
  RemoteBuffer,
  type Connection,
  type EndpointOptions,
} from '../../src/index.ts';
import type { CaseSpec } from '../types.ts';
import { depthOf, HOST, PingPong, type Place, type Side, type Tally } from './peer.ts';
import { open, policy } from './stack.ts';

/**
 * Octets of receive buffers that a connection may have; messages of 1 MiB have fewer buffers than a program
 * usually gets.
 */
const BUFFERS_OCTETS = 16 << 20;
const USUAL_RECEIVES = 64;
const MIN_RECEIVES = 4;
const SMALLEST_MESSAGE = 64;

const quiet = (): void => undefined;

function endpoint(spec: CaseSpec): EndpointOptions {
  const maxMessage = spec.verb === 'send' ? Math.max(spec.size, SMALLEST_MESSAGE) : SMALLEST_MESSAGE;
  const fit = Math.floor(BUFFERS_OCTETS / maxMessage);
  return {
    rnic: open(spec, null),
    policy: policy(spec),
    maxMessage,
    ...(fit < USUAL_RECEIVES ? { receives: Math.max(MIN_RECEIVES, fit) } : {}),
  };
}

const payloadIn = (connections: readonly Connection[]) => (): number =>
  connections.reduce((octets, connection) => octets + connection.counters().payloadIn, 0);

export async function serve(spec: CaseSpec, tally: Tally): Promise<{ place: Place; side: Side }> {
  const connections: Connection[] = [];
  const answer = new Uint8Array(spec.size).fill(1);
  const server = createServer(endpoint(spec), async (connection) => {
    connections.push(connection);
    const memory = connection.allocate(spec.size, 'read-write');
    await connection.send(connection.share(memory).toBytes());
    for await (const message of connection) {
      message.release();
      if (spec.test === 'lat') void connection.send(answer).catch(quiet);
    }
  });
  await server.listen({ host: HOST });
  tally.bytes = payloadIn(connections);
  return {
    place: { port: server.address().port },
    side: {
      start: quiet,
      stop: quiet,
      close: () => connections.forEach((connection) => connection.destroy()),
    },
  };
}

interface Client {
  readonly connection: Connection;
  readonly remote: RemoteBuffer;
}

async function connectOne(options: EndpointOptions, { port }: Place): Promise<Client> {
  const connection = await connectTo({ ...options, host: HOST, port });
  const ticket = await connection.receive();
  if (ticket === null) throw new Error('the server has closed without a ticket');
  const remote = RemoteBuffer.fromBytes(ticket.data);
  ticket.release();
  return { connection, remote };
}

/** The operation that one loop awaits again and again. */
function operation(
  { verb }: CaseSpec,
  { connection, remote }: Client,
  memory: Uint8Array,
): () => Promise<unknown> {
  switch (verb) {
    case 'send':
      return () => connection.send(memory);
    case 'write':
      return () => connection.write(memory, remote);
    case 'read':
      return () => connection.read(remote, memory);
  }
}

export async function connect(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  const options = endpoint(spec);
  const clients = await Promise.all(
    Array.from({ length: spec.connections }, () => connectOne(options, place)),
  );
  const connections = clients.map(({ connection }) => connection);
  tally.bytes = payloadIn(connections);
  const close = (): void => connections.forEach((connection) => connection.destroy());
  if (spec.test === 'lat') return { ...latency(spec, clients[0]!), close };
  let running = false;
  const depth = depthOf(spec) * spec.connections;
  const memory = new Uint8Array(spec.size).fill(7);
  const operations = Array.from({ length: depth }, (_, i) =>
    operation(spec, clients[i % clients.length]!, memory),
  );
  const idle = [...operations];
  const loop = async (once: () => Promise<unknown>): Promise<void> => {
    try {
      for (; running; tally.posts++) await once();
    } catch {
      running = false; // closed
    }
    idle.push(once);
  };
  return {
    start: () => {
      running = true;
      for (const once of idle.splice(0)) void loop(once);
    },
    stop: () => (running = false),
    close,
  };
}

/** Sends there and back, or Reads. */
function latency(spec: CaseSpec, { connection, remote }: Client): Omit<Side, 'close'> {
  const memory = new Uint8Array(spec.size).fill(2);
  const read = (): void => void connection.read(remote, memory).then(() => pingPong.answered(), quiet);
  const pingPong = new PingPong(
    spec.verb === 'read' ? read : () => void connection.send(memory).catch(quiet),
  );
  if (spec.verb !== 'read') void answers(connection, () => pingPong.answered()).catch(quiet);
  return { start: () => pingPong.start(), stop: () => pingPong.stop(), takeLatency: () => pingPong.take() };
}

async function answers(connection: Connection, then: () => void): Promise<void> {
  for await (const message of connection) {
    message.release();
    then();
  }
}
