// Typed access to the golden vectors. The vectors are the *.json files beside this one, usable from any
// language: octets in lower-case hexadecimal, 32-bit names (STags, identifiers) as 0x and 8 digits, 64-bit
// values as 0x and 16 digits, everything else as numbers. Sources: RFC 3720 B.4, RFC 5044 figures 5 and 6,
// RFC 5041 5.2; a `computed` vector is laid out as its clause says, with a CRC that no code of src/ has
// computed. `protocol-notes` is docs/protocol-notes.md.

import { existsSync, readFileSync } from 'node:fs';

interface VectorBase {
  readonly name: string;
  /** The clause the vector illustrates. */
  readonly clause: string;
  /** Where the figures come from. */
  readonly source: string;
  /** The octets; empty where the vector consists of figures only. */
  readonly hex: string;
  readonly markers: boolean;
  /** Whether CRC is in use; if not, the CRC field holds anything. */
  readonly crc: boolean;
  /** Distance of the first octet of `hex` from the octet after the start-up frame; 0 when absent. */
  readonly streamOffset?: number;
}

interface CrcVector extends VectorBase {
  readonly fields: {
    /** The reflected 32-bit value that software usually computes. */
    readonly value: string;
    /** The four octets of the CRC field, least significant first. */
    readonly wire: string;
  };
}

interface ReadRequestFields {
  readonly sinkStag: string;
  readonly sinkTo: string;
  readonly size: number;
  readonly sourceStag: string;
  readonly sourceTo: string;
}

interface AtomicRequestFields {
  readonly reserved: number;
  readonly aopcode: number;
  readonly requestId: string;
  readonly remoteStag: string;
  readonly remoteTo: string;
  readonly addOrSwap: string;
  readonly addOrSwapMask: string;
  readonly compare: string;
  readonly compareMask: string;
}

/** DDP and RDMAP header fields; `stag` and `to` when tagged, the four others when not. */
interface HeaderFields {
  readonly tagged: boolean;
  readonly last: boolean;
  readonly dv: number;
  readonly ddpReserved: number;
  readonly rv: number;
  readonly rdmapReserved: number;
  readonly opcode: number;
  readonly stag?: string;
  readonly to?: string;
  readonly invalidateStag?: string;
  readonly qn?: number;
  readonly msn?: number;
  readonly mo?: number;
}

interface TerminateFields {
  readonly layer: number;
  readonly etype: number;
  readonly code: number;
  readonly m: boolean;
  readonly d: boolean;
  readonly r: boolean;
  readonly reserved: number;
  readonly segmentLength?: number;
  readonly ddpHeader?: HeaderFields;
  readonly readRequest?: ReadRequestFields;
}

export interface SegmentFields extends HeaderFields {
  /** ULP octets; empty for messages whose octets are decoded into one of the structures below. */
  readonly payload: string;
  readonly readRequest?: ReadRequestFields;
  readonly terminate?: TerminateFields;
  readonly immediate?: string;
  readonly atomicRequest?: AtomicRequestFields;
  readonly atomicResponse?: { readonly requestId: string; readonly original: string };
}

export interface FpduFields {
  /** Stream position of ULPDU_Length. */
  readonly offset: number;
  readonly ulpduLength: number;
  readonly padLength: number;
  /** The CRC field as transmitted. */
  readonly crc: string;
  readonly segment: SegmentFields;
}

export interface StreamVector extends VectorBase {
  readonly fields: {
    readonly markers: readonly { readonly position: number; readonly pointer: number }[];
    readonly fpdus: readonly FpduFields[];
  };
}

interface EnhancedFields {
  readonly a: boolean;
  readonly b: boolean;
  readonly ird: number;
  readonly c: boolean;
  readonly d: boolean;
  readonly ord: number;
}

export interface StartupFields {
  readonly kind: 'request' | 'reply';
  readonly markers: boolean;
  readonly crc: boolean;
  readonly reject: boolean;
  readonly enhancedData: boolean;
  readonly reserved: number;
  readonly revision: number;
  readonly pdLength: number;
  readonly enhanced?: EnhancedFields;
  /** The ULP's part, after the enhanced octets. */
  readonly privateData: string;
}

export interface StartupVector extends VectorBase {
  /** A whole frame, or the four enhanced octets alone. */
  readonly fields: StartupFields | { readonly enhanced: EnhancedFields };
}

interface SegmentationVector extends VectorBase {
  readonly fields: {
    readonly mulpdu: number;
    readonly messageLength: number;
    readonly tagged: boolean;
    readonly to?: string;
    readonly segments: readonly {
      readonly mo?: number;
      readonly to?: string;
      readonly payloadLength: number;
      readonly last: boolean;
    }[];
  };
}

interface MulpduVector extends VectorBase {
  readonly fields: { readonly emss: number; readonly withoutMarkers: number; readonly withMarkers: number };
}

/** File name (without .json) to the vectors in it. */
interface VectorFiles {
  readonly crc32c: CrcVector;
  readonly fpdu: StreamVector;
  readonly markers: StreamVector;
  readonly startup: StartupVector;
  readonly segmentation: SegmentationVector;
  readonly mulpdu: MulpduVector;
}

export const VECTOR_FILES: readonly (keyof VectorFiles)[] = [
  'crc32c',
  'fpdu',
  'markers',
  'startup',
  'segmentation',
  'mulpdu',
];

/**
 * The vectors of one file.
 *
 * @example
 * for (const vector of loadVectors('fpdu')) console.log(vector.name, hexToOctets(vector.hex).length);
 */
export function loadVectors<Name extends keyof VectorFiles>(name: Name): readonly VectorFiles[Name][] {
  const parsed = JSON.parse(readFileSync(locate(`${name}.json`), 'utf8')) as { vectors: VectorFiles[Name][] };
  return parsed.vectors;
}

/** Beside this file in a checkout; the compiled file is in dist/vectors/ and the JSON in vectors/. */
function locate(file: string): URL {
  const beside = new URL(file, import.meta.url);
  return existsSync(beside) ? beside : new URL(`../../vectors/${file}`, import.meta.url);
}

/** Octets of a hexadecimal string. */
export function hexToOctets(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** Lower-case hexadecimal of some octets. */
export function octetsToHex(octets: Uint8Array): string {
  return Array.from(octets, (octet) => octet.toString(16).padStart(2, '0')).join('');
}
