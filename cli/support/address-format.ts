/** `-f` of ucmatose, rstream and riostream: how their addresses are written, as librdmacm's hints take it. */
import { isIpAddress } from '../../src/transport/ip-address.ts';
import { textOption, UsageError, type ParsedOptions } from './options.ts';

/**
 * `name` looks names up, `ip` and `ipv6` take addresses only; the first letters decide, in any case. Any
 * other word gets the stock tools' warning and has no effect.
 *
 * @throws UsageError for a form that iWARP does not have, and for an address of the other form
 */
export function checkAddressFormat(options: ParsedOptions, warn: (line: string) => void): void {
  const format = textOption(options, 'f')?.toLowerCase();
  if (format === undefined || format.startsWith('name')) return;
  if (format.startsWith('gid'))
    throw new UsageError('-f gid: there are no GIDs over iWARP; use name, ip or ipv6');
  if (!format.startsWith('ip')) {
    warn('Warning: unknown address format');
    return;
  }
  for (const flag of ['s', 'b']) {
    const address = textOption(options, flag);
    if (address !== undefined && !isIpAddress(address))
      throw new UsageError(`-f ${format} takes addresses only, got -${flag} '${address}'`);
  }
}
