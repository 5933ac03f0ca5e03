/**
 * The one fault of siw 6.1 that a case is tried again for: now and then siw sends an FPDU whose CRC covers
 * its payload twice (finding F5 of conformance/reports/linux-siw-6.1.md). It is proved from the octets of the
 * capture, or it is not excused.
 */
import { castagnoli } from '../probe/crc.ts';
import { packedCode, parseTerminate } from '../probe/messages.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { OPCODE } from '../probe/wire.ts';
import { inCapture } from './capture-file.ts';
import { fpdusOf } from './captured.ts';
import type { CapturedFpdu, Side } from './captured.ts';

const LENGTH_FIELD_OCTETS = 2;
const CRC_OCTETS = 4;

/**
 * True if the CRC field is that of header, payload, payload again and pad. An FPDU with markers is not
 * judged.
 */
function coversPayloadTwice({ raw, segment, markers, crc, crcGood }: CapturedFpdu): boolean {
  if (crcGood || markers.length > 0 || segment === null || segment.payload.length === 0) return false;
  const payload = LENGTH_FIELD_OCTETS + segment.header.length;
  const end = payload + segment.payload.length;
  return (
    castagnoli(
      raw.subarray(0, end),
      raw.subarray(payload, end),
      raw.subarray(end, raw.length - CRC_OCTETS),
    ) === crc
  );
}

/** True for a Terminate that says that a CRC was wrong. */
function blamesCrc({ segment }: CapturedFpdu): boolean {
  const said = segment?.opcode === OPCODE.TERMINATE ? parseTerminate(segment.payload) : null;
  return said !== null && packedCode(said) === TERM.MPA_CRC;
}

/**
 * Words on the fault, if the capture shows that it is what ended a connection: every wrong CRC that came from
 * the peer is of this kind, there is one, and our side answered with the Terminate for it. Null in all other
 * cases. `ours` is the side that we were.
 */
export function crcTwiceFault(capture: Uint8Array, ours: Side): string | null {
  const faults: string[] = [];
  let other = false;
  let answered = false;
  for (const fpdu of fpdusOf(capture)) {
    if (fpdu.from === ours) {
      answered ||= faults.length > 0 && blamesCrc(fpdu);
    } else if (fpdu.crcInUse && !fpdu.crcGood) {
      const field = fpdu.crc.toString(16).padStart(8, '0');
      if (coversPayloadTwice(fpdu))
        faults.push(
          `at octet ${fpdu.start} of connection ${fpdu.connection} the peer sent an FPDU whose CRC ` +
            `0x${field} covers its payload twice (F5 of siw 6.1)`,
        );
      else other = true;
    }
  }
  return other || !answered ? null : (faults[0] ?? null);
}

/** The result of `crcTwiceFault` for a file; null if there is none, or it is no capture. */
export function crcTwiceIn(path: string, ours: Side): string | null {
  return inCapture(path, (capture) => crcTwiceFault(capture, ours));
}
