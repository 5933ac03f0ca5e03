// `iwarp conformance vectors`: prints the golden vectors and checks them against the probe's own codec, which
// was written from the RFCs without looking at the product's.

import { castagnoli } from './probe/crc.ts';
import { fpduView, startupView, viewText } from './probe/decode.ts';
import { FpduReader, FpduWriter } from './probe/fpdu.ts';
import { parseSegment } from './probe/messages.ts';
import { parseStartup, startupFrame } from './probe/startup.ts';
import { VECTOR_FILES, hexToOctets, loadVectors, octetsToHex } from './vectors/index.ts';
import type { StartupVector, StreamVector } from './vectors/index.ts';

/** The names of all vectors. */
export function vectorNames(): string[] {
  return VECTOR_FILES.flatMap((file) => loadVectors(file).map(({ name }) => name));
}

/** The vectors whose names begin like this, decoded. */
export function printVectors(names: readonly string[]): string {
  const lines: string[] = [];
  for (const file of VECTOR_FILES) {
    for (const vector of loadVectors(file)) {
      if (!wanted(vector.name, names)) continue;
      lines.push(`${file}/${vector.name}  ${vector.clause}  (${vector.source})`);
      if (vector.hex !== '') lines.push(...viewOf(file, hexToOctets(vector.hex), vector.markers));
      else lines.push(`  ${JSON.stringify(vector.fields)}`);
    }
  }
  return `${lines.join('\n')}\n`;
}

function viewOf(file: string, octets: Uint8Array, markers: boolean): string[] {
  if (file === 'startup' && octets.length >= 20) return viewText(startupView(octets), '  ');
  if (file === 'fpdu') return viewText(fpduView(octets, markers), '  ');
  return viewText([{ offset: 0, octets, name: `${octets.length} octets`, value: '' }], '  ');
}

/** Check the vectors with the probe's codec. */
export function checkVectors(names: readonly string[]): { text: string; good: boolean } {
  const lines: string[] = [];
  let checked = 0;
  for (const file of VECTOR_FILES) {
    for (const vector of loadVectors(file)) {
      if (!wanted(vector.name, names)) continue;
      const fault =
        file === 'crc32c'
          ? crcFault(vector.hex, vector.fields as { value: string; wire: string })
          : file === 'fpdu' || file === 'markers'
            ? streamFault(vector as StreamVector)
            : file === 'startup'
              ? startupFault(vector as StartupVector)
              : null;
      checked++;
      if (fault !== null) lines.push(`${file}/${vector.name}: ${fault}`);
    }
  }
  const good = lines.length === 0;
  lines.push(`${checked} vectors, ${good ? 'all as the probe computes them' : `${lines.length} different`}`);
  return { text: `${lines.join('\n')}\n`, good };
}

function wanted(name: string, names: readonly string[]): boolean {
  return names.length === 0 || names.some((prefix) => name.startsWith(prefix));
}

function crcFault(hex: string, { value, wire }: { value: string; wire: string }): string | null {
  const crc = castagnoli(hexToOctets(hex));
  if (crc !== Number(value)) return `CRC32c is 0x${crc.toString(16)}, not ${value}`;
  const field = new Uint8Array(4);
  new DataView(field.buffer).setUint32(0, crc, true);
  return octetsToHex(field) === wire ? null : `the field is ${octetsToHex(field)}, not ${wire}`;
}

/** Read the stream, compare what it says, and write it again octet for octet. */
function streamFault(vector: StreamVector): string | null {
  const octets = hexToOctets(vector.hex);
  // a piece from the middle of a stream; markers.json has the whole one too
  if ((vector.streamOffset ?? 0) !== 0) return null;
  const reader = new FpduReader(vector.markers);
  const writer = new FpduWriter(vector.markers, vector.crc);
  reader.push(octets);
  let again = '';
  for (const [i, wantedFpdu] of vector.fields.fpdus.entries()) {
    const fpdu = reader.next();
    if (fpdu === null) return `FPDU ${i} is not whole`;
    if (fpdu.start !== wantedFpdu.offset)
      return `FPDU ${i} starts at ${fpdu.start}, not ${wantedFpdu.offset}`;
    if (fpdu.ulpdu.length !== wantedFpdu.ulpduLength || fpdu.pad.length !== wantedFpdu.padLength)
      return `FPDU ${i} has other lengths`;
    if (vector.crc && !fpdu.crcGood) return `FPDU ${i} has a CRC that does not match`;
    const segment = parseSegment(fpdu.ulpdu);
    const { segment: want } = wantedFpdu;
    if (
      segment === null ||
      segment.opcode !== want.opcode ||
      segment.tagged !== want.tagged ||
      segment.last !== want.last
    )
      return `FPDU ${i} has another header`;
    if (fpdu.markers.some((marker) => marker.pointer !== marker.expected))
      return `FPDU ${i} has a marker that does not fit`;
    again += octetsToHex(writer.encode(fpdu.ulpdu));
  }
  return !vector.crc || again === vector.hex.toLowerCase() ? null : 'written again the octets differ';
}

function startupFault(vector: StartupVector): string | null {
  const octets = hexToOctets(vector.hex);
  if (octets.length < 20 || !('kind' in vector.fields)) return null; // the four enhanced octets alone
  const { fields } = vector;
  const frame = parseStartup(octets);
  const again = startupFrame({
    kind: fields.kind,
    markers: fields.markers,
    crc: fields.crc,
    reject: fields.reject,
    revision: fields.revision,
    extraFlags: fields.reserved,
    enhanced: frame.enhanced,
    privateData: frame.privateData,
    pdLength: fields.pdLength,
  });
  if (
    frame.revision !== fields.revision ||
    frame.pdLength !== fields.pdLength ||
    frame.s !== fields.enhancedData
  )
    return 'the header reads differently';
  return octetsToHex(again) === vector.hex.toLowerCase() ? null : 'written again the octets differ';
}
