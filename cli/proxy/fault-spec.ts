/**
 * Scripted faults of `iwarp proxy`: the text and JSON forms, and how a script becomes the faults of one
 * connection. Numbers may be ranges, drawn for each connection from the seed, so that the same seed breaks
 * the same things again.
 */
import { readFileSync } from 'node:fs';
import { IwarpError } from '../../src/base/errors.ts';
import { seededRandom, type RandomU32 } from '../../src/base/random.ts';
import { createFilter, type EventFilter } from '../../src/inspect/render/filter.ts';

export const FAULT_USAGE = `faults: KIND[,KEY=VALUE...]
  A number may be a range A..B, from which the seed draws one for each connection.
  delay                    the byte and all that follow pass MS later
  stall                    the byte and all that follow do not pass
  cut                      as stall, with a FIN in their place
  reset                    the connection is reset at both ends
  flip                     BIT of the byte is inverted
  drop, duplicate          the FPDU does not pass, or passes twice
  reorder                  the FPDU passes after the BY FPDUs that follow it, or after MS if they do not come
  any                      one of these, drawn from the seed
  from=client|server       the sender of the bytes (client)
  at=N                     place: byte N of the stream, start-up frame included, counted from 0
  fpdu=N                   place: FPDU N, counted from 1; 0 is the start-up frame
  opcode=NAME, stag=HEX    place: count only FPDUs of this opcode, or that name this STag;
                           with fpdu=N the Nth of them
  byte=N                   which byte of the FPDU, from the first of ULPDU_Length,
                           or if negative from its end (0)
  bit=N, ms=N, by=N        as above (0, 1000, 1)
  crc=fix                  flip: correct the CRC afterwards, so that the layers above MPA meet the fault
  connection=N             only in the Nth connection
`;

type Side = 'client' | 'server';
export type FaultKind = 'delay' | 'stall' | 'cut' | 'reset' | 'flip' | 'drop' | 'duplicate' | 'reorder';

const KINDS: readonly FaultKind[] = [
  'delay',
  'stall',
  'cut',
  'reset',
  'flip',
  'drop',
  'duplicate',
  'reorder',
];
/** Kinds that need a whole FPDU. */
const WHOLE: ReadonlySet<FaultKind> = new Set(['drop', 'duplicate', 'reorder']);

type Range = readonly [number, number];

/** One line of the script. */
export interface FaultSpec {
  readonly kind: FaultKind | 'any';
  readonly from: Side | undefined;
  readonly at: Range | undefined;
  readonly fpdu: Range | undefined;
  readonly opcode: string | undefined;
  readonly stag: string | undefined;
  readonly octet: Range | undefined;
  readonly bit: Range;
  readonly ms: Range;
  readonly by: Range;
  readonly fixCrc: boolean;
  readonly connection: number | undefined;
}

/**
 * Where a fault strikes: an octet of the stream, or the `nth` FPDU that the filter accepts (0: the start-up
 * frame) and an octet of it.
 */
type Place =
  | { readonly unit: 'octet'; readonly at: number }
  | {
      readonly unit: 'fpdu';
      readonly nth: number;
      readonly filter: EventFilter | undefined;
      readonly octet: number;
    };

/** A fault of one connection: everything drawn. */
export interface Fault {
  readonly kind: FaultKind;
  readonly from: Side;
  readonly place: Place;
  readonly bit: number;
  readonly ms: number;
  readonly by: number;
  readonly fixCrc: boolean;
  /** The fault in the words of the script, its draws made. */
  readonly text: string;
}

const KEYS: ReadonlySet<string> = new Set([
  'from',
  'at',
  'fpdu',
  'opcode',
  'stag',
  'byte',
  'bit',
  'ms',
  'by',
  'crc',
  'connection',
]);
/** Keys that only some kinds take. */
const OWN_KEYS: Readonly<Record<string, readonly FaultKind[]>> = {
  byte: ['delay', 'stall', 'cut', 'reset', 'flip'],
  bit: ['flip'],
  crc: ['flip'],
  ms: ['delay', 'reorder'],
  by: ['reorder'],
};

const LAST_OCTET: Range = [0, Number.MAX_SAFE_INTEGER];
const LAST_FPDU: Range = [0, 0xffff_ffff];
const IN_FPDU: Range = [-0x2_0000, 0x2_0000];
const MAX_MS = 3_600_000;
/**
 * The ranges that `any` draws from where the script gives none: the first FPDUs, their headers and the octets
 * after them.
 */
