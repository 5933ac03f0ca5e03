/** Unix sockets beside loopback, between two processes: promises of this package, and bare sockets. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect as connectNet, type Socket } from 'node:net';
import { connect, type ConnectOptions } from '../../src/api/connect.ts';
import { RemoteBuffer } from '../../src/api/remote-buffer.ts';
import { atExit, temporaryFolder } from '../leftovers.ts';
import type { Method } from '../method.ts';
import { WRITE_OCTETS } from '../peers/peer.ts';
import { median, ratios } from '../stats.ts';
import type { ProbeResult } from '../types.ts';
import { cell, ratioOf, watchSteal, type Probe, type Progress } from './probe.ts';

const KINDS = ['iWARP, loopback', 'iWARP, Unix socket', 'bare, loopback', 'bare, Unix socket'] as const;
type Kind = (typeof KINDS)[number];

/** Where a server of unix-server.ts is. */
export type UnixPlace = { readonly host: string; readonly port: number } | { readonly path: string };
export type UnixPlaces = Readonly<Record<Kind, UnixPlace>>;

const ENDING = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
const PROGRAM = new URL(`../peers/unix-server.${ENDING}`, import.meta.url);
const SLICE_MS = 400;
const PING_OCTETS = 64;
const IN_FLIGHT = 4;
const AT_ONCE = 16;
const ROUND_SECONDS = (KINDS.length * 3 * SLICE_MS) / 1000;

/** Round trips one after the other: the median of their microseconds. */
async function roundTrips(once_: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (const end = performance.now() + SLICE_MS; performance.now() < end; ) {
    const began = performance.now();
    await once_();
    times.push((performance.now() - began) * 1000);
  }
  return median(times);
}

/** How often `each` was done in a second, by this many loops at a time. */
async function rate(loops: number, each: () => Promise<unknown>): Promise<number> {
  let count = 0;
  const began = performance.now();
  const loop = async (): Promise<void> => {
    for (; performance.now() - began < SLICE_MS; count++) await each();
  };
  await Promise.all(Array.from({ length: loops }, loop));
  return count / ((performance.now() - began) / 1000);
}

/** Of one server: us of a round trip, GB/s of Writes, connections a second. */
type Figures = [trip: number, rate: number, connections: number];

const BILLION = 1e9;

async function ours(place: UnixPlace): Promise<Figures> {
  const options: ConnectOptions = place;
  const connection = await connect(options);
  const ticket = (await connection.receive())!;
  const remote = RemoteBuffer.fromBytes(ticket.data);
  ticket.release();
  const ping = new Uint8Array(PING_OCTETS).fill(1);
  const trip = await roundTrips(async () => {
    await connection.send(ping);
    (await connection.receive())!.release();
  });
  const source = new Uint8Array(WRITE_OCTETS).fill(7);
  const writes = await rate(IN_FLIGHT, () => connection.write(source, remote));
  await connection.close();
  const connections = await rate(AT_ONCE, async () => (await connect(options)).close());
  return [trip, (writes * WRITE_OCTETS) / BILLION, connections];
}

async function dial(place: UnixPlace, first: number): Promise<Socket> {
  const socket = connectNet({ ...place, noDelay: true });
  await once(socket, 'connect');
  socket.write(Uint8Array.of(first));
  return socket;
}

async function bare(place: UnixPlace): Promise<Figures> {
  const echo = await dial(place, 1);
  const ping = new Uint8Array(PING_OCTETS).fill(1);
  let answered = (): void => undefined;
  let octets = 0;
  echo.on('data', (bytes: Buffer) => {
    octets += bytes.length;
    if (octets % PING_OCTETS === 0) answered();
  });
  const trip = await roundTrips(
    () =>
      new Promise<void>((resolve) => {
        answered = resolve;
        echo.write(ping);
      }),
  );
  echo.destroy();
  const sink = await dial(place, 0);
  const source = new Uint8Array(WRITE_OCTETS).fill(7);
  const writes = await rate(
    IN_FLIGHT,
    () => new Promise<void>((resolve) => sink.write(source, () => resolve())),
  );
  sink.destroy();
  const connections = await rate(AT_ONCE, async () => {
    const socket = await dial(place, 0);
    socket.end().resume();
    await once(socket, 'close');
  });
  return [trip, (writes * WRITE_OCTETS) / BILLION, connections];
}

async function measure(method: Method, progress: Progress): Promise<Map<Kind, Figures[]>> {
  const folder = temporaryFolder('iwarp-bench-unix-');
  const child = fork(PROGRAM, [folder.path], { execArgv: process.execArgv });
  const end = atExit(() => child.kill('SIGKILL'));
  try {
    const [places] = (await once(child, 'message')) as [UnixPlaces];
    const figures = new Map<Kind, Figures[]>(KINDS.map((kind) => [kind, []]));
    for (let round = 0; round < method.rounds; round++) {
      progress(`round ${round + 1} of ${method.rounds}`);
      for (const kind of KINDS)
        figures.get(kind)!.push(await (kind.startsWith('iWARP') ? ours : bare)(places[kind]));
    }
    return figures;
  } finally {
    end();
    folder.remove();
  }
}

async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const figures = await measure(method, progress);
  const column = (kind: Kind, at: number): number[] => figures.get(kind)!.map((each) => each[at]!);
  const beside = (of: string, at: number): number[] =>
    ratios(column(`${of}, Unix socket` as Kind, at), column(`${of}, loopback` as Kind, at));
  return {
    id: 'unix',
    title: 'Unix sockets',
    about: `Unix sockets beside loopback, between two processes: the median round trip of ${PING_OCTETS}
bytes, Writes of 1 MiB (of bare sockets: writes), ${IN_FLIGHT} at a time, and connections that are made and
closed, ${AT_ONCE} at a time. Promises, CRC32c on; a bare socket does not stay awake.`,
    columns: ['round trip, us', '1 MiB, GB/s', 'connections a second'],
    rows: KINDS.map((kind) => ({
      label: kind,
      cells: [1, 2, 0].map((digits, at) => cell(median(column(kind, at)), digits)),
    })),
    charts: [
      {
        caption: 'Connections a second: more is better',
        unit: 'a second',
        log: false,
        see: 'Blue is ours, grey bare sockets.',
        bars: KINDS.map((kind) => ({
          label: kind,
          value: cell(median(column(kind, 2)), 0),
          ours: kind.startsWith('iWARP'),
        })),
      },
    ],
    ratios: [
      ratioOf('unix/iWARP round trip : loopback', 'less', beside('iWARP', 0)),
      ratioOf('unix/iWARP 1 MiB : loopback', 'more', beside('iWARP', 1)),
      ratioOf('unix/iWARP connections : loopback', 'more', beside('iWARP', 2)),
    ],
    missing: [],
    disturbed: stolen(),
  };
}

export const unix: Probe = {
  id: 'unix',
  title: 'Unix sockets',
  seconds: ({ rounds }) => Math.ceil(rounds * ROUND_SECONDS) + 2,
  run,
};
