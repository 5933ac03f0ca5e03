/** The TCP segment size that FPDUs are fitted into: RFC 5044 5. */
import type { ConnectionPolicy } from './policy.ts';

/** Bytes of TCP header with the timestamp option, and of the IP header before it. */
const TCP_OCTETS = 32;
const IPV4_OCTETS = 20;
const IPV6_OCTETS = 40;
/** RFC 5044's own case, for interfaces whose MTU is not known. */
const ETHERNET_MTU = 1_500;
/** Over loopback a segment carries nearly 64 KiB whatever the headers; a Unix socket has no segments. */
const LOOPBACK_EMSS = 65_483;
/** An EMSS fits in 16 bits, and below this FPDUs have their smallest size all the same (MPA-080). */
const MAX_EMSS = 65_535;
const MIN_EMSS = 128;

/** The path that a connection takes, as far as its segment size depends on it. */
interface EmssPath {
  readonly localAddress: { readonly address: string; readonly family: string };
  readonly mtu?: number | undefined;
}

/**
 * TCP segment payload to fit FPDUs into (MPA-081): the policy's number, else the room that the interface's
 * MTU leaves. Hardware is quick only with one FPDU a segment.
 */
export function resolveEmss(policy: Pick<ConnectionPolicy, 'emss'>, path: EmssPath): number {
  if (policy.emss !== 'auto') return policy.emss;
  const { address, family } = path.localAddress;
  const mapped = address.startsWith('::ffff:');
  if (family === 'Unix' || address === '::1' || /^(::ffff:)?127\./.test(address)) return LOOPBACK_EMSS;
  const ip = family === 'IPv6' && !mapped ? IPV6_OCTETS : IPV4_OCTETS;
  return Math.max(MIN_EMSS, Math.min(MAX_EMSS, (path.mtu ?? ETHERNET_MTU) - ip - TCP_OCTETS));
}
