/**
 * `iwarp stat`: counters and objects of the running processes of this user, in the layout of `rdma statistic` and `rdma resource`. A process
 * shows itself with `IWARP_CONTROL=1` in its environment, or by calling `serveControl()`.
 */
import { parseArgs } from 'node:util';
import { IwarpError } from '../base/errors.ts';
import type { StreamCounters } from '../rdmap/stream-types.ts';
import type { PortAddress } from '../transport/port.ts';
import { askAll } from './support/control-socket.ts';
import type { ConnectionSnapshot, DeviceSnapshot, ProcessSnapshot } from './support/snapshot.ts';

const USAGE = `usage: iwarp stat [-j] [-p] [--pid PID] [WHAT]
  WHAT           device (default): counters of each device, as rdma statistic
                 qp: counters of each connection, as rdma statistic qp
                 resource: how many objects each device has, as rdma resource
                 resource pd|cq|qp|cm_id|mr: the objects, as rdma resource show
  -j             JSON
  -p             JSON in lines
  --pid PID      this process only

Processes show themselves when started with IWARP_CONTROL=1, or by serveControl().
`;

type Fields = Readonly<Record<string, string | number>>;
/** One line: what comes before the fields, and the fields. */
interface Row {
  readonly head: string;
  readonly fields: Fields;
}

/** Every process's every device, one after the other. */
function rowsOf(processes: readonly ProcessSnapshot[], make: (device: DeviceSnapshot, link: string, owner: Fields) => readonly Row[]): Row[] {
  return processes.flatMap((one) =>
    one.devices.flatMap((device) => make(device, device.attributes.name, { pid: one.pid, comm: one.comm })));
}

export async function run(args: string[]): Promise<number> {
  let processes: ProcessSnapshot[];
  let rows: Row[];
  let json: boolean;
  let pretty: boolean;
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        json: { type: 'boolean', short: 'j' }, pretty: { type: 'boolean', short: 'p' }, pid: { type: 'string' }, help: { type: 'boolean', short: 'h' },
      },
    });
    if (values.help === true) {
      process.stdout.write(USAGE);
      return 0;
    }
    const view = viewOf(positionals);
    pretty = values.pretty === true;
    json = values.json === true || pretty;
    processes = (await askAll()).filter((one) => values.pid === undefined || String(one.pid) === values.pid);
    rows = rowsOf(processes, view);
  } catch (error) {
    process.stderr.write(`stat: ${(error as Error).message}\n${error instanceof IwarpError && error.code !== 'ERR_INVALID_ARGUMENT' ? '' : USAGE}`);
    return 2;
  }
  if (processes.length === 0) {
    process.stderr.write('stat: no process shows itself (start one with IWARP_CONTROL=1)\n');
    return 1;
  }
  const text = json
    ? `${JSON.stringify(rows.map(({ head, fields }) => ({ ...headFields(head), ...fields })), null, pretty ? 4 : 0)}\n`
    : rows.map(({ head, fields }) => `${[head, ...Object.entries(fields).map(([name, value]) => `${name} ${value}`)].join(' ')} \n`).join('');
  process.stdout.write(text);
  return 0;
}

/** `link iwarp0/1` as JSON fields. */
function headFields(head: string): Fields {
  const [kind, name = ''] = head.split(' ');
  return kind === 'link' || kind === 'dev' ? { [kind === 'link' ? 'ifname' : 'dev']: name } : { ifname: kind!.replace(/:$/, '') };
}

type View = (device: DeviceSnapshot, name: string, owner: Fields) => readonly Row[];

function viewOf(positionals: readonly string[]): View {
  const words = positionals.filter((word) => word !== 'show');
  const [what = 'device', object, ...more] = words;
  const view = what === 'resource' ? RESOURCES[object ?? ''] : object === undefined ? COUNTERS[what] : undefined;
  if (view === undefined || more.length > 0) throw new IwarpError('ERR_INVALID_ARGUMENT', `no such view: ${words.join(' ')}`);
  return view;
}