const ANY_FPDU: Range = [0, 16];
const ANY_OCTET: Range = [0, 63];
/** A script is written by a person; this many lines are a mistake. */
const MAX_FAULTS = 10_000;

/** Parse `KIND[,KEY=VALUE...]`. Throws ERR_INVALID_ARGUMENT. */
export function parseFault(text: string): FaultSpec {
  const [kind = '', ...pairs] = text.split(',');
  const fields = noFields();
  fields['kind'] = kind;
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    if (equals < 1) throw wrong(text, `${JSON.stringify(pair)} is not KEY=VALUE`);
    const key = keyOf(pair.slice(0, equals).trim());
    if (key in fields) throw wrong(text, `${key} is given twice`);
    fields[key] = pair.slice(equals + 1).trim();
  }
  return specOf(fields, text);
}

/**
 * Read a script: a JSON list of faults, or an object with such a list as `faults` and perhaps a `seed`.
 * Throws ERR_INVALID_ARGUMENT.
 */
export function readFaults(path: string): { faults: FaultSpec[]; seed: number | undefined } {
  let script: unknown;
  try {
    script = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `--faults ${path}: ${(error as Error).message}`, {
      cause: error,
    });
  }
  const { faults, seed } = (Array.isArray(script) ? { faults: script } : (script ?? {})) as {
    faults?: unknown;
    seed?: unknown;
  };
  if (!Array.isArray(faults) || faults.length > MAX_FAULTS) throw wrong(path, 'a list of faults is needed');
  if (seed !== undefined && !Number.isInteger(seed)) throw wrong(path, 'seed must be a whole number');
  return {
    faults: faults.map((fault, i) => fromJson(fault, `${path}: fault ${i + 1}`)),
    seed: seed as number | undefined,
  };
}

function fromJson(fault: unknown, where: string): FaultSpec {
  if (typeof fault === 'string') return parseFault(fault);
  if (typeof fault !== 'object' || fault === null) throw wrong(where, 'neither an object nor a text');
  const fields = noFields();
  for (const [key, value] of Object.entries(fault)) {
    if (typeof value !== 'string' && typeof value !== 'number')
      throw wrong(where, `${key} is neither a text nor a number`);
    if (keyOf(key) in fields) throw wrong(where, `${keyOf(key)} is given twice`);
    fields[keyOf(key)] = String(value);
  }
  return specOf(fields, where);
}

/** The key, under its present name where the script has the former one. */
function keyOf(word: string): string {
  return word === 'octet' ? 'byte' : word;
}

/** Keys come from the script: without a prototype no key is there before it is given. */
function noFields(): Record<string, string> {
  return Object.create(null) as Record<string, string>;
}

function specOf(fields: Readonly<Record<string, string>>, where: string): FaultSpec {
  const kind = fields['kind'] as FaultKind | 'any' | undefined;
  if (kind === undefined || (kind !== 'any' && !KINDS.includes(kind)))
    throw wrong(where, `the kind must be one of ${KINDS.join(', ')}, any`);
  checkKeys(fields, kind, where);
  const { from, crc, connection, opcode, stag } = fields;
  if (from !== undefined && from !== 'client' && from !== 'server')
    throw wrong(where, 'from must be client or server');
  if (crc !== undefined && crc !== 'fix') throw wrong(where, 'crc takes the value fix');
  const number = (key: string, limits: Range): Range | undefined => rangeOf(fields[key], key, limits, where);
  const at = number('at', LAST_OCTET);
  const fpdu = number('fpdu', LAST_FPDU);
  const anyFpdu = fpdu !== undefined || opcode !== undefined || stag !== undefined;
  if (at !== undefined && (anyFpdu || fields['byte'] !== undefined))
    throw wrong(where, 'at excludes fpdu, opcode, stag and byte');
  if (at !== undefined && kind !== 'any' && WHOLE.has(kind))
    throw wrong(where, `${kind} needs fpdu, opcode or stag`);
  if (at === undefined && !anyFpdu && kind !== 'any')
    throw wrong(where, 'the place is missing: at, fpdu, opcode or stag');
  if ((opcode !== undefined || stag !== undefined) && fpdu?.[0] === 0)
    throw wrong(where, 'fpdu counts from 1 with opcode or stag');
  if (connection?.includes('..') === true) throw wrong(where, 'connection takes one number');
  filterOf(opcode, stag);
  return {
    kind,
    from: from ?? (kind === 'any' ? undefined : 'client'),
    at,
    fpdu,
    opcode,
    stag,
    octet: number('byte', IN_FPDU),
    bit: number('bit', [0, 7]) ?? (kind === 'any' ? [0, 7] : [0, 0]),
    ms: number('ms', [0, MAX_MS]) ?? [1000, 1000],
    by: number('by', [1, 1000]) ?? [1, 1],
    fixCrc: crc === 'fix',
    connection: number('connection', [1, 0xffff_ffff])?.[0],
  };
}

