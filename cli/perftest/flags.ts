/**
 * The flags of the perftest programs: the letters and names of linux-rdma/perftest 6.29, and those that are
 * refused, in the stock programs' words where they have some. docs/tools.md has a table of all.
 */
// cspell:ignore histogrm dont fegz nvchuo
import {
  atoi,
  strtol,
  textOption,
  UsageError,
  type LongOption,
  type ParsedOptions,
} from '../support/options.ts';
import type { Program } from './program.ts';

export const SHORT_OPTIONS = 'w:y:p:d:i:m:s:n:t:u:S:x:c:q:I:o:M:r:Q:A:l:D:f:T:L:X:W:aFegzRhbNVCHUO';

const TAKES_VALUE = { value: true } as const;

/** Flags for the memory of accelerators: a stock program that is built without them refuses them too. */
const ACCELERATORS: Readonly<Record<string, LongOption>> = {
  use_cuda: TAKES_VALUE,
  use_cuda_bus_id: TAKES_VALUE,
  use_cuda_dmabuf: {},
  use_cuda_pcie_mapping: {},
  use_data_direct: {},
  cuda_mem_type: TAKES_VALUE,
  use_musa: TAKES_VALUE,
  use_musa_bus_id: TAKES_VALUE,
  use_musa_dmabuf: {},
  use_musa_pcie_mapping: {},
  use_rocm: TAKES_VALUE,
  use_rocm_dmabuf: {},
  use_neuron: TAKES_VALUE,
  use_neuron_dmabuf: {},
  use_hl: TAKES_VALUE,
  use_mlu: TAKES_VALUE,
  use_mlu_dmabuf: {},
  use_opencl: TAKES_VALUE,
  opencl_platform_id: TAKES_VALUE,
  use_ib_dm_dmabuf: TAKES_VALUE,
  gpu_touch: TAKES_VALUE,
};

export const LONG_OPTIONS: Readonly<Record<string, LongOption>> = {
  port: { short: 'p', value: true },
  'ib-dev': { short: 'd', value: true },
  'ib-port': { short: 'i', value: true },
  mtu: { short: 'm', value: true },
  size: { short: 's', value: true },
  iters: { short: 'n', value: true },
  'tx-depth': { short: 't', value: true },
  'rx-depth': { short: 'r', value: true },
  'qp-timeout': { short: 'u', value: true },
  sl: { short: 'S', value: true },
  'gid-index': { short: 'x', value: true },
  all: { short: 'a' },
  'CPU-freq': { short: 'F' },
  connection: { short: 'c', value: true },
  qp: { short: 'q', value: true },
  events: { short: 'e' },
  vector: { short: 'X', value: true },
  inline_size: { short: 'I', value: true },
  outs: { short: 'o', value: true },
  mcg: { short: 'g' },
  MGID: { short: 'M', value: true },
  comm_rdma_cm: { short: 'z' },
  rdma_cm: { short: 'R' },
  tos: { short: 'T', value: true },
  hop_limit: { short: 'L', value: true },
  help: { short: 'h' },
  bidirectional: { short: 'b' },
  'cq-mod': { short: 'Q', value: true },
  noPeak: { short: 'N' },
  version: { short: 'V' },
  'report-cycles': { short: 'C' },
  'report-histogram': { short: 'H' },
  // The stock programs spell the long option so, and their help as above.
  'report-histogrm': { short: 'H' },
  'report-unsorted': { short: 'U' },
  'report-counters': { short: 'W', value: true },
  atomic_type: { short: 'A', value: true },
  dualport: { short: 'O' },
  post_list: { short: 'l', value: true },
  duration: { short: 'D', value: true },
  margin: { short: 'f', value: true },
  limit_bw: { short: 'w', value: true },
  limit_msgrate: { short: 'y', value: true },
  run_infinitely: {},
  report_gbits: {},
  'report-both': {},
  'report-per-port': {},
  output: TAKES_VALUE,
  out_json: {},
  out_json_file: TAKES_VALUE,
  dont_xchg_versions: {},
  source_ip: TAKES_VALUE,
  bind_source_ip: TAKES_VALUE,
  retry_count: TAKES_VALUE,
  use_old_post_send: {},
  disable_pcie_relaxed: {},
  recv_post_list: TAKES_VALUE,
  'use-srq': {},
  reversed: {},
  perform_warm_up: {},
  latency_gap: TAKES_VALUE,
  rate_limit: TAKES_VALUE,
  rate_limit_type: TAKES_VALUE,
  rate_units: TAKES_VALUE,
  burst_size: TAKES_VALUE,
  typical_pkt_size: TAKES_VALUE,
  cpu_util: {},
  wait_destroy: TAKES_VALUE,
  mr_per_qp: {},
  payload_file_path: TAKES_VALUE,
  write_with_imm: {},
  send_with_imm: {},
  connectionless: {},
  data_validation: {},
  data_validation_debug: {},
  'force-link': TAKES_VALUE,
  ipv6: {},
  'ipv6-addr': {},
  no_lock: {},
  cqe_poll: TAKES_VALUE,
  disable_dynamic_polling: {},
  pkey_index: TAKES_VALUE,
  dlid: TAKES_VALUE,
  tclass: TAKES_VALUE,
  flow_label: TAKES_VALUE,
  'use-null-mr': {},
  odp: {},
  use_hugepages: {},
  mmap: TAKES_VALUE,
  'mmap-offset': TAKES_VALUE,
  pin_cores: TAKES_VALUE,
  ...ACCELERATORS,
};

