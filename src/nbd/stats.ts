/** Counters of servers and clients, and their channels on `node:diagnostics_channel`. */
import { channel, type Channel } from 'node:diagnostics_channel';
import { COMMAND } from './wire.ts';

/** Counters since the server or client was made. Lengths are in bytes. */
export interface NbdStats {
  /** Connections that reached the transmission phase. */
  connections: number;
  /** Connections that ended before it. */
  failedHandshakes: number;
  /** Requests of all kinds, DISC not counted. */
  requests: number;
  /** READ requests. */
  reads: number;
  /** Bytes that READs have moved. */
  readBytes: number;
  /** WRITE requests. */
  writes: number;
  /** Bytes that WRITEs have moved. */
  writtenBytes: number;
  /** FLUSH requests. */
  flushes: number;
  /** TRIM requests. */
  trims: number;
  /** WRITE_ZEROES requests. */
  zeroes: number;
  /** BLOCK_STATUS requests. */
  blockStatuses: number;
  /** Requests that failed. */
  errors: number;
  /** Requests that a client sent again after a reconnection. */
  repeats: number;
  /** Connections that a client made in place of lost ones. */
  reconnects: number;
}

export function noStats(): NbdStats {
  return {
    connections: 0,
    failedHandshakes: 0,
    requests: 0,
    reads: 0,
    readBytes: 0,
    writes: 0,
    writtenBytes: 0,
    flushes: 0,
    trims: 0,
    zeroes: 0,
    blockStatuses: 0,
    errors: 0,
    repeats: 0,
    reconnects: 0,
  };
}

/** Message on the channels of {@link NBD_DIAGNOSTICS_CHANNELS}. */
export interface NbdDiagnostics {
  /** Side that reports. */
  readonly role: 'server' | 'client';
  /** How requests travel. */
  readonly transport: 'stream' | 'message' | 'direct';
  /** Name of the export; empty while it is not known. */
  readonly exportName: string;
  /** With `request`: the command's name, the range and the error number, 0 for success. */
  readonly command?: string;
  /** First byte of the range. */
  readonly offset?: bigint;
  /** Length of the range in bytes. */
  readonly length?: number;
  /** NBD error number; 0 for success. */
  readonly error?: number;
  /** With `close`: the error that ended the connection, if any. */
  readonly cause?: Error | undefined;
}

/** Channels: the transmission phase begins, a request has been answered, a connection has ended. */
export const NBD_DIAGNOSTICS_CHANNELS = ['iwarp:nbd:open', 'iwarp:nbd:request', 'iwarp:nbd:close'] as const;

const [open, request, close] = NBD_DIAGNOSTICS_CHANNELS.map((name) => channel(name)) as [
  Channel,
  Channel,
  Channel,
];

/** Where a connection reports. */
export interface Reporter {
  readonly stats: NbdStats;
  readonly role: 'server' | 'client';
  readonly transport: 'stream' | 'message' | 'direct';
  exportName: string;
}

export function reportOpen({ stats, role, transport, exportName }: Reporter): void {
  stats.connections++;
  if (open.hasSubscribers) open.publish({ role, transport, exportName } satisfies NbdDiagnostics);
}

export function reportClose({ role, transport, exportName }: Reporter, cause: Error | undefined): void {
  if (close.hasSubscribers) close.publish({ role, transport, exportName, cause } satisfies NbdDiagnostics);
}

const NAMES = new Map<number, string>(Object.entries(COMMAND).map(([name, value]) => [value, name]));

/** A request has been answered. */
export function reportRequest(
  reporter: Reporter,
  command: number,
  offset: bigint | number,
  length: number,
  error: number,
): void {
  const { stats, role, transport, exportName } = reporter;
  stats.requests++;
  if (error !== 0) stats.errors++;
  count(stats, command, error === 0 ? length : 0);
  if (!request.hasSubscribers) return;
  const name = NAMES.get(command) ?? String(command);
  request.publish({
    role,
    transport,
    exportName,
    command: name,
    offset: BigInt(offset),
    length,
    error,
  } satisfies NbdDiagnostics);
}

function count(stats: NbdStats, command: number, length: number): void {
  switch (command) {
    case COMMAND.READ:
      stats.reads++;
      stats.readBytes += length;
      break;
    case COMMAND.WRITE:
      stats.writes++;
      stats.writtenBytes += length;
      break;
    case COMMAND.FLUSH:
      stats.flushes++;
      break;
    case COMMAND.TRIM:
      stats.trims++;
      break;
    case COMMAND.WRITE_ZEROES:
      stats.zeroes++;
      break;
    case COMMAND.BLOCK_STATUS:
      stats.blockStatuses++;
  }
}
