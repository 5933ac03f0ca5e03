/** The command line of `iwarp proxy`. */
import { parseArgs } from 'node:util';
import { IwarpError } from '../../src/base/errors.ts';
import type { EventFilter } from '../../src/inspect/render/filter.ts';
import type { EventStyle } from '../../src/inspect/render/views.ts';
import { numberFlag } from '../support/policy-flags.ts';
import { filterOf, styleOf, VIEW_OPTIONS } from '../support/view-options.ts';
import { FAULT_USAGE, parseFault, readFaults, type FaultSpec } from './fault-spec.ts';

export const USAGE: string = `usage: iwarp proxy LISTEN TARGET [options]
  LISTEN, TARGET           [HOST:]PORT, HOST in brackets if it is IPv6 (127.0.0.1); LISTEN may have port 0
  --json                   one JSON object per line
  -V, --verbose            all fields
  -x, --bytes              all fields with their bytes
  --summary                only the summary of each connection
  -q, --quiet              no events and no summaries
  --opcode NAME, --stag HEX, --connection N, --errors
                           show only these events, as in iwarp dissect
  --sent                   show and record what the peers send, before faults; by default what they receive
  --page PORT              serve the page of iwarp dissect --html on 127.0.0.1, updated live
  --pcap FILE              write a capture
  --fault FAULT            inject a fault (may be repeated)
  --faults FILE            faults from a JSON file: [{"kind": "flip", "opcode": "Send", ...}, ...]
  --seed N                 seed of random choices (by default one is chosen and printed)
  --once, --connections N  end after one connection, or after N
  --timeout SECONDS        reset a connection that is silent for this long; 0: never (60)
  --connect-timeout SECONDS  give up connecting to TARGET (10)
  --wire trp               iWARP over UDP; iwarp proxy --wire trp --help has its options
  -h, --help               print this help
${FAULT_USAGE}exit status: 0; 1 if something could not be opened or reached, or a connection timed out;
             2 for wrong options
`;

interface Endpoint {
  readonly host: string;
  readonly port: number;
}

export interface Settings {
  readonly listen: Endpoint;
  readonly target: Endpoint;
  readonly style: EventStyle;
  readonly show: 'events' | 'summary' | 'nothing';
  readonly filter: EventFilter;
  readonly sent: boolean;
  readonly page: number | undefined;
  readonly pcap: string | undefined;
  readonly faults: readonly FaultSpec[];
  readonly seed: number;
  /** Whether anything is drawn, so that the seed matters. */
  readonly drawn: boolean;
  /** Connections after which the proxy ends. */
  readonly connections: number;
  readonly quietMs: number;
  readonly connectMs: number;
}

const MAX_SEED = 0xffff_ffff;
const MAX_SECONDS = 86_400;

/** Parse `args`; null if help was asked for. Throws an error that names the mistake. */
export function parseSettings(args: string[]): Settings | null {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      ...VIEW_OPTIONS,
      wire: { type: 'string' },
      quiet: { type: 'boolean', short: 'q', default: false },
      sent: { type: 'boolean', default: false },
      page: { type: 'string' },
      pcap: { type: 'string' },
      fault: { type: 'string', multiple: true, default: [] },
      faults: { type: 'string' },
      seed: { type: 'string' },
      once: { type: 'boolean', default: false },
      connections: { type: 'string' },
      timeout: { type: 'string', default: '60' },
      'connect-timeout': { type: 'string', default: '10' },
    },
  } as const);
  if (values.help) return null;
  if (values.wire !== undefined && values.wire !== 'iwarp') throw wrong('--wire takes iwarp or trp');
  const [listen, target] = positionals;
  if (listen === undefined || target === undefined || positionals.length > 2)
    throw wrong('LISTEN and TARGET are needed');
  if (values.once && values.connections !== undefined)
    throw wrong('--once and --connections exclude each other');
  const script = values.faults === undefined ? { faults: [], seed: undefined } : readFaults(values.faults);
  const faults = [...script.faults, ...values.fault.map(parseFault)];
  return {
    listen: parseEndpoint(listen, 0),
    target: parseEndpoint(target, 1),
    style: styleOf(values),
    show: values.quiet ? 'nothing' : values.summary ? 'summary' : 'events',
    filter: filterOf(values),
    sent: values.sent,
    page: values.page === undefined ? undefined : numberFlag('--page', values.page, 0, 65_535),
    pcap: values.pcap,
    faults,
    seed:
      values.seed === undefined
        ? (script.seed ?? 0) >>> 0 || freshSeed()
        : numberFlag('--seed', values.seed, 0, MAX_SEED),
    drawn: faults.some(isDrawn),
    connections: values.once
      ? 1
      : values.connections === undefined
        ? Number.POSITIVE_INFINITY
        : numberFlag('--connections', values.connections, 1, MAX_SEED),
    quietMs: 1000 * numberFlag('--timeout', values.timeout, 0, MAX_SECONDS),
    connectMs: 1000 * numberFlag('--connect-timeout', values['connect-timeout'], 1, MAX_SECONDS),
  };
}

function freshSeed(): number {
  return 1 + (Date.now() % MAX_SEED);
}

function isDrawn({ kind, at, fpdu, octet, bit, ms, by }: FaultSpec): boolean {
  return (
    kind === 'any' ||
    [at, fpdu, octet, bit, ms, by].some((range) => range !== undefined && range[0] !== range[1])
  );
}

/** `[HOST:]PORT`. Throws ERR_INVALID_ARGUMENT. */
export function parseEndpoint(text: string, minPort: number): Endpoint {
  const match = /^(?:(?:\[([0-9a-fA-F:.%\w]+)\]|([^:[\]]+)):)?(\d{1,5})$/.exec(text);
  const port = Number(match?.[3] ?? Number.NaN);
  if (!(port >= minPort && port <= 65_535)) throw wrong(`${JSON.stringify(text)} is not [HOST:]PORT`);
  return { host: match?.[1] ?? match?.[2] ?? '127.0.0.1', port };
}

function wrong(message: string): IwarpError {
  return new IwarpError('ERR_INVALID_ARGUMENT', message);
}