/** Counter names in the manner of the RNIC drivers' hardware counters. */
function counterFields(c: StreamCounters): Fields {
  return {
    in_fpdus: c.fpdusIn, out_fpdus: c.fpdusOut, in_octets: c.octetsIn, out_octets: c.octetsOut,
    in_payload_octets: c.payloadIn, out_payload_octets: c.payloadOut,
    in_rdma_sends: c.messagesIn.sends, in_rdma_writes: c.messagesIn.writes, in_rdma_reads: c.messagesIn.reads,
    in_rdma_read_responses: c.messagesIn.readResponses, in_rdma_atomics: c.messagesIn.atomics, in_rdma_immediates: c.messagesIn.immediates,
    in_terminates: c.messagesIn.terminates,
    out_rdma_sends: c.messagesOut.sends, out_rdma_writes: c.messagesOut.writes, out_rdma_reads: c.messagesOut.reads,
    out_rdma_read_responses: c.messagesOut.readResponses, out_rdma_atomics: c.messagesOut.atomics, out_rdma_immediates: c.messagesOut.immediates,
    out_terminates: c.messagesOut.terminates,
    crc_errors: c.crcErrors, marker_errors: c.markerErrors, nudges: c.nudges,
  };
}

const COUNTERS: Readonly<Record<string, View>> = {
  device: ({ counters }, name, owner) => [{
    head: `link ${name}/1`,
    fields: {
      ...counterFields(counters), connections_established: counters.established, connections_rejected: counters.rejected,
      connections_failed: counters.failed, connections_closed: counters.closed, connections_broken: counters.broken, ...owner,
    },
  }],
  qp: ({ connections }, name, owner) => connections
    .filter(({ lqpn }) => lqpn !== null)
    .map(({ lqpn, counters }) => ({ head: `link ${name}/1`, fields: { lqpn: lqpn!, ...owner, ...counterFields(counters) } })),
};

const QP_STATES: Readonly<Record<string, string>> = { idle: 'IDLE', rts: 'RTS', closing: 'CLOSING', terminate: 'TERMINATE', error: 'ERROR' };

const RESOURCES: Readonly<Record<string, View>> = {
  '': ({ attributes: { inUse }, connections }, name, owner) => [{
    head: `${name}:`, fields: { pd: inUse.pd, cq: inUse.cq, qp: inUse.qp, cm_id: connections.length, mr: inUse.mr, mw: inUse.mw, srq: inUse.srq, ...owner },
  }],
  pd: ({ pds }, name, owner) => pds.map(({ pdn, users }) => ({ head: `dev ${name}`, fields: { pdn, users, ...owner } })),
  cq: ({ cqs }, name, owner) => cqs.map(({ cqn, cqe, users }) => ({ head: `dev ${name}`, fields: { cqn, cqe, users, ...owner } })),
  qp: ({ qps }, name, owner) => qps.map(({ lqpn, pdn, state, sendOutstanding, recvPosted }) => ({
    head: `link ${name}/1`,
    fields: {
      lqpn, type: 'RC', state: QP_STATES[state] ?? state, 'sq-psn': 0, pdn, 'sq-outstanding': sendOutstanding, 'rq-posted': recvPosted, ...owner,
    },
  })),
  cm_id: ({ connections }, name, owner) => connections.map((one, index) => ({
    head: `link ${name}/1`,
    fields: { 'cm-idn': index, ...(one.lqpn === null ? {} : { lqpn: one.lqpn, 'qp-type': 'RC' }), state: cmState(one), ps: 'TCP', ...owner, ...addresses(one) },
  })),
  mr: ({ mrs }, name, owner) => mrs.map(({ mrn, mrlen, pdn }) => ({ head: `dev ${name}`, fields: { mrn, mrlen, pdn, ...owner } })),
};

function cmState(connection: ConnectionSnapshot): string {
  if (connection.established) return 'CONNECT';
  return connection.role === 'active' ? 'CONNECTING' : 'ACCEPTING';
}

function addresses({ local, remote }: ConnectionSnapshot): Fields {
  const text = ({ address, port, family }: PortAddress): string => (family === 'IPv6' ? `[${address}]:${port}` : `${address}:${port}`);
  return { ...(local === null ? {} : { 'src-addr': text(local) }), ...(remote === null ? {} : { 'dst-addr': text(remote) }) };
}
