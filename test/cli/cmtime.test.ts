/** cmtime, both sides: the table of the client, a server that goes on, wrong flags, and no server. */
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { run as cmtime } from '../../cli/cmtime.ts';
import { tcpPath } from '../support/tcp-path.ts';
import { runAlone, Side } from './pair.ts';

const ROW = /^(create qp|connect|disconnect) *: +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$/gm;

/** The rows of the table: name, total ms, max ms, min us, us a connection. */
function rows(out: string): (readonly [string, ...number[]])[] {
  return [...out.matchAll(ROW)].map(([, name = '', ...figures]) => [name, ...figures.map(Number)]);
}

async function client(port: number, connections: number): Promise<Side> {
  const side = new Side(cmtime, ['-s', '127.0.0.1', '-p', String(port), '-c', String(connections)]);
  expect(await side.status, side.err).toBe(0);
  return side;
}

describe('cmtime', () => {
  it('times the steps of all connections, one client after another', async () => {
    const server = new Side(cmtime, ['-b', '127.0.0.1', '-p', '0']);
    try {
      const port = await server.port;
      for (const connections of [1, 20]) {
        const { out } = await client(port, connections);
        expect(out).toContain('step              total ms     max ms     min us  us / conn\n');
        const table = rows(out);
        expect(table.map(([name]) => name)).toEqual(['create qp', 'connect', 'disconnect']);
        for (const [, total = 0, max = 0, min = 0, each = 0] of table) {
          expect(total).toBeGreaterThan(0);
          expect(max).toBeLessThanOrEqual(total);
          expect(min).toBeLessThanOrEqual(max * 1000 + 10);
          expect(Math.abs(each - (total * 1000) / connections)).toBeLessThanOrEqual(10);
        }
      }
    } finally {
      server.kill();
    }
    expect(await server.status).toBe(1);
    expect(server.err).toContain('cmtime: interrupted');
  });

  it('counts the connections of its server', async () => {
    let connections = 0;
    const server = new Side(cmtime, ['-b', '127.0.0.1', '-p', '0']);
    const port = await tcpPath(await server.port, (near, far) => {
      connections++;
      near.pipe(far).pipe(near);
    });
    try {
      await client(port, 7);
      expect(connections).toBe(7);
    } finally {
      server.kill();
    }
  });

  it('fails where there is no server, or a silent one', async () => {
    const none = await runAlone(cmtime, ['-s', '127.0.0.1', '-p', '1', '-c', '3']);
    expect([none.code, rows(none.out)]).toEqual([1, []]);
    expect(none.err).toMatch(/^cmtime: \S/);
    const silent = createServer((socket) => void socket.on('error', () => undefined));
    await once(silent.listen(0, '127.0.0.1'), 'listening');
    try {
      const { port } = silent.address() as AddressInfo;
      const side = await runAlone(cmtime, ['-s', '127.0.0.1', '-p', `${port}`, '-c', '2', '--timeout', '1']);
      expect([side.code, rows(side.out)]).toEqual([1, []]);
      expect(side.err).toContain('nothing has crossed for 1 s');
    } finally {
      silent.close();
    }
  });

  it.each([
    [['-c', '0'], '-c must be from 1 to 10000, got 0'],
    [['-s', '127.0.0.1', '-c', '10001'], '-c must be from 1 to 10000, got 10001'],
    [['-x'], 'x'],
  ])('refuses %j', async (args, words) => {
    const { code, err, out } = await runAlone(cmtime, args);
    expect(code).toBe(1);
    expect(err).toContain(words);
    expect(out).toMatch(/^usage: cmtime/);
  });
});
