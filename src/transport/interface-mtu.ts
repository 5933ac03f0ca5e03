/**
 * MTU of the interface that has a local address, where the operating system gives it without privileges or a
 * helper: on Linux, in sysfs. Read first: RFC 5044 5.1 (why the size of a TCP segment matters to FPDUs).
 */
import { performance } from 'node:perf_hooks';
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';

/** Interfaces change rarely, connections come by the thousand: an answer is good for this long, ms. */
const KEEP_MS = 10_000;

const kept = new Map<string, { readonly mtu: number | undefined; readonly until: number }>();

/** The MTU, bytes; undefined where it cannot be known. */
export function interfaceMtu(address: string): number | undefined {
  const now = performance.now();
  const known = kept.get(address);
  if (known !== undefined && known.until > now) return known.mtu;
  const mtu = process.platform === 'linux' ? readMtu(address) : undefined;
  if (kept.size >= 64) kept.clear();
  kept.set(address, { mtu, until: now + KEEP_MS });
  return mtu;
}

function interfaceOf(address: string): string | undefined {
  const plain = address.replace(/^::ffff:(?=[\d.]+$)/, '').split('%')[0];
  return Object.entries(networkInterfaces()).find(([, list]) =>
    list?.some((one) => one.address === plain),
  )?.[0];
}

function readMtu(address: string): number | undefined {
  try {
    const name = interfaceOf(address);
    if (name === undefined) return undefined;
    const mtu = Number(readFileSync(`/sys/class/net/${name}/mtu`, 'latin1'));
    return Number.isInteger(mtu) && mtu > 0 ? mtu : undefined;
  } catch {
    return undefined; // no sysfs in this container, or a sandbox that hides the interfaces
  }
}
