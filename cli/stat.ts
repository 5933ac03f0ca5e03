/**
 * `iwarp stat`: counters and objects of the running processes of this user, in the layout of `rdma statistic`
 * and `rdma resource`. A process shows itself with `IWARP_CONTROL=1` in its environment, or by calling
 * `serveControl()`.
 */
import { parseArgs } from 'node:util';
import { IwarpError } from '../src/base/errors.ts';
import type { StreamCounters } from '../src/stream/types.ts';
import type { PortAddress } from '../src/transport/port.ts';
import { askAll, type Unshown } from '../src/observe/control-socket.ts';
import type { ConnectionSnapshot, DeviceSnapshot, ProcessSnapshot } from '../src/observe/snapshot.ts';
import { prometheusText } from './support/prometheus.ts';
import { printable, printableJson } from './support/printable.ts';
import { tellUnshown } from './support/unshown-processes.ts';

const USAGE = `usage: iwarp stat [-d] [-j] [-p] [--pid PID] [WHAT] [show]
       iwarp stat --prometheus [--pid PID]
  WHAT           device (default): counters of each device, as rdma statistic
                 qp: counters of each connection, as rdma statistic qp
                 resource: how many objects each device has, as rdma resource
                 resource pd|cq|qp|cm_id|mr: the objects, as rdma resource show
  -d             details beyond those of rdma
  -j             JSON
  -p             one counter per line; JSON with line breaks
  --prometheus   counters and objects of each device, in the text format of Prometheus
  --pid PID      only this process

Processes show themselves when started with IWARP_CONTROL=1, or by serveControl().
`;

type Fields = Readonly<Record<string, string | number | readonly number[]>>;
/** The labels of a device: its number among all that are shown, its name, and its process. */
interface Shown {
  readonly ifindex: number;
  readonly name: string;
  readonly owner: { readonly pid: number; readonly comm: string };
}

/**
 * One line: `0: NAME:`, `dev NAME` or `link NAME/1`, then names and values. `details` are only shown when
 * asked for.
 */
interface Row {
  readonly head: 'index' | 'dev' | 'link';
  readonly fields: Fields;
  readonly counters?: Readonly<Record<string, number>>;
  readonly details?: Fields;
}

type View = (device: DeviceSnapshot, owner: Shown['owner']) => readonly Row[];

interface Format {
  readonly json: boolean;
  readonly pretty: boolean;
  readonly details: boolean;
}

export async function run(args: string[]): Promise<number> {
  let text: string;
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        json: { type: 'boolean', short: 'j', default: false },
        pretty: { type: 'boolean', short: 'p', default: false },
        details: { type: 'boolean', short: 'd', default: false },
        prometheus: { type: 'boolean', default: false },
        pid: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    });
    if (values.help === true) {
      process.stdout.write(USAGE);
      return 0;
    }
    const view = viewOf(positionals);
    if (values.pid !== undefined && !/^[1-9]\d*$/.test(values.pid))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `--pid must be a process number, got '${values.pid}'`);
    const meant = (pid: number): boolean => values.pid === undefined || String(pid) === values.pid;
    const unshown = new Map<number, Unshown>();
    const all = await askAll((pid, why) => {
      if (meant(pid)) unshown.set(pid, why);
    });
    tellUnshown('stat', unshown);
    const processes = all.filter(({ pid }) => meant(pid));
    if (processes.length === 0 && unshown.size > 0) return 1;
    if (processes.length === 0) {
      const others = all.map(({ pid, comm }) => `${pid} (${printable(comm)})`).join(', ');
      process.stderr.write(
        all.length === 0
          ? 'stat: no process shows itself (start one with IWARP_CONTROL=1)\n'
          : `stat: process ${values.pid} does not show itself; these do: ${others}\n`,
      );
      return 1;
    }
    text = values.prometheus ? prometheusText(processes, deviceCounters) : render(processes, view, values);
  } catch (error) {
    const misused = !(error instanceof IwarpError) || error.code === 'ERR_INVALID_ARGUMENT';
    process.stderr.write(`stat: ${(error as Error).message}\n${misused ? USAGE : ''}`);
    return 2;
  }
  process.stdout.write(text);
  return 0;
}

