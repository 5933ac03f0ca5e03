/** The flags by which a tool sets a connection's policy, beyond what stock tools have. */
import type { ParseArgsConfig } from 'node:util';
import { checkOneOf, IwarpError } from '../../src/base/errors.ts';
import { CRC_POLICIES, resolvePolicy, type ConnectionPolicy } from '../../src/mpa/policy.ts';

type Options = NonNullable<ParseArgsConfig['options']>;

/** For `parseArgs`, with `allowNegative`: `--no-peer-to-peer` and the like work. */
export const POLICY_OPTIONS: Options = {
  markers: { type: 'boolean' },
  crc: { type: 'string' },
  'mpa-revision': { type: 'string' },
  'peer-to-peer': { type: 'boolean' },
  fpdu: { type: 'string' },
  relaxed: { type: 'boolean' },
  nudge: { type: 'string' },
};

export const POLICY_USAGE = `  --markers                ask the peer for MPA markers
  --crc WHEN               required, preferred (default) or off
  --mpa-revision N         0, 1 or 2 (default)
  --[no-]peer-to-peer      ask for (default), or do not ask for, an RTR message
  --fpdu BYTES             TCP segment payload that one FPDU has to fit
  --relaxed                as responder send before the peer's first FPDU
  --nudge MS               zero-length Write to a silent responder after this time, 0 for never (200)
`;

/** A whole number from a flag; ERR_INVALID_ARGUMENT names the flag. */
export function numberFlag(flag: string, value: string, min: number, max: number): number {
  const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
  if (!(number >= min && number <= max)) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${flag} must be a whole number from ${min} to ${max}, got ${JSON.stringify(value)}`,
    );
  }
  return number;
}

/** The policy that the parsed flags describe. */
export function policyFromFlags(values: Readonly<Record<string, unknown>>): ConnectionPolicy {
  const partial: Record<string, unknown> = {};
  if (values['markers'] !== undefined) partial['markers'] = values['markers'];
  if (values['crc'] !== undefined) partial['crc'] = checkOneOf('--crc', values['crc'], CRC_POLICIES);
  if (values['peer-to-peer'] !== undefined) partial['peerToPeer'] = values['peer-to-peer'];
  if (values['relaxed'] === true) partial['responder'] = 'relaxed';
  if (typeof values['mpa-revision'] === 'string')
    partial['mpaRevision'] = numberFlag('--mpa-revision', values['mpa-revision'], 0, 2);
  if (typeof values['fpdu'] === 'string') partial['emss'] = numberFlag('--fpdu', values['fpdu'], 64, 65_535);
  if (typeof values['nudge'] === 'string')
    partial['silentPeerNudge'] = numberFlag('--nudge', values['nudge'], 0, 3_600_000);
  return resolvePolicy(partial);
}
