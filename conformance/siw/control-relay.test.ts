/** The relay in front of a server that names a port to its client. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { describe, expect, it } from 'vitest';
import { controlRelay, PINGPONG_NOTICE, QPERF_NOTICE } from './control-relay.ts';

/** As the server of fi_pingpong sends it: sixteen octets of name, format 1, 10.0.2.15 port 44321. */
const NAME = Buffer.from('00000010010000000200ad210a00020f0000000000000000', 'hex');

async function listening(server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

describe('the notice of a port', () => {
  it('is read and replaced in a name of fi_pingpong', () => {
    expect(PINGPONG_NOTICE.read(NAME)).toBe(44_321);
    const changed = PINGPONG_NOTICE.replaced(NAME, { host: '10.0.2.2', port: 4660 });
    expect(changed.toString('hex')).toBe('0000001001000000020012340a0002020000000000000000');
    expect(NAME.readUInt16BE(10)).toBe(44_321);
  });

  it('is refused in a name that is not one of IPv4', () => {
    const name = Buffer.from(NAME);
    name.writeUInt16LE(10, 8);
    expect(() => PINGPONG_NOTICE.read(name)).toThrow('no name of an IPv4 socket');
    name.set(NAME);
    name.writeUInt32BE(28, 0);
    expect(() => PINGPONG_NOTICE.read(name)).toThrow('no name of an IPv4 socket');
  });

  it('is read and replaced in a number of qperf', () => {
    expect(QPERF_NOTICE.read(Buffer.from('21ad0000', 'hex'))).toBe(44_321);
    const changed = QPERF_NOTICE.replaced(Buffer.alloc(4), { host: '10.0.2.2', port: 4660 });
    expect(changed.toString('hex')).toBe('34120000');
    for (const wrong of ['00000000', '00000100'])
      expect(() => QPERF_NOTICE.read(Buffer.from(wrong, 'hex'))).toThrow('no port');
  });
});

describe('the relay', () => {
  it('holds the notice until the place is ready, and passes all else on', async () => {
    const server = createServer((socket) => {
      // In two pieces, the second with what follows.
      socket.write(NAME.subarray(0, 5));
      socket.once('data', (data: Buffer) => socket.end(Buffer.concat([NAME.subarray(5), data])));
    });
    const port = await listening(server);
    const asked: number[] = [];
    const relay = controlRelay({ host: '127.0.0.1', port }, PINGPONG_NOTICE, (of) => {
      asked.push(of);
      return Promise.resolve({ host: '10.0.2.2', port: 4660 });
    });
    try {
      const client = connect(await listening(relay), '127.0.0.1');
      client.write('hello');
      const chunks: Buffer[] = [];
      for await (const chunk of client) chunks.push(chunk as Buffer);
      const said = Buffer.concat(chunks);
      expect(asked).toEqual([44_321]);
      expect(PINGPONG_NOTICE.read(said.subarray(0, 24))).toBe(4660);
      expect(said.subarray(24).toString()).toBe('hello');
    } finally {
      relay.close();
      server.close();
    }
  });

  it('ends the connection where nothing is ready', async () => {
    const server = createServer((socket) => socket.on('error', () => undefined).write(Buffer.alloc(4)));
    const port = await listening(server);
    const relay = controlRelay({ host: '127.0.0.1', port }, QPERF_NOTICE, () =>
      Promise.resolve({ host: '10.0.2.2', port: 1 }),
    );
    try {
      const client = connect(await listening(relay), '127.0.0.1');
      client.on('error', () => undefined).resume();
      await once(client, 'close');
      expect(client.bytesRead).toBe(0);
    } finally {
      relay.close();
      server.close();
    }
  });
});
