/**
 * `iwarp devinfo`: the devices of the running processes of this user, in the layout of `ibv_devinfo`. See
 * `stat.ts` for the processes that are shown.
 */
import { parseArgs } from 'node:util';
import { IwarpError } from '../src/base/errors.ts';
import { askAll, type Unshown } from '../src/observe/control-socket.ts';
import type { DeviceSnapshot, ProcessSnapshot } from '../src/observe/snapshot.ts';
import type { DeviceCapabilities } from '../src/verbs/device.ts';
import { printable } from './support/printable.ts';
import { tellUnshown } from './support/unshown-processes.ts';

const USAGE = `usage: iwarp devinfo [-d DEV] [-i PORT] [-v] [-l]
  -d, --ib-dev DEV   only this device
  -i, --ib-port PORT port number; always 1
  -v, --verbose      every limit
  -l, --list         names only

Processes show themselves when started with IWARP_CONTROL=1, or by serveControl().
`;

export async function run(args: string[]): Promise<number> {
  let found: { readonly owner: ProcessSnapshot; readonly device: DeviceSnapshot }[];
  let verbose: boolean;
  let list: boolean;
  let name: string | undefined;
  const unshown = new Map<number, Unshown>();
  try {
    const { values } = parseArgs({
      args,
      options: {
        'ib-dev': { type: 'string', short: 'd' },
        'ib-port': { type: 'string', short: 'i', default: '1' },
        verbose: { type: 'boolean', short: 'v' },
        list: { type: 'boolean', short: 'l' },
        help: { type: 'boolean', short: 'h' },
      },
    });
    if (values.help === true) {
      process.stdout.write(USAGE);
      return 0;
    }
    verbose = values.verbose === true;
    list = values.list === true;
    name = values['ib-dev'];
    if (values['ib-port'] !== '1')
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'Invalid port requested for device');
    const all = await askAll((pid, why) => void unshown.set(pid, why));
    tellUnshown('devinfo', unshown);
    found = all
      .flatMap((owner) => owner.devices.map((device) => ({ owner, device })))
      .filter(({ device }) => name === undefined || device.attributes.name === name);
  } catch (error) {
    process.stderr.write(`devinfo: ${(error as Error).message}\n${error instanceof IwarpError ? '' : USAGE}`);
    return 2;
  }
  if (found.length === 0 && name === undefined && unshown.size > 0) return 1;
  if (found.length === 0) {
    process.stderr.write(name === undefined ? 'No IB devices found\n' : `IB device '${name}' wasn't found\n`);
    return 1;
  }
  if (list) {
    const names = found.map(({ device }) => `\t${printable(device.attributes.name)}\n`).join('');
    process.stdout.write(`${found.length} HCA${found.length === 1 ? '' : 's'} found:\n${names}\n`);
  } else {
    process.stdout.write(
      found.map(({ owner, device }, index) => block(owner, device, index, verbose)).join(''),
    );
  }
  return 0;
}

/** A name and its value, tabs between them as ibv_devinfo puts them. */
function line(depth: number, name: string, value: string | number): string {
  const column = depth === 1 ? 32 : 24;
  const tabs = Math.max(1, Math.ceil((column - name.length - 1) / 8));
  return `${'\t'.repeat(depth)}${name}:${'\t'.repeat(tabs)}${printable(String(value))}\n`;
}

type Lines = readonly (readonly [name: string, value: string | number])[];

function block(owner: ProcessSnapshot, device: DeviceSnapshot, index: number, verbose: boolean): string {
  const guid = guidOf(owner.pid, index);
  const { attributes } = device;
  const head: Lines = [
    ['transport', 'iWARP (1)'],
    ['fw_ver', owner.version],
    ['node_guid', guid],
    ['sys_image_guid', guid],
    ['vendor_id', '0x0000'],
    ['vendor_part_id', 0],
    ['hw_ver', '0x0'],
    ['phys_port_cnt', 1],
  ];
  const port: Lines = [
    ['state', attributes.state === 'open' ? 'PORT_ACTIVE (4)' : 'PORT_DOWN (1)'],
    ['max_mtu', '4096 (5)'],
    ['active_mtu', '1024 (3)'],
    ['sm_lid', 0],
    ['port_lid', 0],
    ['port_lmc', '0x00'],
    ['link_layer', 'Ethernet'],
    ...(verbose
      ? ([
          ['max_msg_sz', hex(attributes.limits.maxMessage)],
          ['port_cap_flags', '0x00000000'],
        ] as const)
      : []),
  ];
  return [
    `hca_id:\t${printable(attributes.name)}\n`,
    ...head.map(([name, value]) => line(1, name, value)),
    ...(verbose ? limits(device, owner) : []),
    '\t\tport:\t1\n',
    ...port.map(([name, value]) => line(3, name, value)),
    '\n',
  ].join('');
}

