/** Our framer and deframer, wrapped for tests: many ULPDUs to octets, octets in pieces to ULPDUs. */
import { createCrc32cEngine } from '../../src/crc32c/engine.ts';
import { createDeframer, reassemblyPool, type Deframer, type UlpduSink } from '../../src/mpa/deframer.ts';
import { createFramer } from '../../src/mpa/framer.ts';
import { createTransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import { markerPhase } from '../../src/mpa/wire.ts';
import { FINE } from '../../src/base/terminate-codes.ts';

export interface FramingOptions {
  readonly markers: boolean;
  readonly crc: boolean;
  /** Stream position of the first octet. */
  readonly streamOffset?: number;
}

const engine = createCrc32cEngine();

/** The octets our framer makes of these ULPDUs. */
export function frame(ulpdus: readonly Uint8Array[], options: FramingOptions): Uint8Array {
  const framer = createFramer(options.markers ? engine.runs : null, options.crc ? engine : null);
  framer.position = options.streamOffset ?? 0;
  const room = ulpdus.reduce((octets, ulpdu) => octets + framer.room(ulpdu.length), 0);
  // What lies in the buffer beforehand must not shine through.
  const buffer = createTransmitBuffer(new Uint8Array(room).fill(0xa5));
  for (const ulpdu of ulpdus) {
    framer.begin(buffer, ulpdu.length);
    framer.target.bytes.set(ulpdu, framer.at);
    framer.finish(buffer, ulpdu.length);
  }
  if (framer.position !== (options.streamOffset ?? 0) + buffer.end)
    throw new Error('the framer lost count of its position');
  return buffer.bytes.slice(0, buffer.end);
}

/** Keeps every ULPDU; answers with `verdict`. */
class Collector implements UlpduSink {
  readonly ulpdus: Uint8Array[] = [];
  verdict: number = FINE;

  handleUlpdu(bytes: Uint8Array, start: number, length: number): number {
    this.ulpdus.push(bytes.slice(start, start + length));
    return this.verdict;
  }
}

interface Deframed {
  readonly ulpdus: readonly Uint8Array[];
  readonly code: number;
  readonly deframer: Deframer;
  readonly pool: ReturnType<typeof reassemblyPool>;
}

/**
 * What our deframer makes of `stream`, given in pieces that end at `cuts`. Each piece lies at an odd place in
 * separate memory, which is overwritten when the call returns: a borrowed octet that is kept is found out.
 */
export function deframe(stream: Uint8Array, options: FramingOptions, cuts: readonly number[] = []): Deframed {
  const sink = new Collector();
  const pool = reassemblyPool(engine);
  const deframer = createDeframer(
    options.markers ? engine.runs : null,
    options.crc ? engine : null,
    sink,
    pool,
  );
  deframer.phase = markerPhase(options.streamOffset ?? 0);
  let code: number = FINE;
  let from = 0;
  for (const to of [...cuts, stream.length]) {
    const memory = new Uint8Array(to - from + 7).fill(0x5a);
    memory.set(stream.subarray(from, to), 3);
    code = deframer.handleBytes(memory, 3, 3 + to - from);
    memory.fill(0xdb);
    from = to;
    if (code !== FINE) break;
  }
  return { ulpdus: sink.ulpdus, code, deframer, pool };
}

/** `length` octets that tell their place: octet i is (first + i) mod 256. */
export function count(length: number, first = 0): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (first + i) & 0xff);
}

/** The same ULPDUs; far quicker than a deep comparison, for loops over every cut. */
export function sameUlpdus(a: readonly Uint8Array[], b: readonly Uint8Array[]): boolean {
  return a.length === b.length && a.every((ulpdu, i) => Buffer.compare(ulpdu, b[i]!) === 0);
}
