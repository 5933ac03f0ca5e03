// The errors that a Terminate can name, written down from the RFCs for the suite alone (see wire.ts): RDMAP's
// by RFC 5040 4.8, DDP's by RFC 5041 7.2, MPA's by RFC 5044 8 and RFC 6581 8.

/** Name in the cases, layer, error type, error code, the RFC's words. */
const ROWS = [
  // RFC 5040 4.8, layer 0: local catastrophic, remote protection, remote operation.
  ['RDMAP_LOCAL_CATASTROPHIC', 0, 0, 0x00, 'local catastrophic error'],
  ['RDMAP_INVALID_STAG', 0, 1, 0x00, 'invalid STag'],
  ['RDMAP_BOUNDS', 0, 1, 0x01, 'base or bounds violation'],
  ['RDMAP_ACCESS', 0, 1, 0x02, 'access rights violation'],
  ['RDMAP_NOT_ASSOCIATED', 0, 1, 0x03, 'STag not associated with the RDMAP stream'],
  ['RDMAP_TO_WRAP', 0, 1, 0x04, 'TO wrap'],
  ['RDMAP_CANNOT_INVALIDATE', 0, 1, 0x09, 'STag cannot be invalidated'],
  ['RDMAP_PROTECTION_UNSPECIFIED', 0, 1, 0xff, 'unspecified remote protection error'],
  ['RDMAP_VERSION', 0, 2, 0x05, 'invalid RDMAP version'],
  ['RDMAP_UNEXPECTED_OPCODE', 0, 2, 0x06, 'unexpected opcode'],
  ['RDMAP_STREAM_CATASTROPHIC', 0, 2, 0x07, 'catastrophic error, localized to the RDMAP stream'],
  ['RDMAP_GLOBAL_CATASTROPHIC', 0, 2, 0x08, 'catastrophic error, global'],
  ['RDMAP_OPERATION_CANNOT_INVALIDATE', 0, 2, 0x09, 'STag cannot be invalidated'],
  ['RDMAP_OPERATION_UNSPECIFIED', 0, 2, 0xff, 'unspecified remote operation error'],
  // RFC 5041 7.2, layer 1: local catastrophic, tagged buffer, untagged buffer.
  ['DDP_LOCAL_CATASTROPHIC', 1, 0, 0x00, 'DDP local catastrophic error'],
  ['DDP_INVALID_STAG', 1, 1, 0x00, 'invalid STag'],
  ['DDP_BOUNDS', 1, 1, 0x01, 'base or bounds violation'],
  ['DDP_NOT_ASSOCIATED', 1, 1, 0x02, 'STag not associated with the DDP stream'],
  ['DDP_TO_WRAP', 1, 1, 0x03, 'TO wrap'],
  ['DDP_TAGGED_VERSION', 1, 1, 0x04, 'invalid DDP version'],
  ['DDP_INVALID_QN', 1, 2, 0x01, 'invalid QN'],
  ['DDP_NO_BUFFER', 1, 2, 0x02, 'invalid MSN, no buffer available'],
  ['DDP_MSN_RANGE', 1, 2, 0x03, 'invalid MSN, MSN range is not valid'],
  ['DDP_INVALID_MO', 1, 2, 0x04, 'invalid MO'],
  ['DDP_TOO_LONG', 1, 2, 0x05, 'message too long for the available buffer'],
  ['DDP_UNTAGGED_VERSION', 1, 2, 0x06, 'invalid DDP version'],
  // RFC 5044 8, layer 2, with one error type.
  ['MPA_CONNECTION_LOST', 2, 0, 0x01, 'TCP connection closed, terminated or lost'],
  ['MPA_CRC', 2, 0, 0x02, 'MPA CRC mismatch'],
  ['MPA_MARKER', 2, 0, 0x03, 'MPA marker and ULPDU_Length disagree'],
  ['MPA_STARTUP_FRAME', 2, 0, 0x04, 'invalid MPA Request or Reply frame'],
  // RFC 6581 8.
  ['MPA_LOCAL_CATASTROPHIC', 2, 0, 0x05, 'MPA local catastrophic error'],
  ['MPA_INSUFFICIENT_IRD', 2, 0, 0x06, 'insufficient IRD resources'],
  ['MPA_NO_MATCHING_RTR', 2, 0, 0x07, 'no matching RTR option'],
] as const;

const LAYERS: readonly string[] = ['RDMAP', 'DDP', 'MPA'];

const pack = (layer: number, etype: number, code: number): number => (layer << 12) | (etype << 8) | code;

/** The name of an error. */
type TermName = (typeof ROWS)[number][0];

/** The errors by name as packed codes, `layer<<12 | type<<8 | code`. */
export const TERM: Readonly<Record<TermName, number>> = Object.fromEntries(
  ROWS.map(([name, layer, etype, code]) => [name, pack(layer, etype, code)]),
) as Record<TermName, number>;

const WORDS: ReadonlyMap<number, string> = new Map(
  ROWS.map(([, layer, etype, code, words]) => [pack(layer, etype, code), words]),
);

/** A packed code in words, for example `1/1/00 (DDP: invalid STag)`. */
export function describeTerminateCode(packed: number): string {
  const [layer, etype, code] = [packed >>> 12, (packed >>> 8) & 0xf, packed & 0xff];
  // Some hardware sends type 3 at layer 2; a local catastrophic error of RDMAP has no code.
  const meant = layer === 2 ? pack(2, 0, code) : layer === 0 && etype === 0 ? 0 : packed;
  return (
    `${layer}/${etype.toString(16)}/${code.toString(16).padStart(2, '0')} ` +
    `(${LAYERS[layer] ?? 'unknown layer'}: ${WORDS.get(meant) ?? 'unknown error'})`
  );
}
