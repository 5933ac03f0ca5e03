/**
 * Whether siw 6.1 has refused a lawful FPDU for how TCP handed it over (finding F3 of
 * conformance/reports/linux-siw-6.1.md). siw_get_trailer() puts each piece of PAD and CRC at the start of its
 * place, so the end of it keeps what the FPDU before left. The value that siw then takes for the CRC, and the
 * one it computes, stand in the kernel's log: 64 bits that follow from our octets alone, if it happened so.
 */
import { castagnoli } from '../probe/crc.ts';
import type { ReceivedFpdu } from '../probe/fpdu.ts';
import { inCapture } from './capture-file.ts';
import { fpdusOf } from './captured.ts';
import type { Side } from './captured.ts';

const CRC_OCTETS = 4;
/** Room for three octets of PAD in front of the CRC, which stands in the second half. */
const TRAILER_OCTETS = 8;

/** siw's message about a CRC that it refuses: the field as a little-endian number, and its own. */
interface RefusedCrc {
  readonly field: number;
  readonly own: number;
}

/** All of them in a kernel log. */
export function refusedCrcs(log: string): RefusedCrc[] {
  return [...log.matchAll(/siw: crc error\. in: ([0-9a-f]{8}), own ([0-9a-f]{8})/g)].map(
    ([, field, own]) => ({ field: parseInt(field!, 16), own: parseInt(own!, 16) }),
  );
}

/** The trailer of one connection as siw keeps it. */
class Trailer {
  readonly #octets = new Uint8Array(TRAILER_OCTETS);
  readonly #view = new DataView(this.#octets.buffer);

  /** An FPDU that came in one piece, or whose trailer did. */
  whole(fpdu: ReceivedFpdu): void {
    this.#octets.set(trailerOf(fpdu), CRC_OCTETS - fpdu.pad.length);
  }

  /**
   * The CRCs that siw finds in an FPDU whose trailer comes in two pieces, for each place where it may be cut:
   * the first is behind one octet.
   */
  inTwo(fpdu: ReceivedFpdu): RefusedCrc[] {
    const { raw, pad } = fpdu;
    const trailer = trailerOf(fpdu);
    const start = CRC_OCTETS - pad.length;
    const before = this.#octets.slice();
    const front = raw.subarray(0, raw.length - trailer.length);
    return Array.from({ length: trailer.length - 1 }, (_, i) => {
      this.#octets.set(before);
      this.#octets.set(trailer.subarray(0, i + 1), start);
      this.#octets.set(trailer.subarray(i + 1), start);
      return {
        field: this.#view.getUint32(CRC_OCTETS, true),
        own: castagnoli(front, this.#octets.subarray(start, CRC_OCTETS)),
      };
    });
  }
}

const trailerOf = ({ raw, pad }: ReceivedFpdu): Uint8Array =>
  raw.subarray(raw.length - pad.length - CRC_OCTETS);

/**
 * Words on the fault, if one of these refusals is that of an FPDU of ours that is right, its trailer in two
 * pieces; null in all other cases.
 * `ours` is the side that we were; an FPDU with markers is not judged.
 */
export function splitTrailerFault(
  capture: Uint8Array,
  ours: Side,
  refused: readonly RefusedCrc[],
): string | null {
  if (refused.length === 0) return null;
  const trailers = new Map<number, Trailer>();
  let found: string | null = null;
  for (const fpdu of fpdusOf(capture)) {
    if (fpdu.from !== ours || fpdu.markers.length > 0 || !fpdu.crcInUse || !fpdu.crcGood) continue;
    let trailer = trailers.get(fpdu.connection);
    if (trailer === undefined) trailers.set(fpdu.connection, (trailer = new Trailer()));
    for (const [i, { field, own }] of trailer.inTwo(fpdu).entries()) {
      if (field === own || !refused.some((one) => one.field === field && one.own === own)) continue;
      const hex = (value: number): string => `0x${value.toString(16).padStart(8, '0')}`;
      found ??=
        `siw refused the FPDU at octet ${fpdu.start} of connection ${fpdu.connection}, which is right: ` +
        `with its PAD and CRC in two pieces, cut after ${i + 1}, siw's trailer holds ${hex(field)} and ` +
        `its CRC comes to ${hex(own)}, as its kernel says (F3 of siw 6.1)`;
    }
    trailer.whole(fpdu);
  }
  return found;
}

/**
 * The result of `splitTrailerFault` for a file and the kernel's log; null if there is no such file, or it is
 * no capture.
 */
export function splitTrailerIn(path: string, ours: Side, log: string): string | null {
  return inCapture(path, (capture) => splitTrailerFault(capture, ours, refusedCrcs(log)));
}
