/** `iwarp devinfo`: the devices of the running processes of this user, in the layout of `ibv_devinfo`. See `stat.ts` for who is shown. */
import { parseArgs } from 'node:util';
import { IwarpError } from '../base/errors.ts';
import { askAll } from './support/control-socket.ts';
import type { DeviceSnapshot, ProcessSnapshot } from './support/snapshot.ts';

const USAGE = `usage: iwarp devinfo [-d DEV] [-v] [-l]
  -d, --ib-dev DEV   this device only
  -v, --verbose      every limit
  -l, --list         names only

Processes show themselves when started with IWARP_CONTROL=1, or by serveControl().
`;

export async function run(args: string[]): Promise<number> {
  let found: { readonly owner: ProcessSnapshot; readonly device: DeviceSnapshot }[];
  let verbose: boolean;
  let list: boolean;
  try {
    const { values } = parseArgs({
      args,
      options: {
        'ib-dev': { type: 'string', short: 'd' }, verbose: { type: 'boolean', short: 'v' }, list: { type: 'boolean', short: 'l' },
        help: { type: 'boolean', short: 'h' },
      },
    });
    if (values.help === true) {
      process.stdout.write(USAGE);
      return 0;
    }
    verbose = values.verbose === true;
    list = values.list === true;
    const name = values['ib-dev'];
    found = (await askAll()).flatMap((owner) => owner.devices.map((device) => ({ owner, device })))
      .filter(({ device }) => name === undefined || device.attributes.name === name);
  } catch (error) {
    process.stderr.write(`devinfo: ${(error as Error).message}\n${error instanceof IwarpError ? '' : USAGE}`);
    return 2;
  }
  if (found.length === 0) {
    process.stderr.write('No IB devices found\n');
    return 1;
  }
  if (list) {
    const names = found.map(({ device }) => `\t${device.attributes.name}\n`).join('');
    process.stdout.write(`${found.length} HCA${found.length === 1 ? '' : 's'} found:\n${names}\n`);
  } else {
    process.stdout.write(found.map(({ owner, device }, index) => block(owner, device, index, verbose)).join(''));
  }
  return 0;
}

/** A name and its value, tabs between them as ibv_devinfo puts them. */
function line(depth: number, name: string, value: string | number): string {
  const column = depth === 1 ? 32 : 24;
  const tabs = Math.max(1, Math.ceil((column - name.length - 1) / 8));
  return `${'\t'.repeat(depth)}${name}:${'\t'.repeat(tabs)}${value}\n`;
}

function block(owner: ProcessSnapshot, device: DeviceSnapshot, index: number, verbose: boolean): string {
  const guid = guidOf(owner.pid, index);
  const { attributes } = device;
  const port: readonly (readonly [string, string | number])[] = [
    ['state', attributes.state === 'open' ? 'PORT_ACTIVE (4)' : 'PORT_DOWN (1)'],
    ['max_mtu', '4096 (5)'], ['active_mtu', '1024 (3)'], ['sm_lid', 0], ['port_lid', 0], ['port_lmc', '0x00'], ['link_layer', 'Ethernet'],
  ];
  const head: readonly (readonly [string, string | number])[] = [
    ['transport', 'iWARP (1)'], ['fw_ver', owner.version], ['node_guid', guid], ['sys_image_guid', guid],
    ['vendor_id', '0x000000'], ['vendor_part_id', 0], ['hw_ver', '0x0'], ['phys_port_cnt', 1],
  ];
  return [
    `hca_id:\t${attributes.name}\n`,
    ...head.map(([name, value]) => line(1, name, value)),
    ...(verbose ? limits(device, owner).map(([name, value]) => line(1, name, value)) : []),
    '\t\tport:\t1\n',
    ...port.map(([name, value]) => line(3, name, value)),
    '\n',
  ].join('');
}

/** Limits by the names of ibv_device_attr, and at the end what only a process has. */
function limits({ attributes: { limits: l, capabilities }, crc32c }: DeviceSnapshot, owner: ProcessSnapshot): readonly (readonly [string, string | number])[] {
  return [
    ['max_mr_size', `0x${l.maxMessage.toString(16)}`], ['max_qp', l.maxQp], ['max_qp_wr', l.maxQpWr], ['max_sge', l.maxSge], ['max_sge_rd', 1],
    ['max_cq', l.maxCq], ['max_cqe', l.maxCqe], ['max_mr', l.maxMr], ['max_pd', l.maxPd], ['max_qp_rd_atom', l.maxQpRdAtom],
    ['max_qp_init_rd_atom', l.maxQpInitRdAtom], ['atomic_cap', capabilities.atomics === 'none' ? 'ATOMIC_NONE (0)' : 'ATOMIC_HCA (1)'],
    ['max_mw', l.maxMr], ['max_srq', l.maxSrq], ['max_srq_wr', l.maxSrqWr], ['max_srq_sge', l.maxSge], ['max_inline_data', l.maxInline],
    ['max_msg_sz', `0x${l.maxMessage.toString(16)}`], ['crc32c_engine', crc32c], ['pid', owner.pid], ['comm', owner.comm], ['node', owner.node],
  ];
}

/** A GUID of the locally administered kind: process and device number. */
function guidOf(pid: number, index: number): string {
  const hex = (value: number): string => (value & 0xffff).toString(16).padStart(4, '0');
  return ['0200', hex(pid >>> 16), hex(pid), hex(index)].join(':');
}
