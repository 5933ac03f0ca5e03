/** Ports for servers that are started later, or that die and come back. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

/** The first port that the system gives to a socket which asks for any. */
function firstOfSystem(): number {
  try {
    return Number(/\d+/.exec(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8'))![0]);
  } catch {
    return 32_768; // the lowest of the usual systems
  }
}

const LOWEST = 10_000;
const TRIES = 100;

/**
 * A free TCP port of the loopback address, below those that the system gives out: no other socket comes to
 * have it by chance while its server is not there.
 */
export async function freePort(): Promise<number> {
  const range = firstOfSystem() - LOWEST;
  for (let i = 0; i < TRIES; i++) {
    const port = LOWEST + Math.floor(Math.random() * range);
    const server = createServer().listen(port, '127.0.0.1');
    const free = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!free) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
  throw new Error(`no free port below ${LOWEST + range} in ${TRIES} tries`);
}
