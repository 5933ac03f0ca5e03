/**
 * Gathers the octets of scatter/gather lists for the sender. Verbs draft 8.1.2.
 */
import { copyBytes, copyOctets, type Octets } from '../base/copy.ts';
import type { SgeList } from './work.ts';

/**
 * The element that holds `octets` from `position` of the list on, all of them; -1 if they lie in more than
 * one.
 */
export function pieceWith(sges: SgeList, position: number, octets: number): number {
  let skip = position;
  let i = 0;
  while (skip >= sges.at(i).length) skip -= sges.at(i++).length;
  return sges.at(i).length - skip >= octets ? i : -1;
}

/** Number of elements in which `octets` from `position` of the list on lie. */
export function piecesAt(sges: SgeList, position: number, octets: number): number {
  let end = position + octets;
  let pieces = 0;
  let skip = position;
  for (let i = 0; end > 0; i++) {
    const { length } = sges.at(i);
    if (skip < length) pieces++;
    skip = Math.max(skip - length, 0);
    end -= length;
  }
  return pieces;
}

/** Octets of the list in front of element `i`. */
export function octetsBefore(sges: SgeList, i: number): number {
  let octets = 0;
  for (let k = 0; k < i; k++) octets += sges.at(k).length;
  return octets;
}

/** Copy `octets` from `position` of the list on, which is usable, to `target[at]`. */
export function gather(sges: SgeList, position: number, target: Octets, at: number, octets: number): void {
  let skip = position;
  let out = at;
  let left = octets;
  for (let i = 0; left > 0; i++) {
    const element = sges.at(i);
    const { length } = element;
    if (skip >= length) {
      skip -= length;
      continue;
    }
    const take = Math.min(length - skip, left);
    if (element.entry === null) copyBytes(element.bytes, element.offset + skip, target.bytes, out, take);
    else copyOctets(element.entry, element.offset + skip, target, out, take);
    out += take;
    left -= take;
    skip = 0;
  }
}
