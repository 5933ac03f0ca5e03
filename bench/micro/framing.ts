/**
 * Framer and deframer without sockets, for the programs that time them: FPDUs of any size, with and without
 * CRC and markers, cut as a socket cuts them and as a hostile peer does.
 */
import { FINE } from '../../src/base/terminate-codes.ts';
import { copyBytes } from '../../src/base/copy.ts';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import { JsRuns } from '../../src/crc32c/js-runs.ts';
import type { RunKernel } from '../../src/crc32c/runs.ts';
import { createDeframer, reassemblyPool, type Deframer } from '../../src/mpa/deframer.ts';
import { createFramer, type Framer } from '../../src/mpa/framer.ts';
import { createTransmitBuffer } from '../../src/mpa/transmit-buffer.ts';

const engine = defaultCrc32cEngine();
export const READ_OCTETS = 65_536;

export interface Setting {
  readonly crc: boolean;
  readonly markers: boolean;
  /**
   * Markers by the engine, and reads after the held beginning: off, in JavaScript and without, shows what
   * they bring.
   */
  readonly fast: boolean;
}

const user = new Uint8Array(1 << 20).fill(9);
const target = new Uint8Array(1 << 20);

/** The sink does what placement does: one copy. */
const sink = {
  ulpdus: 0,
  handleUlpdu(bytes: Uint8Array, start: number, length: number): number {
    sink.ulpdus++;
    copyBytes(bytes, start, target, 0, length);
    return FINE;
  },
};

const inJavaScript = new JsRuns();

function runsOf({ markers, fast }: Setting): RunKernel | null {
  if (!markers) return null;
  return fast ? engine.runs : inJavaScript;
}

export function framerOf(s: Setting): Framer {
  return createFramer(runsOf(s), s.crc ? engine : null);
}

export function deframerOf(s: Setting): Deframer {
  const pool = reassemblyPool(engine);
  return createDeframer(runsOf(s), s.crc ? engine : null, sink, pool);
}

const buffer = createTransmitBuffer(engine.allocate(70_000));

export function frame(framer: Framer, ulpdu: number): void {
  buffer.clear();
  framer.begin(buffer, ulpdu);
  copyBytes(user, 0, framer.target.bytes, framer.at, ulpdu);
  framer.finish(buffer, ulpdu);
}

/** About `octets` of FPDUs. */
export function streamOf(s: Setting, ulpdu: number, octets: number): Uint8Array {
  const framer = framerOf(s);
  const parts: Uint8Array[] = [];
  for (let n = 0; n < octets; ) {
    frame(framer, ulpdu);
    parts.push(buffer.bytes.slice(0, buffer.end));
    n += buffer.end;
  }
  return Buffer.concat(parts);
}

const reads = engine.allocate(READ_OCTETS);

/**
 * As the TCP port does it: what a read brings lies in the shared buffer, or where the deframer wanted it. The
 * copy that stands for it is paid by both.
 */
export function receive(deframer: Deframer, stream: Uint8Array, cut: number, fast: boolean): void {
  for (let at = 0; at < stream.length; ) {
    const into = (fast ? deframer.readTarget() : null) ?? reads;
    const n = Math.min(cut, into.length, stream.length - at);
    into.set(stream.subarray(at, at + n));
    if (deframer.handleBytes(into, 0, n) !== FINE) throw new Error('a good stream was refused');
    at += n;
  }
}
