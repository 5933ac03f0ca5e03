/**
 * IP addresses in text form, and as bytes.
 *
 * Read first: RFC 4291 sections 2.2 (text) and 2.5.5.2 (IPv4-mapped addresses).
 */

const IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;
const GROUP = /^[0-9A-Fa-f]{1,4}$/;
const ZONE = /^[\w.:-]+$/;
const GROUPS = 8;

/** 4 or 6 for an address of that version in text form, 0 for any other text, as `isIP` of node:net. */
export function isIP(text: string): 0 | 4 | 6 {
  if (IPV4.test(text)) return 4;
  const zone = text.indexOf('%');
  if (zone >= 0 && !ZONE.test(text.slice(zone + 1))) return 0;
  return isIPv6(zone < 0 ? text : text.slice(0, zone)) ? 6 : 0;
}

function isIPv6(text: string): boolean {
  const halves = text.split('::');
  if (halves.length > 2) return false;
  const parts = halves.map((half) => (half === '' ? [] : half.split(':')));
  const last = parts.at(-1)!.at(-1);
  let count = parts[0]!.length + (parts[1]?.length ?? 0);
  if (last?.includes('.') === true) {
    if (!IPV4.test(last)) return false;
    parts.at(-1)!.pop();
    count++;
  }
  if (halves.length === 1 ? count !== GROUPS : count >= GROUPS) return false;
  return parts.flat().every((group) => GROUP.test(group));
}

/** Whether `text` is an IPv4 or IPv6 address, the latter with or without a zone. */
export function isIpAddress(text: string): boolean {
  return isIP(text) !== 0;
}

/**
 * The 4 or 16 bytes of an address in text form, without a zone; a mapped IPv4 address gives 4. Undefined if
 * it is none.
 */
export function ipOctets(text: string): Uint8Array | undefined {
  const address = text.split('%')[0] ?? text;
  switch (isIP(address)) {
    case 4:
      return Uint8Array.from(address.split('.'), Number);
    case 6:
      return unmapped(ipv6Octets(address));
    default:
      return undefined;
  }
}

/** An IPv4 address as IPv6 carries it; an IPv6 address as it is. */
export function mappedIpv6(octets: Uint8Array): Uint8Array {
  if (octets.length === 16) return octets;
  const mapped = new Uint8Array(16);
  mapped.fill(0xff, 10, 12);
  mapped.set(octets, 12);
  return mapped;
}

function unmapped(octets: Uint8Array): Uint8Array {
  const prefix =
    octets.subarray(0, 10).every((octet) => octet === 0) && octets[10] === 0xff && octets[11] === 0xff;
  return prefix ? octets.slice(12) : octets;
}

function ipv6Octets(address: string): Uint8Array {
  const [front = '', back] = address.split('::');
  const head = groups(front);
  const tail = back === undefined ? [] : groups(back);
  const octets = new Uint8Array(16);
  octets.set(head);
  octets.set(tail, 16 - tail.length);
  return octets;
}

function groups(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (group.includes('.')) return group.split('.').map(Number);
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}
