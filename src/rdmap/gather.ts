/** Scatter/gather lists against octets in a row: gather for the sender, scatter for the receiver. Verbs draft 8.1.2. */
import { copyBytes, copyOctets, type Octets } from '../base/copy.ts';
import type { ReceiveWqe, SendWqe } from './work.ts';

/** True if the next `octets` lie in one element of the list; moves the cursor to it. */
export function inOnePiece(wqe: SendWqe, octets: number): boolean {
  const { sges } = wqe;
  while (wqe.sgeOffset === sges.at(wqe.sgeIndex).length) {
    wqe.sgeIndex++;
    wqe.sgeOffset = 0;
  }
  return sges.at(wqe.sgeIndex).length - wqe.sgeOffset >= octets;
}

/** Copy the next `octets` of the entry's scatter/gather list, which is usable, to `target[at]`, moving its cursor. */
export function gather(wqe: SendWqe, target: Octets, at: number, octets: number): void {
  const { sges } = wqe;
  let left = octets;
  let out = at;
  while (left > 0) {
    const element = sges.at(wqe.sgeIndex);
    const have = element.length - wqe.sgeOffset;
    if (have === 0) {
      wqe.sgeIndex++;
      wqe.sgeOffset = 0;
      continue;
    }
    const take = Math.min(have, left);
    if (element.entry === null) copyBytes(element.bytes, element.offset + wqe.sgeOffset, target.bytes, out, take);
    else copyOctets(element.entry, element.offset + wqe.sgeOffset, target, out, take);
    wqe.sgeOffset += take;
    out += take;
    left -= take;
  }
}

/** Copy `octets` into the receive's list, which is usable, at message offset `mo`. */
export function scatter(wqe: ReceiveWqe, source: Octets, at: number, mo: number, octets: number): void {
  const { sges } = wqe;
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
