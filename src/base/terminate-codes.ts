/**
 * The error numbers a Terminate message carries, packed as `layer<<12 | type<<8 | code` (RFC 5040 4.8, RFC 5041 7.2, RFC 5044 8,
 * RFC 6581 8). A check in the core returns one of these, or {@link FINE}; the first error wins.
 */

/** No error. */
export const FINE = 0;

/**
 * Packed Terminate codes. LOCAL_CATASTROPHIC is 0/0/00 on the wire, which would collide with FINE, "no error": inside it carries bit 16,
 * which encoding cuts off.
 */
export const TERM = {
  /** 0/0/00: local catastrophic error. */
  LOCAL_CATASTROPHIC: 0x1_0000,

  /** 0/1/00: invalid STag. */
  RDMAP_INVALID_STAG: 0x0100,
  /** 0/1/01: base or bounds violation. */
  RDMAP_BOUNDS: 0x0101,
  /** 0/1/02: access rights violation. */
  RDMAP_ACCESS: 0x0102,
  /** 0/1/03: STag not associated with the RDMAP stream. */
  RDMAP_NOT_ASSOCIATED: 0x0103,
  /** 0/1/04: TO wrap. */
  RDMAP_TO_WRAP: 0x0104,
  /** 0/1/09: STag cannot be invalidated. */
  RDMAP_CANNOT_INVALIDATE: 0x0109,
  /** 0/1/FF: unspecified remote protection error. */
  RDMAP_PROTECTION_UNSPECIFIED: 0x01ff,

  /** 0/2/05: invalid RDMAP version. */
  RDMAP_VERSION: 0x0205,
  /** 0/2/06: unexpected opcode. */
  RDMAP_UNEXPECTED_OPCODE: 0x0206,
  /** 0/2/07: catastrophic error, localized to the RDMAP stream. */
  RDMAP_STREAM_CATASTROPHIC: 0x0207,
  /** 0/2/08: catastrophic error, global. */
  RDMAP_GLOBAL_CATASTROPHIC: 0x0208,
  /** 0/2/09: STag cannot be invalidated. */
  RDMAP_OPERATION_CANNOT_INVALIDATE: 0x0209,
  /** 0/2/FF: unspecified remote operation error. */
  RDMAP_OPERATION_UNSPECIFIED: 0x02ff,

  /** 1/0/00: DDP local catastrophic error. */
  DDP_LOCAL_CATASTROPHIC: 0x1000,
  /** 1/1/00: invalid STag. */
  DDP_INVALID_STAG: 0x1100,
  /** 1/1/01: base or bounds violation. */
  DDP_BOUNDS: 0x1101,
  /** 1/1/02: STag not associated with the DDP stream. */
  DDP_NOT_ASSOCIATED: 0x1102,
  /** 1/1/03: TO wrap. */
  DDP_TO_WRAP: 0x1103,
  /** 1/1/04: invalid DDP version. */
  DDP_TAGGED_VERSION: 0x1104,
  /** 1/2/01: invalid QN. */
  DDP_INVALID_QN: 0x1201,
  /** 1/2/02: invalid MSN, no buffer available. */
  DDP_NO_BUFFER: 0x1202,
  /** 1/2/03: invalid MSN, MSN range is not valid. */
  DDP_MSN_RANGE: 0x1203,
  /** 1/2/04: invalid MO. */
  DDP_INVALID_MO: 0x1204,
  /** 1/2/05: message too long for the available buffer. */
  DDP_TOO_LONG: 0x1205,
  /** 1/2/06: invalid DDP version. */
  DDP_UNTAGGED_VERSION: 0x1206,

  /** 2/0/01: TCP connection closed, terminated or lost. */
  MPA_CONNECTION_LOST: 0x2001,
  /** 2/0/02: MPA CRC mismatch. */
  MPA_CRC: 0x2002,
  /** 2/0/03: MPA marker and ULPDU_Length disagree. */
  MPA_MARKER: 0x2003,
  /** 2/0/04: invalid MPA Request or Reply frame. */
  MPA_STARTUP_FRAME: 0x2004,
  /** 2/0/05: MPA local catastrophic error. */
  MPA_LOCAL_CATASTROPHIC: 0x2005,
  /** 2/0/06: insufficient IRD resources. */
  MPA_INSUFFICIENT_IRD: 0x2006,
  /** 2/0/07: no matching RTR option. */
  MPA_NO_MATCHING_RTR: 0x2007,
} as const;

const NAMES: Readonly<Record<number, string>> = {
  0x0000: 'local catastrophic error',
  0x0100: 'invalid STag',
  0x0101: 'base or bounds violation',
  0x0102: 'access rights violation',
  0x0103: 'STag not associated with the RDMAP stream',
  0x0104: 'TO wrap',
  0x0109: 'STag cannot be invalidated',
  0x01ff: 'unspecified remote protection error',
  0x0205: 'invalid RDMAP version',
  0x0206: 'unexpected opcode',
  0x0207: 'catastrophic error, localized to the RDMAP stream',
  0x0208: 'catastrophic error, global',
  0x0209: 'STag cannot be invalidated',
  0x02ff: 'unspecified remote operation error',
  0x1000: 'DDP local catastrophic error',
  0x1100: 'invalid STag',
  0x1101: 'base or bounds violation',
  0x1102: 'STag not associated with the DDP stream',
  0x1103: 'TO wrap',
  0x1104: 'invalid DDP version',
  0x1201: 'invalid QN',
  0x1202: 'invalid MSN, no buffer available',
  0x1203: 'invalid MSN, MSN range is not valid',
  0x1204: 'invalid MO',
  0x1205: 'message too long for the available buffer',
  0x1206: 'invalid DDP version',
  0x2001: 'TCP connection closed, terminated or lost',
  0x2002: 'MPA CRC mismatch',
  0x2003: 'MPA marker and ULPDU_Length disagree',
  0x2004: 'invalid MPA Request or Reply frame',
  0x2005: 'MPA local catastrophic error',
  0x2006: 'insufficient IRD resources',
  0x2007: 'no matching RTR option',
};

/** True if a packed code is one that the RFCs define. */
export function isKnownTerminateCode(packed: number): boolean {
  return NAMES[packed & 0xffff] !== undefined;
}

const LAYERS = ['RDMAP', 'DDP', 'MPA'] as const;

/**
 * A packed code as text, for example `1/1/00 (DDP: invalid STag)`.
 *
 * @example
 * describeTerminateCode(TERM.DDP_BOUNDS); // '1/1/01 (DDP: base or bounds violation)'
 */
export function describeTerminateCode(packed: number): string {
  const wire = packed & 0xffff;
  const layer = wire >>> 12;
  const type = (wire >>> 8) & 0xf;
  const code = wire & 0xff;
  // EType 3 at layer 2 is what Chelsio and Intel hardware send (protocol-notes 2.3); layer 0 type 0 ignores the code.
  const key = layer === 2 ? 0x2000 | code : layer === 0 && type === 0 ? 0 : wire;
  const name = NAMES[key] ?? 'unknown error';
  return `${layer}/${type.toString(16)}/${code.toString(16).padStart(2, '0')} (${LAYERS[layer] ?? 'unknown layer'}: ${name})`;
}
