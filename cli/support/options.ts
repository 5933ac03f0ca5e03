/**
 * Command lines in the manner of getopt_long, which stock tools use: short options in clusters, values glued
 * or apart, long options with `=` or apart, abbreviations of long names, `--` as the end of options. Mistakes
 * are reported in getopt's words.
 */
import { checkOneOf } from '../../src/base/errors.ts';
import { isIpAddress } from '../../src/transport/ip-address.ts';
import { nearest } from './nearest.ts';
import { numberFlag, POLICY_OPTIONS } from './policy-flags.ts';

/** A long option: whether it takes a value, and the short option it stands for. */
export interface LongOption {
  readonly value?: boolean;
  readonly short?: string;
}

/** The command line is wrong; the message is what getopt would print after the program's name. */
export class UsageError extends Error {}

/**
 * The parsed command line: options by short letter, or by name where they have none, and the other words.
 */
export interface ParsedOptions {
  readonly flags: ReadonlyMap<string, string | true>;
  /** Policy options, in the shape that `policyFromFlags` takes. */
  readonly policy: Readonly<Record<string, string | boolean>>;
  readonly rest: readonly string[];
}

/** Options of every tool here, beyond stock ones. */
const COMMON: Readonly<Record<string, LongOption>> = {
  pcap: { value: true },
  timeout: { value: true },
  unix: { value: true },
  wire: { value: true },
};

const DEFAULT_TIMEOUT_S = 60;
/** In milliseconds still a number that timers take. */
const MAX_TIMEOUT_S = 1_000_000;

/**
 * Milliseconds of silence after which a peer is given up; 0 never. @throws IwarpError ERR_INVALID_ARGUMENT
 */
export function patience(options: ParsedOptions): number {
  const seconds = textOption(options, 'timeout');
  return (
    (seconds === undefined ? DEFAULT_TIMEOUT_S : numberFlag('--timeout', seconds, 0, MAX_TIMEOUT_S)) * 1000
  );
}

/** The wire of `--wire`. @throws IwarpError ERR_INVALID_ARGUMENT */
export function wireOption(options: ParsedOptions): 'iwarp' | 'trp' {
  return checkOneOf('--wire', (textOption(options, 'wire') ?? 'iwarp') as 'iwarp', ['iwarp', 'trp']);
}

/** The options of every tool, for usage texts. */
export const COMMON_USAGE = `
options that the stock tool does not have:
  --pcap FILE              write a capture of the connections
  --timeout SECONDS        give up when the peer is silent for this long; 0: never (60)
  --unix PATH              a Unix socket in place of TCP, on both sides; addresses and ports mean nothing then
  --wire WIRE              iwarp (default), or trp: iWARP over UDP, on both sides
`;

/**
 * Parse `args`. `shorts` is a getopt string: letters, a colon after those that take a value.
 *
 * @throws UsageError
 */
export function parseOptions(
  args: readonly string[],
  shorts: string,
  longs: Readonly<Record<string, LongOption>> = {},
): ParsedOptions {
  const flags = new Map<string, string | true>();
  const policy: Record<string, string | boolean> = {};
  const rest: string[] = [];
  const known = { ...COMMON, ...longs };
  for (let i = 0; i < args.length; i++) {
    const arg = args[i]!;
    if (arg === '--') {
      rest.push(...args.slice(i + 1));
      break;
    }
    if (arg.startsWith('--')) {
      const taken = takeLong(arg, args[i + 1], known, flags, policy);
      if (taken) i++;
    } else if (arg.startsWith('-') && arg.length > 1) {
      if (takeShorts(arg.slice(1), args[i + 1], shorts, flags)) i++;
    } else {
      rest.push(arg);
    }
  }
  return { flags, policy, rest };
}

/** One cluster of short options; true if it used the next word. */
function takeShorts(
  cluster: string,
  next: string | undefined,
  shorts: string,
  flags: Map<string, string | true>,
): boolean {
  for (let at = 0; at < cluster.length; at++) {
    const letter = cluster[at]!;
    const where = letter === ':' ? -1 : shorts.indexOf(letter);
    if (where < 0) throw new UsageError(`invalid option -- '${letter}'`);
    if (shorts[where + 1] !== ':') {
      flags.set(letter, true);
      continue;
    }
    const glued = cluster.slice(at + 1);
    if (glued.length > 0) {
      flags.set(letter, glued);
      return false;
    }
    if (next === undefined) throw new UsageError(`option requires an argument -- '${letter}'`);
    flags.set(letter, next);
    return true;
  }
  return false;
}