/** What Node or iWARP cannot do, and why. */
const IMPOSSIBLE: Readonly<Record<string, string>> = {
  W: 'Performance counters of a device are files of its driver; see iwarp stat',
  'use-null-mr': 'A null memory region needs hardware',
  odp: 'On Demand Paging needs hardware',
  use_hugepages: 'Node allocates no Hugepages',
  mmap: 'Node maps no files into memory',
  'mmap-offset': 'Node maps no files into memory',
  pin_cores: 'Node sets no CPU affinity: start the program with taskset',
  send_with_imm: 'iWARP has no Send with immediate data; RFC 7306 has Immediate Data as a message alone',
  data_validation: '--data_validation is not supported: it needs the messages of version 6.29',
  data_validation_debug: '--data_validation is not supported: it needs the messages of version 6.29',
};

/** The flags that make sense for one program only, and those that make none here. @throws UsageError */
// oxlint-disable-next-line max-lines-per-function -- one flag after the other
export function checkFit(options: ParsedOptions, { verb, kind }: Program): void {
  const { flags } = options;
  const refuse = (flag: string, when: boolean, words: string): void => {
    if (flags.has(flag) && when) throw new UsageError(words);
  };
  const latency = kind === 'lat';
  refuse('q', latency && textOption(options, 'q') !== '1', 'Multiple QPs only available on bw tests');
  refuse('I', verb === 'read' || verb === 'atomic', 'Inline feature not available on READ/Atomic verbs');
  refuse('o', verb === 'write' || verb === 'send', 'Setting Outstanding reads only available on READ verb');
  refuse('e', verb === 'write' && !flags.has('write_with_imm'), 'Events feature not available on WRITE verb');
  refuse('X', verb === 'write', 'Events feature not available on WRITE verb');
  refuse('X', !flags.has('e'), 'Events must be enabled to select a completion vector');
  refuse('b', latency, 'Bidirectional is only available in BW test');
  refuse('N', latency, 'NoPeak only valid for BW tests');
  refuse('H', !latency, 'Available only on Latency tests');
  refuse('U', !latency, 'is Available only on Latency tests');
  refuse('C', !latency, 'Available only on Latency tests');
  refuse('latency_gap', !latency, 'Latency gap feature is only for latency tests');
  refuse(
    'A',
    verb !== 'atomic',
    'You are not running the atomic_lat/bw test!\n' +
      ' To change the atomic action type, you must run one of the atomic tests',
  );
  refuse('a', verb === 'atomic', 'Message size cannot be changed for Atomic tests');
  refuse('use-srq', verb !== 'send', 'Using SRQ only available in SEND / SEND_IMM tests.');
  refuse(
    'write_with_imm',
    verb !== 'write',
    'Write_with_imm can only be used with write_lat and write_bw tests',
  );
  refuse('send_with_imm', verb !== 'send', 'Send_with_imm can only be used with send_lat and send_bw tests');
  refuse('g', verb !== 'send', 'MultiCast feature only available on SEND verb');
  refuse('g', true, "Perftest still doesn't support Multicast with rdma_cm");
  refuse('O', latency, 'Dual-port mode only supports BW tests.');
  refuse('O', true, "Perftest still doesn't support Dual Port with rdma_cm");
  refuse('report-per-port', true, 'report per port feature work only with Duration and Dualport');
  refuse(
    'connectionless',
    true,
    'Using Connectionless server only available in Multicast, UD BW with RUN INFINITELY tests.',
  );
  refuse('z', !flags.has('R'), 'Regular QPs cannot be connected over iWARP: use -R');
  const connection = textOption(options, 'c');
  if (connection !== undefined && connection !== 'RC')
    throw new UsageError('Invalid Connection type. Please choose from {RC}');
  for (const flag of Object.keys(ACCELERATORS)) refuse(flag, true, 'Unsupported memory type');
  for (const [flag, words] of Object.entries(IMPOSSIBLE)) refuse(flag, true, words);
  checkIgnored(options);
}