function checkKeys(fields: Readonly<Record<string, string>>, kind: FaultKind | 'any', where: string): void {
  for (const key of Object.keys(fields)) {
    if (key === 'kind') continue;
    if (!KEYS.has(key)) throw wrong(where, `there is no key ${JSON.stringify(key)}`);
    if (kind !== 'any' && OWN_KEYS[key]?.includes(kind) === false)
      throw wrong(where, `${kind} takes no ${key}`);
  }
}

function rangeOf(text: string | undefined, key: string, [min, max]: Range, where: string): Range | undefined {
  if (text === undefined) return undefined;
  const match = /^(-?\d{1,16})(?:\.\.(-?\d{1,16}))?$/.exec(text);
  const first = Number(match?.[1] ?? Number.NaN);
  const last = Number(match?.[2] ?? first);
  if (!(first >= min && first <= last && last <= max))
    throw wrong(where, `${key} must be a number or a range from ${min} to ${max}, got ${text}`);
  return [first, last];
}

function filterOf(opcode: string | undefined, stag: string | undefined): EventFilter | undefined {
  if (opcode === undefined && stag === undefined) return undefined;
  return createFilter({
    connections: [],
    opcodes: opcode === undefined ? [] : [opcode],
    stags: stag === undefined ? [] : [stag],
    errorsOnly: false,
  });
}

function wrong(where: string, what: string): IwarpError {
  return new IwarpError('ERR_INVALID_ARGUMENT', `fault ${where}: ${what}`);
}

/** The faults of connection `number`, counted from 1. */
export function planFaults(specs: readonly FaultSpec[], seed: number, number: number): Fault[] {
  // Every connection draws differently, and the draws of one do not depend on what other connections did.
  const random = seededRandom(seed + number - 1);
  return specs
    .map((spec) => ({ spec, fault: draw(spec, random) }))
    .filter(({ spec }) => spec.connection === undefined || spec.connection === number)
    .map(({ fault }) => fault);
}

function draw(spec: FaultSpec, random: RandomU32): Fault {
  const within = ([first, last]: Range): number =>
    first === last ? first : first + (random() % (last - first + 1));
  const pick = <T>(choices: readonly T[]): T => choices[random() % choices.length]!;
  const kind =
    spec.kind === 'any'
      ? pick(spec.at === undefined ? KINDS : KINDS.filter((one) => !WHOLE.has(one)))
      : spec.kind;
  const from = spec.from ?? pick(['client', 'server'] as const);
  const counted = spec.opcode !== undefined || spec.stag !== undefined;
  const place: Place =
    spec.at !== undefined
      ? { unit: 'octet', at: within(spec.at) }
      : {
          unit: 'fpdu',
          filter: filterOf(spec.opcode, spec.stag),
          nth: within(spec.fpdu ?? (counted ? [1, 1] : ANY_FPDU)),
          octet: within(spec.octet ?? (spec.kind === 'any' ? ANY_OCTET : [0, 0])),
        };
  const numbers = { bit: within(spec.bit), ms: within(spec.ms), by: within(spec.by) };
  return {
    kind,
    from,
    place,
    ...numbers,
    fixCrc: spec.fixCrc,
    text: faultText(spec, kind, from, place, numbers),
  };
}

function faultText(
  spec: FaultSpec,
  kind: FaultKind,
  from: Side,
  place: Place,
  numbers: { bit: number; ms: number; by: number },
): string {
  const takes = (key: string): boolean => OWN_KEYS[key]!.includes(kind);
  const parts: string[] = [kind, `from=${from}`];
  if (spec.opcode !== undefined) parts.push(`opcode=${spec.opcode}`);
  if (spec.stag !== undefined) parts.push(`stag=${spec.stag}`);
  if (place.unit === 'octet') parts.push(`at=${place.at}`);
  else parts.push(`fpdu=${place.nth}`, ...(takes('byte') ? [`byte=${place.octet}`] : []));
  for (const key of ['bit', 'ms', 'by'] as const) if (takes(key)) parts.push(`${key}=${numbers[key]}`);
  if (spec.fixCrc && kind === 'flip') parts.push('crc=fix');
  return parts.join(',');
}
