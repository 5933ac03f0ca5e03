/** The usage text of a perftest program. */
// cspell:ignore dont
import type { Program } from './program.ts';
import { DEFAULT_READS, OUTPUTS } from './settings.ts';

/** The usage text of a program; `more` stands at its end. */
// oxlint-disable-next-line max-lines-per-function -- one line a flag
export function usage({ name, verb, kind }: Program, more: string): string {
  const reads = verb === 'read' || verb === 'atomic';
  const bw = kind === 'bw';
  const iterations = verb === 'write' && kind === 'bw' ? 5000 : 1000;
  const lines: (readonly [boolean, string])[] = [
    [
      true,
      [
        `Usage:\n  ${name}            start a server and wait for connection`,
        `  ${name} <host>     connect to server at <host>\n\nOptions:`,
      ].join('\n'),
    ],
    [verb !== 'atomic', '  -a, --all  Run sizes from 2 till 2^23'],
    [verb === 'atomic', '  -A, --atomic_type=<type>  FETCH_AND_ADD (default) or CMP_AND_SWAP'],
    [kind === 'bw', '  -b, --bidirectional  Measure bidirectional bandwidth (default unidirectional)'],
    [true, '  -c, --connection=<RC>  Connection type (default RC)'],
    [!bw, '  -C, --report-cycles  report times in cpu cycle units (default microseconds)'],
    [true, '  -d, --ib-dev=<dev>  Name of the device in the report (default iwarp0)'],
    [true, '  -D, --duration  Run test for a customized period of seconds'],
    [true, '  -e, --events  Said in the report; completions are events here (not for Writes alone)'],
    [true, '  -f, --margin  Measure results within margins (default a quarter of the duration)'],
    [true, '  -F, --CPU-freq  Accepted'],
    [true, '  -h, --help  Show this help screen'],
    [kind === 'lat', '  -H, --report-histogram  Print out all results (default print summary only)'],
    [!reads, '  -I, --inline_size=<size>  Max size of message to be sent in inline'],
    [
      kind === 'bw',
      '  -l, --post_list=<list size>  Post list of send WQEs of <list size> size (instead of single post)',
    ],
    [true, '  -m, --mtu=<mtu>  MTU size to tell the peer: 256 - 4096 (default 1024)'],
    [true, `  -n, --iters=<iters>  Number of exchanges (at least 5, default ${iterations})`],
    [kind === 'bw', '  -N, --noPeak  Cancel peak-bw calculation (default with peak up to iters=20000)'],
    [reads, `  -o, --outs=<num>  num of outstanding read/atom (default ${DEFAULT_READS})`],
    [true, '  -p, --port=<port>  Listen on/connect to port <port> (default 18515)'],
    [kind === 'bw', "  -q, --qp=<num of qp's>  Num of qp's (default 1)"],
    [kind === 'bw', '  -Q, --cq-mod  Generate Cqe only after <--cq-mod> completion'],
    [
      verb === 'send' || verb === 'write',
      '  -r, --rx-depth=<dep>  Rx queue size (default 512), where there are receives',
    ],
    [true, '  -R, --rdma_cm  Connect QPs with rdma_cm; there is no other way here'],
    [verb !== 'atomic', `  -s, --size=<size>  Size of message to exchange (default ${bw ? 65_536 : 2})`],
    [kind === 'bw', '  -t, --tx-depth=<dep>  Size of tx queue (default 128)'],
    [true, '  -T, --tos=<tos value>  Said in the report: sockets of Node have no such option'],
    [kind === 'lat', '  -U, --report-unsorted  print out unsorted results'],
    [true, '  -V, --version  Display version number'],
    [kind === 'bw', '  -w, --limit_bw=<value>  Set verifier limit for bandwidth'],
    [verb !== 'write', '  -X, --vector=<completion vector>  Said in the report, with -e'],
    [kind === 'bw', '  -y, --limit_msgrate=<value>  Set verifier limit for Msg Rate'],
    [true, ''],
    [true, '      --out_json  Save the report in a json file'],
    [true, '      --out_json_file=<file>  Name of the report json file (default perftest_out.json)'],
    [true, '      --dont_xchg_versions  Do not exchange versions and MTU with other side'],
    [true, `      --output=<units>  Print one figure: ${OUTPUTS[kind].join(', ')}`],
    [kind === 'bw', '      --report-both  Report RX & TX results separately on Bidirectional BW tests'],
    [kind === 'bw', '      --report_gbits  Report Max/Average BW of test in Gbit/sec (instead of MiB/sec)'],
    [bw, '      --run_infinitely  Run test forever, print results every <duration> seconds'],
    [
      true,
      '      --source_ip, --bind_source_ip  Source IP of the interface used for connection establishment',
    ],
    [true, '      --cpu_util  Show CPU Utilization in report, valid only in Duration mode'],
    [!bw, '      --latency_gap=<delay_time>  delay time between each post send, in microseconds'],
    [true, '      --mr_per_qp  Create memory region for each qp'],
    [
      verb !== 'write' || bw,
      '      --payload_file_path=<file>  Payload from words 0xaaaaaaaa,0xbbbbbbbb,... (little endian)',
    ],
    [bw && verb !== 'send', '      --perform_warm_up  Perform some iterations before start measuring'],
    [bw, '      --recv_post_list=<list size>  Post receives in lists of this size'],
    [true, '      --reversed  Reverse traffic direction - Server send to client, on both sides'],
    [verb === 'send', '      --use-srq  Use a Shared Receive Queue'],
    [true, '      --wait_destroy=<seconds>  Wait before the connections are ended'],
    [verb === 'write', '      --write_with_imm  Use write-with-immediate verb instead of write'],
    [bw && verb !== 'atomic', '\n Rate Limiter:'],
    [bw && verb !== 'atomic', '      --burst_size=<size>  Messages to send in a burst (default Tx depth)'],
    [bw && verb !== 'atomic', '      --rate_limit=<rate>  The maximum rate, in the units of --rate_units'],
    [bw && verb !== 'atomic', '      --rate_units=<units>  [Mgp] MiBps (M), Gbps (g, default) or pps (p)'],
    [
      bw && verb !== 'atomic',
      '      --rate_limit_type=SW  Needed with --rate_limit: there is no limit by hardware here',
    ],
    [true, '\nOther flags of the stock programs: see the table of docs/tools.md.'],
  ];
  return `${lines
    .filter(([when]) => when)
    .map(([, line]) => line)
    .join('\n')}\n${more}`;
}
