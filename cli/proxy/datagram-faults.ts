/**
 * Faults of `iwarp proxy --wire trp`: datagrams are lost, repeated, delayed, or passed behind later ones,
 * at a rate that the seed draws from, or at a place that a script names.
 */
import { IwarpError } from '../../src/base/errors.ts';
import { seededRandom, type RandomU32 } from '../../src/base/random.ts';
import { shortName } from '../../src/inspect/render/text.ts';
import type { InspectEvent } from '../../src/inspect/decode/types.ts';

export const DATAGRAM_FAULT_USAGE = `faults with --wire trp: KIND[,KEY=VALUE...]
  drop, duplicate          the datagram does not pass, or passes twice
  delay                    it passes MS later, which may be a range A..B; others overtake it
  reorder                  it passes after the BY datagrams that follow it, or after MS if they do not come
  from=client|server       only what this side sends (both)
  rate=PERCENT             each datagram with this probability, drawn from the seed (100)
  opcode=NAME              only these: Request, Accept, Reject, Ack, SACK, FIN, Send, Write, ReadReq …
  nth=N                    only the Nth of them, counted from 1
  ms=N, by=N               as above (100, 1)
`;

/** Names of set-up that a column shortens. */
const SET_UP: Readonly<Record<string, string>> = {
  'TRP Request': 'request',
  'TRP Accept': 'accept',
  'TRP Reject': 'reject',
};

type Kind = 'drop' | 'duplicate' | 'delay' | 'reorder';
const KINDS: readonly Kind[] = ['drop', 'duplicate', 'delay', 'reorder'];
const KEYS: ReadonlySet<string> = new Set(['from', 'rate', 'opcode', 'nth', 'ms', 'by']);
const MAX_MS = 60_000;

/** One line of the script. */
export interface DatagramFault {
  readonly kind: Kind;
  readonly from: 0 | 1 | undefined;
  /** Probability, 0 to 1. */
  readonly rate: number;
  /** Column name of the opcode in small letters. */
  readonly opcode: string | undefined;
  readonly nth: number | undefined;
  readonly ms: readonly [number, number];
  readonly by: number;
  readonly text: string;
}

/** Parse `KIND[,KEY=VALUE...]`. Throws ERR_INVALID_ARGUMENT. */
export function parseDatagramFault(text: string): DatagramFault {
  const wrong = (why: string): IwarpError =>
    new IwarpError('ERR_INVALID_ARGUMENT', `--fault ${JSON.stringify(text)}: ${why}`);
  const [name, ...pairs] = text.split(',');
  const kind = KINDS.find((one) => one === name);
  if (kind === undefined) throw wrong(`the kind must be one of ${KINDS.join(', ')}`);
  const fields = new Map<string, string>();
  for (const pair of pairs) {
    const [key = '', value = ''] = pair.split('=');
    if (!KEYS.has(key) || value === '') throw wrong(`${JSON.stringify(pair)} is not KEY=VALUE`);
    if (fields.has(key)) throw wrong(`${key} is given twice`);
    fields.set(key, value);
  }
  const number = (key: string, normal: number, from: number, to: number): number => {
    const value = Number(fields.get(key)?.replace(/%$/, '') ?? normal);
    if (!(value >= from && value <= to)) throw wrong(`${key} takes a number from ${from} to ${to}`);
    return value;
  };
  const from = fields.get('from');
  if (from !== undefined && from !== 'client' && from !== 'server')
    throw wrong('from takes client or server');
  const range = (fields.get('ms') ?? '100').split('..').map(Number);
  const [low = Number.NaN, high = low] = range;
  if (!(low >= 0 && low <= high && high <= MAX_MS) || range.length > 2)
    throw wrong(`ms takes a number up to ${MAX_MS} or a range A..B`);
  return {
    kind,
    from: from === undefined ? undefined : from === 'client' ? 0 : 1,
    rate: number('rate', 100, 0, 100) / 100,
    opcode: fields.get('opcode')?.toLowerCase(),
    nth: fields.has('nth') ? number('nth', 1, 1, 0xffff_ffff) : undefined,
    ms: [low, high],
    by: number('by', 1, 1, 10_000),
    text,
  };
}

/** The fate that the script chooses for a datagram. */
interface Fate {
  readonly copies: number;
  /** Milliseconds to hold each copy. */
  readonly ms: number;
  /** Datagrams of the direction that pass first; 0 for none. */
  readonly behind: number;
  /** The faults that strike. */
  readonly struck: readonly DatagramFault[];
}

/** The script at work over all connections: draws, and counts what it names. */
export class DatagramScript {
  readonly #faults: readonly DatagramFault[];
  readonly #random: RandomU32;
  readonly #seen: number[];
  readonly #struck: number[];

  constructor(faults: readonly DatagramFault[], seed: number) {
    this.#faults = faults;
    this.#random = seededRandom(seed);
    this.#seen = faults.map(() => 0);
    this.#struck = faults.map(() => 0);
  }

  /** Each fault with how often it has struck. */
  get counts(): readonly { readonly text: string; readonly struck: number }[] {
    return this.#faults.map(({ text }, i) => ({ text, struck: this.#struck[i]! }));
  }

  #draw(): number {
    return this.#random() / 0x1_0000_0000;
  }

  decide(event: InspectEvent): Fate {
    const name = nameOf(event);
    let [copies, ms, behind] = [1, 0, 0];
    const struck: DatagramFault[] = [];
    this.#faults.forEach((fault, i) => {
      if (fault.from !== undefined && fault.from !== event.direction) return;
      if (fault.opcode !== undefined && fault.opcode !== name) return;
      const nth = ++this.#seen[i]!;
      if (fault.nth !== undefined && fault.nth !== nth) return;
      if (fault.rate < 1 && this.#draw() >= fault.rate) return;
      this.#struck[i]!++;
      struck.push(fault);
      const [low, high] = fault.ms;
      const wait = low === high ? low : low + Math.floor(this.#draw() * (high - low + 1));
      if (fault.kind === 'drop') copies = 0;
      else if (fault.kind === 'duplicate') copies = copies === 0 ? 0 : 2;
      else ms = Math.max(ms, wait);
      if (fault.kind === 'reorder') behind = Math.max(behind, fault.by);
    });
    return { copies, ms, behind, struck };
  }
}

function nameOf(event: InspectEvent): string {
  if (event.kind === 'note') return 'malformed';
  const name = shortName(event.opcode).replace('TRP ', '').toLowerCase();
  return SET_UP[event.opcode] ?? name;
}
