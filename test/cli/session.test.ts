/** What a tool's connection is to the tool: a peer that leaves after its last message. */
import { expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { Session } from '../../cli/support/session.ts';

it.each(['thread', 'worker'] as const)(
  'a receive posted after the end is no error; who waits for it hears of the end: engine %s',
  async (engine) => {
    const [near, far] = [new Session(openRnic({ engine })), new Session(openRnic({ engine: 'thread' }))];
    const listener = await far.rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      far.use(request);
      request.accept(far.qp);
    });
    const place = { mr: near.register(16) };
    near.postRecv(place);
    near.use(near.rnic.cm.connect(near.qp, { host: '127.0.0.1', port: listener.address.port }));
    await Promise.all([near.established, far.established]);
    await far.execute({ opcode: 'send', inline: Uint8Array.of(1, 2, 3) });
    await far.close();
    expect((await near.receive()).byteLength).toBe(3);
    await near.closed;
    near.postRecv(place);
    await expect(near.receive()).rejects.toBe(near.failure);
    expect(near.failure!.code).toBe('ERR_CONNECTION_CLOSED');
    near.release();
    listener.close();
  },
);