const hex = (value: number): string => `0x${value.toString(16)}`;

/** Flags of ibv_device_attr that say what our devices can do, with their bits in ibverbs. */
const CAPABILITY_FLAGS: readonly (readonly [
  name: string,
  bit: number,
  has: (capabilities: DeviceCapabilities) => boolean,
])[] = [
  ['RESIZE_MAX_WR', 0, () => true],
  ['SRQ_RESIZE', 13, ({ sharedReceiveQueues }) => sharedReceiveQueues],
  ['MEM_WINDOW', 17, ({ memoryWindows }) => memoryWindows],
  ['MEM_MGT_EXTENSIONS', 21, ({ fastRegistration }) => fastRegistration],
];

/**
 * Limits by the names of ibv_device_attr, zero for what iWARP does not have, and at the end what only a
 * process has.
 */
function limits(
  { attributes: { limits: l, capabilities }, crc32c }: DeviceSnapshot,
  owner: ProcessSnapshot,
): readonly string[] {
  const flags = CAPABILITY_FLAGS.filter(([, , has]) => has(capabilities));
  const word = flags.reduce((sum, [, bit]) => sum | (1 << bit), 0);
  const none = (...names: string[]): Lines => names.map((name) => [name, 0] as const);
  const before: Lines = [
    ['max_mr_size', hex(l.maxMessage)],
    ['page_size_cap', '0x0'],
    ['max_qp', l.maxQp],
    ['max_qp_wr', l.maxQpWr],
  ];
  const after: Lines = [
    ['max_sge', l.maxSge],
    ['max_sge_rd', 1],
    ['max_cq', l.maxCq],
    ['max_cqe', l.maxCqe],
    ['max_mr', l.maxMr],
    ['max_pd', l.maxPd],
    ['max_qp_rd_atom', l.maxQpRdAtom],
    ...none('max_ee_rd_atom'),
    ['max_res_rd_atom', l.maxQpRdAtom * l.maxQp],
    ['max_qp_init_rd_atom', l.maxQpInitRdAtom],
    ...none('max_ee_init_rd_atom'),
    ['atomic_cap', capabilities.atomics === 'none' ? 'ATOMIC_NONE (0)' : 'ATOMIC_HCA (1)'],
    ...none('max_ee', 'max_rdd'),
    ['max_mw', l.maxMr],
    ...none(
      'max_raw_ipv6_qp',
      'max_raw_ethy_qp',
      'max_mcast_grp',
      'max_mcast_qp_attach',
      'max_total_mcast_qp_attach',
      'max_ah',
      'max_fmr',
    ),
    ['max_srq', l.maxSrq],
    ['max_srq_wr', l.maxSrqWr],
    ['max_srq_sge', l.maxSge],
    ...none('max_pkeys', 'local_ca_ack_delay'),
    ['max_inline_data', l.maxInline],
    ['crc32c_engine', crc32c],
    ['pid', owner.pid],
    ['comm', owner.comm],
    ['node', owner.node],
  ];
  const show = (lines: Lines): string[] => lines.map(([name, value]) => line(1, name, value));
  return [
    ...show(before),
    line(1, 'device_cap_flags', `0x${word.toString(16).padStart(8, '0')}`),
    ...flags.map(([name]) => `\t\t\t\t\t${name}\n`),
    ...show(after),
  ];
}

/** A GUID of the locally administered kind: process and device number. */
function guidOf(pid: number, index: number): string {
  const hex = (value: number): string => (value & 0xffff).toString(16).padStart(4, '0');
  return ['0200', hex(pid >>> 16), hex(pid), hex(index)].join(':');
}
