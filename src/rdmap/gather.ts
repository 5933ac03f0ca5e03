/** Scatter/gather lists against octets in a row: gather for the sender, scatter for the receiver. Verbs draft 8.1.2. */
import { copyBytes, copyOctets, type Octets } from '../base/copy.ts';
import type { SgeList } from './work.ts';

/** The element that holds `octets` from `position` of the list on, all of them; -1 if they lie in more than one. */
export function pieceWith(sges: SgeList, position: number, octets: number): number {
  let skip = position;
  let i = 0;
  while (skip >= sges.at(i).length) skip -= sges.at(i++).length;
  return sges.at(i).length - skip >= octets ? i : -1;
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

/** Copy `octets` from `source[at]` to `mo` octets after the list's beginning, which is usable. */
export function scatter(sges: SgeList, source: Octets, at: number, mo: number, octets: number): void {
  let skip = mo;
  let from = at;
  let left = octets;
  for (let i = 0; i < sges.count && left > 0; i++) {
    const element = sges.at(i);
    const { length } = element;
    if (skip >= length) {
      skip -= length;
      continue;
    }
    const take = Math.min(length - skip, left);
    copyOctets(source, from, element.entry!, element.offset + skip, take);
    from += take;
    left -= take;
    skip = 0;
  }
}
