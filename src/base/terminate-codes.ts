/**
 * The error numbers a Terminate message carries, packed as `layer<<12 | type<<8 | code` (RFC 5040 4.8, RFC
 * 5041 7.2, RFC 5044 8, RFC 6581 8). A check in the core returns one of these, or {@link FINE}; the first
 * error wins.
 */

/** No error. */
export const FINE = 0;

/**
 * Every Terminate code with its packed number and its name. LOCAL_CATASTROPHIC is 0/0/00 on the wire, which
 * would collide with FINE, "no error": inside it carries bit 16, which encoding cuts off.
 */
export const TERMINATE_CODES = {
  /** 0/0/00. */
  LOCAL_CATASTROPHIC: [0x1_0000, 'local catastrophic error'],

  /** 0/1/00. */
  RDMAP_INVALID_STAG: [0x0100, 'invalid STag'],
  /** 0/1/01. */
  RDMAP_BOUNDS: [0x0101, 'base or bounds violation'],
  /** 0/1/02. */
  RDMAP_ACCESS: [0x0102, 'access rights violation'],
  /** 0/1/03. */
  RDMAP_NOT_ASSOCIATED: [0x0103, 'STag not associated with the RDMAP stream'],
  /** 0/1/04. */
  RDMAP_TO_WRAP: [0x0104, 'TO wrap'],
  /** 0/1/09. */
  RDMAP_CANNOT_INVALIDATE: [0x0109, 'STag cannot be invalidated'],
  /** 0/1/FF. */
  RDMAP_PROTECTION_UNSPECIFIED: [0x01ff, 'unspecified remote protection error'],

  /** 0/2/05. */
  RDMAP_VERSION: [0x0205, 'invalid RDMAP version'],
  /** 0/2/06. */
  RDMAP_UNEXPECTED_OPCODE: [0x0206, 'unexpected opcode'],
  /** 0/2/07. */
  RDMAP_STREAM_CATASTROPHIC: [0x0207, 'catastrophic error, localized to the RDMAP stream'],
  /** 0/2/08. */
  RDMAP_GLOBAL_CATASTROPHIC: [0x0208, 'catastrophic error, global'],
  /** 0/2/09. */
  RDMAP_OPERATION_CANNOT_INVALIDATE: [0x0209, 'STag cannot be invalidated'],
  /** 0/2/FF. */
  RDMAP_OPERATION_UNSPECIFIED: [0x02ff, 'unspecified remote operation error'],

  /** 1/0/00. */
  DDP_LOCAL_CATASTROPHIC: [0x1000, 'DDP local catastrophic error'],

  /** 1/1/00. */
  DDP_INVALID_STAG: [0x1100, 'invalid STag'],
  /** 1/1/01. */
  DDP_BOUNDS: [0x1101, 'base or bounds violation'],
  /** 1/1/02. */
  DDP_NOT_ASSOCIATED: [0x1102, 'STag not associated with the DDP stream'],
  /** 1/1/03. */
  DDP_TO_WRAP: [0x1103, 'TO wrap'],
  /** 1/1/04. */
  DDP_TAGGED_VERSION: [0x1104, 'invalid DDP version'],

  /** 1/2/01. */
  DDP_INVALID_QN: [0x1201, 'invalid QN'],
  /** 1/2/02. */
  DDP_NO_BUFFER: [0x1202, 'invalid MSN, no buffer available'],
  /** 1/2/03. */
  DDP_MSN_RANGE: [0x1203, 'invalid MSN, MSN range is not valid'],
  /** 1/2/04. */
  DDP_INVALID_MO: [0x1204, 'invalid MO'],
  /** 1/2/05. */
  DDP_TOO_LONG: [0x1205, 'message too long for the available buffer'],
  /** 1/2/06. */
  DDP_UNTAGGED_VERSION: [0x1206, 'invalid DDP version'],

  /** 2/0/01. */
  MPA_CONNECTION_LOST: [0x2001, 'TCP connection closed, terminated or lost'],
  /** 2/0/02. */
  MPA_CRC: [0x2002, 'MPA CRC mismatch'],
  /** 2/0/03. */
  MPA_MARKER: [0x2003, 'MPA marker and ULPDU_Length disagree'],
  /** 2/0/04. */
  MPA_STARTUP_FRAME: [0x2004, 'invalid MPA Request or Reply frame'],
  /** 2/0/05. */
  MPA_LOCAL_CATASTROPHIC: [0x2005, 'MPA local catastrophic error'],
  /** 2/0/06. */
  MPA_INSUFFICIENT_IRD: [0x2006, 'insufficient IRD resources'],
  /** 2/0/07. */
  MPA_NO_MATCHING_RTR: [0x2007, 'no matching RTR option'],
} as const;

/** Packed Terminate codes by name. */
export const TERM: { readonly [Name in keyof typeof TERMINATE_CODES]: (typeof TERMINATE_CODES)[Name][0] } =
  packedCodes();

function packedCodes(): typeof TERM {
  const packed: Partial<Record<keyof typeof TERMINATE_CODES, number>> = {};
  for (const [name, [code]] of Object.entries(TERMINATE_CODES))
    packed[name as keyof typeof TERMINATE_CODES] = code;
  return packed as typeof TERM;
}

const NAMES: ReadonlyMap<number, string> = new Map(
  Object.values(TERMINATE_CODES).map(([code, name]) => [code & 0xffff, name]),
);

/** True if a packed code is one that the RFCs define. */
export function isKnownTerminateCode(packed: number): boolean {
  return NAMES.has(packed & 0xffff);
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
  // EType 3 at layer 2 is what Chelsio and Intel hardware send (protocol-notes 2.3); layer 0 type 0 ignores
  // the code.
  const key = layer === 2 ? 0x2000 | code : layer === 0 && type === 0 ? 0 : wire;
  const name = NAMES.get(key) ?? 'unknown error';
  const number = `${layer}/${type.toString(16)}/${code.toString(16).padStart(2, '0')}`;
  return `${number} (${LAYERS[layer] ?? 'unknown layer'}: ${name})`;
}
