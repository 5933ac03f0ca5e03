/**
 * Moving bytes in runs that stand 512 apart on one side and lie close together on the other: what MPA's
 * markers (RFC 5044 4.3) ask for at full speed. It lives here because the engine's memory and its assembler
 * do; read emit.ts for the notation.
 *
 * A call of `set` for each run of 508 bytes costs more than moving them. One call into WebAssembly moves
 * them all, with vectors where the host has them: the framer with markers in bench/micro/codec.ts.
 */
import { copyMemory, doWhile, i32, sequence, v128 } from './emit.ts';
import type { Code, ModuleBuilder } from './emit.ts';

/** Bytes between two markers, and from one marker to the next. */
export const RUN_OCTETS = 508;
export const RUN_SPACING = 512;
const GAP = RUN_SPACING - RUN_OCTETS;
const VECTOR = 16;

/** Enough for one FPDU of any lawful length. */
export const RUN_SCRATCH_OCTETS: number = 68 << 10;

/**
 * Run moving, on any memory. Source and target do not overlap; there is room for `runs` of 512 bytes where
 * they go.
 */
export interface RunKernel {
  /**
   * Work areas for the duration of a call, shared by all users of the engine: one for spreading, one for
   * collecting.
   */
  spreadScratch(): Uint8Array;
  collectScratch(): Uint8Array;
  /**
   * `runs` times (> 0): four bytes with `pointer` big-endian in the last two, then the next 508 bytes of
   * `source`. `pointer` grows by 512 each time.
   */
  insertMarkers(
    source: Uint8Array,
    from: number,
    target: Uint8Array,
    to: number,
    runs: number,
    pointer: number,
  ): void;
  /** `runs` times (> 0): leave four bytes of `source` out, take the 508 after them. */
  removeMarkers(source: Uint8Array, from: number, target: Uint8Array, to: number, runs: number): void;
}

/**
 * Add insertMarkers(to, from, runs, pointer) and removeMarkers(to, from, runs) to a module and export them.
 */
export function defineRuns(module: ModuleBuilder, vectors: boolean): void {
  const insertMarkers = module.define(4, (_, to, from, runs, pointer) => {
    const high = i32.and(i32.shiftRight(pointer!.get, i32.const(8)), i32.const(0xff));
    return sequence(
      doWhile(
        runs!.get,
        i32.store8(to!.get, i32.const(0)),
        i32.store8(to!.get, i32.const(0), 1),
        i32.store8(to!.get, high, 2),
        i32.store8(to!.get, pointer!.get, 3),
        moveRun(to!.get, GAP, from!.get, 0, vectors),
        to!.advance(RUN_SPACING),
        from!.advance(RUN_OCTETS),
        pointer!.advance(RUN_SPACING),
        runs!.advance(-1),
      ),
      to!.get,
    );
  });
  const removeMarkers = module.define(3, (_, to, from, runs) =>
    sequence(
      doWhile(
        runs!.get,
        moveRun(to!.get, 0, from!.get, GAP, vectors),
        to!.advance(RUN_OCTETS),
        from!.advance(RUN_SPACING),
        runs!.advance(-1),
      ),
      to!.get,
    ),
  );
  module.export('insertMarkers', insertMarkers);
  module.export('removeMarkers', removeMarkers);
}

/** 508 octets: 31 vectors and one more that overlaps the last of them, or one instruction. */
function moveRun(to: Code, toOffset: number, from: Code, fromOffset: number, vectors: boolean): Code {
  if (!vectors) {
    return copyMemory(
      i32.add(to, i32.const(toOffset)),
      i32.add(from, i32.const(fromOffset)),
      i32.const(RUN_OCTETS),
    );
  }
  const places = Array.from({ length: Math.floor(RUN_OCTETS / VECTOR) }, (_, i) => VECTOR * i);
  places.push(RUN_OCTETS - VECTOR);
  return sequence(
    ...places.map((place) => v128.store(to, v128.load(from, fromOffset + place), toOffset + place)),
  );
}
