// A Node that is not permitted to use the network (from Node 25 on, --permission without --allow-net).
import { afterEach, expect, it } from 'vitest';
import { createServer, openRnic } from '../../src/index.ts';

const OWN = ['permission', 'allowedNodeEnvironmentFlags'].map(
  (name) => [name, Object.getOwnPropertyDescriptor(process, name)] as const,
);
afterEach(() => {
  for (const [name, found] of OWN) {
    if (found === undefined) Reflect.deleteProperty(process, name);
    else Object.defineProperty(process, name, found);
  }
});

/** As a Node started with --permission: `known` is whether the network is a thing that it permits. */
function restrict(known: boolean): void {
  Object.defineProperty(process, 'allowedNodeEnvironmentFlags', {
    configurable: true,
    value: new Set(known ? ['--allow-net'] : []),
  });
  Object.defineProperty(process, 'permission', { configurable: true, value: { has: (): boolean => false } });
}

it('listen rejects, where Node alone throws out of the event loop and nothing can catch it', async () => {
  restrict(true);
  const server = createServer({ rnic: openRnic({ engine: 'thread' }) });
  await expect(server.listen({ host: '127.0.0.1', port: 0 })).rejects.toMatchObject({
    code: 'ERR_CONNECT',
    message:
      'cannot listen on 127.0.0.1:0: Node is not permitted to use the network, start it with --allow-net',
  });
});

it('a Node that permits files and threads only, listens', async () => {
  restrict(false);
  const server = createServer({ rnic: openRnic({ engine: 'thread' }) });
  await server.listen({ host: '127.0.0.1', port: 0 });
  await server.close();
});
