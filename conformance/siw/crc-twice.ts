/**
 * The one fault of siw 6.1 that a case is tried again for: now and then siw sends an FPDU whose CRC covers its payload twice (finding F5 of
 * conformance/reports/linux-siw-6.1.md). It is proved from the octets of the capture, or it is not excused.
 */
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import { CaptureDissector } from '../../src/inspect/capture.ts';
import type { DecodedFpdu, Direction } from '../../src/inspect/types.ts';
import { inCapture } from './capture-file.ts';

const LENGTH_FIELD_OCTETS = 2;
const HEADER_OCTETS = { tagged: 14, untagged: 18 };
const CRC_OCTETS = 4;
/** Terminate codes of MPA (layer 2, type 0): CRC error. */
const MPA_CRC = { layer: 2, type: 0, code: 2 };

/** True if the CRC field is that of header, payload, payload again and pad. An FPDU with markers is not judged. */
export function coversPayloadTwice({ raw, ddp, payloadLength, markers, crc, captured }: DecodedFpdu): boolean {
  if (crc.ok || captured !== undefined || markers.length > 0 || ddp === undefined || payloadLength === 0) return false;
  const payload = LENGTH_FIELD_OCTETS + (ddp.tagged ? HEADER_OCTETS.tagged : HEADER_OCTETS.untagged);
  const engine = defaultCrc32cEngine();
  const once = engine.update(0, raw, 0, payload + payloadLength);
  const twice = engine.update(once, raw, payload, payload + payloadLength);
  return engine.update(twice, raw, payload + payloadLength, raw.length - CRC_OCTETS) >>> 0 === crc.field;
}

/**
 * Words on the fault, if the capture shows that it is what ended a connection: every wrong CRC that came from the peer is of this kind, there
 * is one, and our side answered with the Terminate for it. Null in all other cases. `ours` is the side that we were.
 */
export function crcTwiceFault(capture: Uint8Array, ours: 'client' | 'server'): string | null {
  const inbound: Direction = ours === 'client' ? 1 : 0;
  const faults: string[] = [];
  let other = false;
  let answered = false;
  const dissector = new CaptureDissector({
    event: (connection, event) => {
      if (event.kind !== 'fpdu') return;
      if (event.direction !== inbound) {
        const said = event.terminate;
        answered ||= faults.length > 0 && said?.layer === MPA_CRC.layer && said.type === MPA_CRC.type && said.code === MPA_CRC.code;
      } else if (event.crc.use === 'on' && !event.crc.ok) {
        const field = event.crc.field.toString(16).padStart(8, '0');
        if (coversPayloadTwice(event)) faults.push(`at octet ${event.position} of connection ${connection.number} the peer sent an FPDU whose CRC 0x${field} covers its payload twice (F5 of siw 6.1)`);
        else other = true;
      }
    },
    remark: () => undefined,
  });
  dissector.push(capture);
  dissector.end();
  return other || !answered ? null : (faults[0] ?? null);
}

/** The same of a file; null if there is none, or it is no capture. */
export function crcTwiceIn(path: string, ours: 'client' | 'server'): string | null {
  return inCapture(path, (capture) => crcTwiceFault(capture, ours));
}