/** Flags that change nothing over iWARP: their values are checked all the same. */
function checkIgnored(options: ParsedOptions): void {
  ranged(options, 'i', 'IB Port', 1, 1, 255);
  ranged(options, 'u', 'QP Timeout', 14, 0, 255);
  ranged(options, 'x', 'Gid index', 0, 0, 64);
  if (ranged(options, 'S', 'Service Level', 0, 0, 255) > 15) throw new UsageError('Only 15 Service levels');
  if (ranged(options, 'L', 'Hop Limit', 64, 0, 255) !== 64)
    throw new UsageError('Hop limit only valid for RawEth QP');
  ranged(options, 'retry_count', 'Retry Count', 7, 0, MAX_INT);
  ranged(options, 'cqe_poll', 'CQE Poll', 16, 1, 65_535);
  ranged(options, 'pkey_index', 'Pkey index', 0, 0, MAX_INT);
  ranged(options, 'dlid', 'dlid', 0, 0, 65_535);
  ranged(options, 'tclass', 'traffic class', 0, 0, 65_535);
  const link = textOption(options, 'force-link')?.toUpperCase() ?? 'ETHERNET';
  if (link !== 'ETHERNET' && link !== 'IB')
    throw new UsageError('Invalid link layer value should be IB or ETHERNET.');
  if (link === 'IB') throw new UsageError('The link of iWARP is Ethernet');
}

export const MAX_INT = 0x7fff_ffff;

/** A whole number in a range. @throws UsageError */
export function ranged(
  options: ParsedOptions,
  flag: string,
  name: string,
  fallback: number,
  min: number,
  max: number,
): number {
  const text = textOption(options, flag);
  if (text === undefined) return fallback;
  if (!/^-?\d+$/.test(text))
    throw new UsageError(`Invalid ${name} value. Please check command line and run again.`);
  const value = atoi(text);
  if (value < min || value > max) throw new UsageError(`${name} should be between ${min} and ${max}`);
  return value;
}

const MAX_SIZE_ASKED = MAX_INT;

/** The size of `-s`. @throws UsageError */
export function readSize(options: ParsedOptions, fallback: number): number {
  const text = textOption(options, 's');
  if (text === undefined) return fallback;
  if (!/^-?(\d+|0x[\da-f]+)[KM]?$/i.test(text))
    throw new UsageError('Invalid Message Size value. Please check command line and run again.');
  const factor = /k$/i.test(text) ? 1024 : /m$/i.test(text) ? 1024 * 1024 : 1;
  const size = strtol(text) * factor;
  if (size < 1 || size > MAX_SIZE_ASKED)
    throw new UsageError(`Message Size should be between 1 and ${MAX_SIZE_ASKED}`);
  return size;
}

/** A limit that figures are compared with. A text that is no number would never be missed. */
export function readLimit(options: ParsedOptions, flag: string, name: string): number | null {
  const text = textOption(options, flag);
  if (text === undefined) return null;
  if (!/^\d+(\.\d+)?$/.test(text)) throw new UsageError(`Invalid ${name} Limit`);
  return Number(text);
}
