/** Rules of `iwarp/preload`: which connections and listeners of a program run over RDMA. */
import { readFileSync } from 'node:fs';
import { BlockList, isIP } from 'node:net';
import { IwarpError, show } from '../base/errors.ts';

/** What a connection runs over. */
const PRELOAD_PROTOCOLS = ['rsocket', 'sdp', 'tcp'] as const satisfies readonly PreloadProtocol[];
/** One of them. */
/** What the connections of a rule run over. */
export type PreloadProtocol = 'rsocket' | 'sdp' | 'tcp';

/** One rule: `[connect|listen] HOST:PORT PROTOCOL [only]`. */
export interface Rule {
  /** The side that the rule is for; null for both. */
  readonly side: 'connect' | 'listen' | null;
  /** Whether this host and port fall under it. */
  matches(host: string, port: number): boolean;
  /** Whether the rule names addresses, so that names have to be looked up. */
  readonly byAddress: boolean;
  /** What connections under it run over. */
  readonly protocol: PreloadProtocol;
  /** No fall-back to TCP. */
  readonly only: boolean;
}

const WORDS = /^(?:(?<side>connect|listen)\s+)?(?<place>\S+)\s+(?<protocol>\S+)(?:\s+(?<only>only))?$/;
const PLACE = /^(?<host>\[[^\]]+\](?:\/\d+)?|[^:[\]]+):(?<port>\*|\d+(?:-\d+)?)$/;
const LOCAL: Readonly<Record<string, string>> = { localhost: '127.0.0.1' };

/**
 * The rules of a text: one in a line, or separated by semicolons; `#` begins a comment. The first match
 * counts.
 *
 * @throws ERR_INVALID_ARGUMENT with the rule that cannot be read
 */
export function parseRules(text: string, where: string): readonly Rule[] {
  return text
    .split(/[;\n]/)
    .map((line) => line.replace(/#.*/, '').trim())
    .filter((line) => line !== '')
    .map((line) => parseRule(line, where));
}

function parseRule(line: string, where: string): Rule {
  const wrong = (why: string): IwarpError =>
    new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${where}: ${show(line)}: ${why}; a rule is [connect|listen] HOST:PORT rsocket|sdp|tcp [only], where ` +
        'HOST is a name, an address, ADDRESS/BITS or *, and PORT a number, A-B or *',
    );
  const words = WORDS.exec(line)?.groups;
  if (words === undefined) throw wrong('it has not two to four words');
  const protocol = PRELOAD_PROTOCOLS.find((name) => name === words['protocol']);
  if (protocol === undefined) throw wrong(`${words['protocol']} is no protocol`);
  const place = PLACE.exec(words['place']!)?.groups;
  if (place === undefined) throw wrong(`${words['place']} is not HOST:PORT`);
  const [from, to = from] = place['port'] === '*' ? [0, 65_535] : place['port']!.split('-').map(Number);
  if (!(from! <= to! && to! <= 65_535)) throw wrong(`${place['port']} is no port`);
  const { matches, byAddress } = hostMatcher(place['host']!.replace(/[[\]]/g, ''), wrong);
  return {
    side: (words['side'] as 'connect' | 'listen' | undefined) ?? null,
    matches: (host, port) => port >= from! && port <= to! && matches(host),
    byAddress,
    protocol,
    only: words['only'] !== undefined,
  };
}

function hostMatcher(
  host: string,
  wrong: (why: string) => IwarpError,
): { matches(host: string): boolean; byAddress: boolean } {
  if (host === '*') return { matches: () => true, byAddress: false };
  const [address, bits] = host.split('/') as [string, string?];
  const version = isIP(address);
  if (version === 0) {
    if (bits !== undefined) throw wrong(`${host} is no network`);
    return { matches: (asked) => asked.toLowerCase() === host.toLowerCase(), byAddress: false };
  }
  const length = bits === undefined ? (version === 4 ? 32 : 128) : Number(bits);
  if (!(length <= (version === 4 ? 32 : 128))) throw wrong(`${host} is no network`);
  const list = new BlockList();
  list.addSubnet(address, length, version === 4 ? 'ipv4' : 'ipv6');
  return {
    matches: (asked) => {
      const at = LOCAL[asked] ?? asked;
      const kind = isIP(at);
      return kind !== 0 && list.check(at, kind === 4 ? 'ipv4' : 'ipv6');
    },
    byAddress: true,
  };
}

/** The first rule that holds, or null. */
export function ruleFor(
  rules: readonly Rule[],
  side: 'connect' | 'listen',
  host: string,
  port: number,
): Rule | null {
  return rules.find((rule) => (rule.side ?? side) === side && rule.matches(host, port)) ?? null;
}

/**
 * The rules of IWARP_PRELOAD, and behind them those of the file that IWARP_PRELOAD_FILE names.
 *
 * @throws ERR_INVALID_ARGUMENT
 */
export function rulesOf(environment: Readonly<Record<string, string | undefined>>): readonly Rule[] {
  const { IWARP_PRELOAD: text = '', IWARP_PRELOAD_FILE: file } = environment;
  const rules = [...parseRules(text, 'IWARP_PRELOAD')];
  if (file !== undefined && file !== '') {
    let read: string;
    try {
      read = readFileSync(file, 'utf8');
    } catch (cause) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `IWARP_PRELOAD_FILE: cannot read ${show(file)}`, {
        cause,
      });
    }
    rules.push(...parseRules(read, file));
  }
  return rules;
}