/** Every process's every device, one after the other. */
function render(
  processes: readonly ProcessSnapshot[],
  view: View,
  { json, pretty, details }: Format,
): string {
  const devices = processes.flatMap(({ pid, comm, devices: all }) =>
    all.map((device) => ({ device, owner: { pid, comm } })),
  );
  const rows = devices.flatMap(({ device, owner }, ifindex) => {
    const shown = { ifindex, name: device.attributes.name, owner };
    return view(device, owner).map((row) =>
      json ? jsonRow(shown, row, details) : textRow(shown, row, pretty, details),
    );
  });
  return json ? `${printableJson(JSON.stringify(rows, null, pretty ? 4 : 0))}\n` : rows.join('');
}

function textRow(
  { ifindex, name }: Shown,
  { head, fields, counters = {}, details = {} }: Row,
  pretty: boolean,
  detailed: boolean,
): string {
  const shown = printable(name);
  const heads = { index: `${ifindex}: ${shown}:`, dev: `dev ${shown}`, link: `link ${shown}/1` };
  const { lqpn, ...rest } = fields;
  const list = Array.isArray(lqpn);
  const pairs = Object.entries({ ...(list ? rest : fields), ...(detailed ? details : {}) }).map(
    ([key, value]) => `${key} ${printable(String(value))} `,
  );
  const counts = Object.entries(counters).map(([key, value]) => `${pretty ? '\n    ' : ''}${key} ${value} `);
  const numbers = list ? `\n    LQPN: <${lqpn.join(',')}>` : '';
  return `${heads[head]} ${pairs.join('')}${counts.join('')}${numbers}\n`;
}

function jsonRow(
  { ifindex, name }: Shown,
  { head, fields, counters, details }: Row,
  detailed: boolean,
): Fields {
  return {
    ifindex,
    ...(head === 'link' ? { port: 1 } : {}),
    ifname: name,
    ...fields,
    ...(detailed ? details : {}),
    ...counters,
  };
}

function viewOf(positionals: readonly string[]): View {
  const words = positionals.filter((word) => word !== 'show');
  const [what = 'device', object, ...more] = words;
  const view =
    what === 'resource'
      ? ownOf(RESOURCES, object ?? '')
      : object === undefined
        ? ownOf(COUNTERS, what)
        : undefined;
  if (view === undefined || more.length > 0)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `no such view: ${words.join(' ')}`);
  return view;
}

/** The words of a command line are no names of Object.prototype. */
function ownOf(views: Readonly<Record<string, View>>, name: string): View | undefined {
  return Object.hasOwn(views, name) ? views[name] : undefined;
}

/** Counter names in the manner of the RNIC drivers' hardware counters. */
function counterFields(c: StreamCounters): Readonly<Record<string, number>> {
  return {
    in_fpdus: c.fpdusIn,
    out_fpdus: c.fpdusOut,
    in_octets: c.octetsIn,
    out_octets: c.octetsOut,
    in_payload_octets: c.payloadIn,
    out_payload_octets: c.payloadOut,
    in_rdma_sends: c.messagesIn.sends,
    in_rdma_writes: c.messagesIn.writes,
    in_rdma_reads: c.messagesIn.reads,
    in_rdma_read_responses: c.messagesIn.readResponses,
    in_rdma_atomics: c.messagesIn.atomics,
    in_rdma_immediates: c.messagesIn.immediates,
    in_terminates: c.messagesIn.terminates,
    out_rdma_sends: c.messagesOut.sends,
    out_rdma_writes: c.messagesOut.writes,
    out_rdma_reads: c.messagesOut.reads,
    out_rdma_read_responses: c.messagesOut.readResponses,
    out_rdma_atomics: c.messagesOut.atomics,
    out_rdma_immediates: c.messagesOut.immediates,
    out_terminates: c.messagesOut.terminates,
    crc_errors: c.crcErrors,
    marker_errors: c.markerErrors,
    nudges: c.nudges,
  };
}

function deviceCounters({ counters }: Pick<DeviceSnapshot, 'counters'>): Readonly<Record<string, number>> {
  return {
    ...counterFields(counters),
    connections_established: counters.established,
    connections_rejected: counters.rejected,
    connections_refused: counters.refused,
    connections_failed: counters.failed,
    connections_closed: counters.closed,
    connections_broken: counters.broken,
  };
}