/** One long option; true if it used the next word. */
function takeLong(
  arg: string,
  next: string | undefined,
  known: Readonly<Record<string, LongOption>>,
  flags: Map<string, string | true>,
  policy: Record<string, string | boolean>,
): boolean {
  const equals = arg.indexOf('=');
  const word = arg.slice(2, equals < 0 ? undefined : equals);
  const glued = equals < 0 ? undefined : arg.slice(equals + 1);
  const negative = word.startsWith('no-') ? POLICY_OPTIONS[word.slice(3)] : undefined;
  if (negative?.type === 'boolean') {
    policy[word.slice(3)] = false;
    return false;
  }
  const name = resolveName(word, [...Object.keys(known), ...Object.keys(POLICY_OPTIONS)], known);
  const option = known[name];
  const takesValue = option === undefined ? POLICY_OPTIONS[name]!.type === 'string' : option.value === true;
  if (!takesValue && glued !== undefined)
    throw new UsageError(`option '--${name}' doesn't allow an argument`);
  const value = takesValue ? (glued ?? next) : true;
  if (value === undefined) throw new UsageError(`option '--${name}' requires an argument`);
  if (option === undefined) policy[name] = value;
  else flags.set(option.short ?? name, value);
  return takesValue && glued === undefined;
}

function resolveName(
  word: string,
  names: readonly string[],
  known: Readonly<Record<string, LongOption>>,
): string {
  if (names.includes(word)) return word;
  const candidates = names.filter((name) => name.startsWith(word));
  // Two spellings of one option are no ambiguity.
  const shorts = new Set(candidates.map((name) => known[name]?.short ?? name));
  if (shorts.size === 1) return candidates[0]!;
  if (candidates.length === 0) {
    const near = nearest(word, names);
    throw new UsageError(
      `unrecognized option '--${word}'${near === undefined ? '' : `; did you mean '--${near}'?`}`,
    );
  }
  throw new UsageError(
    `option '--${word}' is ambiguous; possibilities: ${candidates.map((name) => `'--${name}'`).join(' ')}`,
  );
}

/**
 * A whole number as C's atoi reads it, bounded: leading digits count, anything else is 0. The stock tools
 * take their numbers so.
 */
export function atoi(text: string): number {
  const match = /^\s*([+-]?\d{1,15})/.exec(text);
  return match === null ? 0 : Number(match[1]);
}

/**
 * A whole number as C's strtol reads it with base 0: `0x` begins a hexadecimal number, another leading 0 an
 * octal one. Leading digits count, anything else is 0.
 */
export function strtol(text: string): number {
  const match = /^\s*([+-]?)(?:0x([\da-f]{1,12})|(0[0-7]{0,15})|([1-9]\d{0,14}))/i.exec(text);
  if (match === null) return 0;
  const [, sign, hexadecimal, octal, decimal] = match;
  const value =
    hexadecimal !== undefined
      ? Number.parseInt(hexadecimal, 16)
      : octal !== undefined
        ? Number.parseInt(octal, 8)
        : Number(decimal);
  return sign === '-' ? -value : value;
}

/** The value of an option as a whole number in a range. @throws UsageError */
function numberOption(
  options: ParsedOptions,
  flag: string,
  fallback: number,
  min: number,
  max: number,
): number {
  const value = options.flags.get(flag);
  if (value === undefined) return fallback;
  const number = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
  if (number >= min && number <= max) return number;
  throw new UsageError(
    `${dashed(flag)} must be a whole number from ${min} to ${max}, got '${String(value)}'`,
  );
}

/**
 * The port of `-p`: a client cannot connect to 0, for a listener the system picks one. @throws UsageError
 */
export function portOption(options: ParsedOptions, fallback: number, role: 'connect' | 'listen'): number {
  return numberOption(options, 'p', fallback, role === 'connect' ? 1 : 0, 65_535);
}

/** The value of an option as a host name or address. @throws UsageError */
export function hostOption(options: ParsedOptions, flag: string): string | undefined {
  const host = textOption(options, flag);
  if (host !== '') return host;
  throw new UsageError(`${dashed(flag)} must be a host name or address, got ''`);
}

/** The value of an option as an IP address. @throws UsageError */
export function addressOption(options: ParsedOptions, flag: string): string | undefined {
  const address = textOption(options, flag);
  if (address === undefined || isIpAddress(address)) return address;
  throw new UsageError(`${dashed(flag)} must be an IP address, got '${address}'`);
}

function dashed(flag: string): string {
  return flag.length > 1 ? `--${flag}` : `-${flag}`;
}

/** The value of an option as text. */
export function textOption(options: ParsedOptions, flag: string): string | undefined {
  const value = options.flags.get(flag);
  return typeof value === 'string' ? value : undefined;
}
