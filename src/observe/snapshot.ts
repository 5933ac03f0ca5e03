/**
 * The state of this process's devices as plain data, for the control socket. Keep it JSON: no bigint, no
 * undefined that matters.
 */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import type { CmConnection } from '../cm/connection.ts';
import type { DeviceCounters } from '../cm/connection-stats.ts';
import type { StreamCounters } from '../stream/types.ts';
import type { PortAddress } from '../transport/port.ts';
import type { DeviceAttributes } from '../verbs/device.ts';
import { observedDevices, type ObservedDevice } from './devices.ts';

export interface ConnectionSnapshot {
  readonly role: 'active' | 'passive';
  /** Null before a queue pair carries it. */
  readonly lqpn: number | null;
  readonly local: PortAddress | null;
  readonly remote: PortAddress | null;
  readonly established: boolean;
  /** The protocol above RDMA: null for the program's own. */
  readonly carries: string | null;
  readonly tls: boolean;
  readonly counters: StreamCounters;
}

interface QpSnapshot {
  readonly lqpn: number;
  readonly pdn: number;
  readonly state: string;
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly sendOutstanding: number;
  readonly recvPosted: number;
  readonly ird: number;
  readonly ord: number;
}

export interface DeviceSnapshot {
  readonly attributes: DeviceAttributes;
  readonly crc32c: string;
  readonly counters: DeviceCounters;
  readonly connections: readonly ConnectionSnapshot[];
  readonly listeners: readonly PortAddress[];
  readonly qps: readonly QpSnapshot[];
  readonly cqs: readonly {
    readonly cqn: number;
    readonly cqe: number;
    readonly users: number;
    readonly length: number;
    readonly overflows: number;
  }[];
  readonly mrs: readonly {
    readonly mrn: number;
    readonly pdn: number;
    readonly mrlen: number;
    readonly access: number;
    readonly valid: boolean;
  }[];
  readonly pds: readonly { readonly pdn: number; readonly users: number }[];
}

export interface ProcessSnapshot {
  readonly pid: number;
  readonly comm: string;
  readonly version: string;
  readonly node: string;
  readonly devices: readonly DeviceSnapshot[];
}

/** The parts of a state that its display reads into; values of a counter are only printed. */
const COUNTERS = { messagesIn: {}, messagesOut: {} };
const LIKE = {
  pid: 0,
  comm: '',
  version: '',
  node: '',
  devices: [
    {
      attributes: { name: '', state: '', limits: { maxMessage: 0 }, capabilities: {}, inUse: {} },
      crc32c: '',
      counters: COUNTERS,
      connections: [{ counters: COUNTERS }],
      listeners: [{ address: '', port: 0 }],
      qps: [{ state: '' }],
      cqs: [{}],
      mrs: [{}],
      pds: [{}],
    },
  ],
};

/**
 * Whether `value` is a state that can be shown here: the process that sent it may be of another version, or
 * no process of ours.
 */
export function isSnapshot(value: unknown): value is ProcessSnapshot {
  return fits(value, LIKE);
}

function fits(value: unknown, like: unknown): boolean {
  if (Array.isArray(like)) return Array.isArray(value) && value.every((one) => fits(one, like[0]));
  if (typeof like !== 'object' || like === null) return typeof value === typeof like;
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.entries(like).every(([name, one]) => fits((value as Record<string, unknown>)[name], one))
  );
}

/**
 * Everything there is to see of this process. STag keys are left out: an index names a region well enough.
 */
export function snapshot(): ProcessSnapshot {
  const script = process.argv[1];
  return {
    pid: process.pid,
    comm: script === undefined ? 'node' : printable(basename(script)),
    version: packageVersion(),
    node: process.version,
    devices: observedDevices().map(deviceSnapshot),
  };
}

/** The names of files may hold anything; text shown in a line may not. */
function printable(name: string): string {
  return name.replaceAll(/[^!-~]/g, '_');
}

function deviceSnapshot({ device, cm }: ObservedDevice): DeviceSnapshot {
  const { qp, cq, mr, pd } = device.objects;
  return {
    attributes: device.query(),
    crc32c: device.resources.crc.name,
    counters: cm.counters(),
    connections: [...cm.connections].map(connectionSnapshot),
    listeners: [...cm.census.listeners].map(({ address }) => address),
    qps: [...qp].map((one) => {
      const { number, state, maxSendWr, maxRecvWr, sendOutstanding, recvPosted, ird, ord } = one.query();
      return {
        lqpn: number,
        pdn: one.pd.handle,
        state,
        maxSendWr,
        maxRecvWr,
        sendOutstanding,
        recvPosted,
        ird,
        ord,
      };
    }),
    cqs: [...cq].map((one) => {
      const { handle, capacity, workQueues, length, overflows } = one.query();
      return { cqn: handle, cqe: capacity, users: workQueues, length, overflows };
    }),
    mrs: [...mr].map((one) => ({
      mrn: one.rkey >>> 8,
      pdn: one.pd.handle,
      mrlen: one.length,
      access: one.access,
      valid: one.valid,
    })),
    pds: [...pd].map(({ handle, users }) => ({ pdn: handle, users })),
  };
}

function connectionSnapshot(connection: CmConnection): ConnectionSnapshot {
  return {
    role: connection.role,
    lqpn: connection.qp?.number ?? null,
    local: connection.localAddress ?? null,
    remote: connection.remoteAddress ?? null,
    established: connection.negotiated !== undefined,
    carries: connection.qp?.carries ?? null,
    tls: connection.tls !== undefined,
    counters: connection.counters(),
  };
}

/** The version in package.json. */
export function packageVersion(): string {
  // written out below, webpack would look for files to bundle; nothing in CommonJS that was bundled
  const own = import.meta.url;
  for (const path of ['../../package.json', '../../../package.json']) {
    try {
      const found = JSON.parse(readFileSync(new URL(path, own), 'utf8')) as {
        name?: string;
        version?: string;
      };
      if (found.name === 'iwarp' && found.version !== undefined) return found.version;
    } catch {
      // not there
    }
  }
  return '0.0.0';
}
