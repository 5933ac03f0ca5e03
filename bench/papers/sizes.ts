/** Sizes of the papers' rows, and how they are written. */

export const KIB = 1024;
export const MIB = 1_048_576;

export const sizeText = (octets: number): string =>
  octets >= MIB ? `${octets / MIB} MiB` : octets >= KIB ? `${octets / KIB} KiB` : `${octets} B`;