const COUNTERS: Readonly<Record<string, View>> = {
  device: (device, owner) => [
    { head: 'link', fields: {}, counters: deviceCounters(device), details: { ...owner } },
  ],
  qp: ({ connections }, owner) =>
    connections
      .filter(({ lqpn }) => lqpn !== null)
      .map(({ lqpn, counters }) => ({
        head: 'link',
        fields: { cntn: lqpn!, 'qp-type': 'RC', ...owner, lqpn: [lqpn!] },
        counters: counterFields(counters),
      })),
};

/**
 * The states of the verbs draft by the names that rdma has for the states of other transports, where there is
 * one.
 */
const QP_STATES: Readonly<Record<string, string>> = {
  idle: 'INIT',
  rts: 'RTS',
  closing: 'SQD',
  terminate: 'SQE',
  error: 'ERR',
};

const RESOURCES: Readonly<Record<string, View>> = {
  '': ({ attributes: { inUse }, connections, listeners }, owner) => [
    {
      head: 'index',
      fields: {
        pd: inUse.pd,
        cq: inUse.cq,
        qp: inUse.qp,
        cm_id: connections.length + listeners.length,
        mr: inUse.mr,
        ctx: 1,
        srq: inUse.srq,
      },
      details: { mw: inUse.mw, ...owner },
    },
  ],
  pd: ({ pds }, owner) => pds.map(({ pdn, users }) => ({ head: 'dev', fields: { pdn, users, ...owner } })),
  cq: ({ cqs }, owner) =>
    cqs.map(({ cqn, cqe, users, length, overflows }) => ({
      head: 'dev',
      fields: { cqn, cqe, users, ...owner },
      details: { drv_waiting: length, drv_overflows: overflows },
    })),
  qp: ({ qps }, owner) =>
    qps.map(({ lqpn, pdn, state, ...more }) => ({
      head: 'link',
      fields: { lqpn, pdn, type: 'RC', state: QP_STATES[state] ?? state, 'sq-psn': 0, ...owner },
      details: {
        drv_state: state,
        drv_sq_outstanding: more.sendOutstanding,
        drv_sq_depth: more.maxSendWr,
        drv_rq_posted: more.recvPosted,
        drv_rq_depth: more.maxRecvWr,
        drv_ird: more.ird,
        drv_ord: more.ord,
      },
    })),
  cm_id: ({ connections, listeners }, owner) =>
    [
      ...listeners.map(
        (address): Fields => ({ state: 'LISTEN', ps: 'TCP', ...owner, 'src-addr': textOf(address) }),
      ),
      ...connections.map(
        (one): Fields => ({
          ...(one.lqpn === null ? {} : { lqpn: one.lqpn, 'qp-type': 'RC' }),
          state: 'CONNECT',
          ps: 'TCP',
          ...owner,
          ...addresses(one),
          drv_carries: `${one.carries ?? 'verbs'}${one.tls ? '/tls' : ''}`,
        }),
      ),
    ].map((fields, index) => {
      const { 'src-addr': from, 'dst-addr': to, drv_carries: carries, ...rest } = fields;
      return {
        head: 'link',
        fields: {
          ...rest,
          'cm-idn': index,
          ...(from === undefined ? {} : { 'src-addr': from }),
          ...(to === undefined ? {} : { 'dst-addr': to }),
        },
        ...(carries === undefined ? {} : { details: { drv_carries: carries } }),
      };
    }),
  mr: ({ mrs }, owner) =>
    mrs.map(({ mrn, mrlen, pdn, access, valid }) => ({
      head: 'dev',
      fields: { mrn, mrlen, pdn, ...owner },
      details: { drv_access: access, drv_valid: Number(valid) },
    })),
};

function textOf({ address, port }: PortAddress): string {
  return `${address}:${port}`;
}

function addresses({ local, remote }: ConnectionSnapshot): Fields {
  return {
    ...(local === null ? {} : { 'src-addr': textOf(local) }),
    ...(remote === null ? {} : { 'dst-addr': textOf(remote) }),
  };
}
