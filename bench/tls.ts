/**
 * Measures the cost of TLS: `npx tsx bench/tls.ts`. RDMA Writes of 1 MiB and round trips of 64 bytes with and
 * without TLS, and `node:tls` alone, alternating in one run over loopback; medians of the ratios.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AddressInfo } from 'node:net';
import { connect as connectTls, createServer as createTls, type TLSSocket } from 'node:tls';
import { connect, createServer, RemoteBuffer, type Connection, type Server } from '../src/index.ts';
import { median } from './stats.ts';

const ROUNDS = 7;
const WRITES = 128;
const TRIPS = 2000;
const MIB = 1 << 20;

function certificate(): { key: string; cert: string } {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-tls-'));
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'];
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'];
  execFileSync('openssl', ['req', '-x509', ...made, '-keyout', key, '-out', cert, ...names], {
    stdio: 'pipe',
  });
  const pems = { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  rmSync(folder, { recursive: true });
  return pems;
}

interface Subject {
  /** GB/s of one round. */
  bulk(): Promise<number>;
  /** Microseconds of a round trip. */
  trip(): Promise<number>;
  close(): Promise<void>;
}

/** RDMA, with TLS below or without; the server works in this thread too, as the bare one does. */
async function rdma(tls: { key: string; cert: string } | null): Promise<Subject> {
  const server: Server = await createServer({ engine: 'thread', ...(tls && { tls }) }, async (connection) => {
    await connection.send(connection.share(connection.register(new Uint8Array(MIB), 'write')).toBytes());
    for await (const message of connection) {
      await connection.send(message.data);
      message.release();
    }
  }).listen(0, '127.0.0.1');
  const connection: Connection = await connect(server.address().port, '127.0.0.1', {
    engine: 'thread',
    ...(tls && { tls: { ca: tls.cert } }),
  });
  const remote = RemoteBuffer.fromBytes((await connection.receive())!.data);
  const source = connection.register(new Uint8Array(MIB).fill(1), 'none');
  const echo = new Uint8Array(64);
  const trip = async (): Promise<void> => {
    await connection.send(echo);
    (await connection.receive())!.release();
  };
  return {
    bulk: async () => {
      const began = performance.now();
      for (let i = 0; i < WRITES; i += 8)
        await Promise.all(Array.from({ length: 8 }, () => connection.write(source, remote)));
      await trip();
      return (WRITES * MIB) / (performance.now() - began) / 1e6;
    },
    trip: async () => {
      const began = performance.now();
      for (let i = 0; i < TRIPS; i++) await trip();
      return ((performance.now() - began) * 1000) / TRIPS;
    },
    close: async () => {
      await connection.close();
      await server.close();
    },
  };
}

/** `node:tls` alone: a byte comes back for each 64, and for each mebibyte that is full. */
async function bare(tls: { key: string; cert: string }): Promise<Subject> {
  const server = createTls(tls, (socket) => {
    let octets = 0;
    socket
      .on('error', () => undefined)
      .on('data', (chunk: Buffer) => {
        octets += chunk.length;
        for (; octets >= MIB; octets -= MIB) socket.write('m');
        if (octets === 64) {
          octets = 0;
          socket.write('t');
        }
      });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const socket: TLSSocket = connectTls({
    port: (server.address() as AddressInfo).port,
    host: '127.0.0.1',
    ca: tls.cert,
  });
  await new Promise((resolve) => socket.once('secureConnect', resolve));
  socket.setNoDelay(true);
  let back = 0;
  let wake = (): void => undefined;
  socket.on('data', (chunk: Buffer) => {
    back += chunk.length;
    wake();
  });
  const until = async (count: number): Promise<void> => {
    while (back < count) await new Promise<void>((resolve) => (wake = resolve));
    back -= count;
  };
  const mebibyte = new Uint8Array(MIB).fill(1);
  const echo = new Uint8Array(64);
  return {
    bulk: async () => {
      const began = performance.now();
      for (let i = 0; i < WRITES; i++) socket.write(mebibyte);
      await until(WRITES);
      return (WRITES * MIB) / (performance.now() - began) / 1e6;
    },
    trip: async () => {
      const began = performance.now();
      for (let i = 0; i < TRIPS; i++) {
        socket.write(echo);
        await until(1);
      }
      return ((performance.now() - began) * 1000) / TRIPS;
    },
    close: async () => {
      socket.destroy();
      await new Promise<void>((resolve) => void server.close(() => resolve()));
    },
  };
}

const own = certificate();
const subjects: Readonly<Record<string, Subject>> = {
  'node:tls alone': await bare(own),
  'RDMA under TLS': await rdma(own),
  'RDMA without TLS': await rdma(null),
};
const bulk: Record<string, number[]> = {};
const trips: Record<string, number[]> = {};
for (let round = 0; round <= ROUNDS; round++) {
  for (const [name, subject] of Object.entries(subjects)) {
    const [rate, time] = [await subject.bulk(), await subject.trip()];
    if (round === 0) continue; // to warm up
    (bulk[name] ??= []).push(rate);
    (trips[name] ??= []).push(time);
  }
}
const [base] = Object.keys(subjects) as [string];
console.log(
  '| | 1 MiB writes, GB/s | to node:tls | round trip of 64 bytes, us | to node:tls |\n|---|---|---|---|---|',
);
for (const name of Object.keys(subjects)) {
  const ratio = (of: Record<string, number[]>): string =>
    median(of[name]!.map((value, i) => value / of[base]![i]!)).toFixed(2);
  console.log(
    `| ${name} | ${median(bulk[name]!).toFixed(2)} | ${ratio(bulk)} | ` +
      `${median(trips[name]!).toFixed(1)} | ${ratio(trips)} |`,
  );
}
for (const subject of Object.values(subjects)) await subject.close();
