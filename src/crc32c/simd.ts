/**
 * CRC32c in WebAssembly with SIMD, without a carry-less multiplication (WebAssembly has none): a message is
 * made shorter and shorter by adding multiples of the CRC polynomial, until so little is left that tables are
 * fast enough. Read polynomial.ts first, whose (2) says why that is allowed, and emit.ts for the notation.
 *
 * 1. Sparse multiples. Let Z(x) = 1 + x^a + x^b + ... + x^n be a multiple of P with few terms. Squaring a
 *    polynomial over GF(2) squares
 * each term, (f + g)^2 = f^2 + g^2, so Z(x)^8 = 1 + x^(8a) + x^(8b) + ... + x^(8n), a multiple of P again,
 * whose distances are whole bytes. Add y·x^k·Z^8 to the message, with y one byte of it: that byte becomes
 * zero and y is xored into the bytes at certain distances after it. Doing so for every byte from the front,
 * in order, so that bytes xored in before are taken along, is
 *
 *     s[i] = m[i] ^ s[i-d1] ^ s[i-d2] ^ ... ^ s[i-n]          (s before the start is 0)
 *
 * where s[i] is the byte to be removed. (Z's terms from the other end: a byte at the position of x^n
 * reaches those at distance n-a, n-b, ..., n. So the distances d are n minus Z's exponents, and n.) Once all
 * but the last R >= n bytes are removed, the last R are m[i] ^ s[i-d1] ^ ... with s counted as 0 within
 * them, and *their* CRC, from register 0, is the CRC of the whole. Sixteen bytes at a time this is nothing
 * but unaligned loads and xors. The smallest distance must not be smaller than the 32 bytes a round works
 * on; it has to be larger still, because loads that overlap stores still in flight wait for them.
 *
 * The distances were found by exhaustive search; readers can check them by powerOfOctets: the sum of
 * x^(8(n-d)) over d = 0, d1, ... is 0 mod P (test/crc32c/simd.test.ts does). P has the factor x + 1, so every
 * multiple has an even number of terms: three xors are the fewest and need n in the thousands, five xors are
 * possible with n in the hundreds. Hence two stages: the first for long input leaves some 5.7 thousand
 * bytes, the second some 300.
 *
 * 2. Swizzle. For 256 bytes and more the rest is folded by vectors: a byte y in a vector is replaced
 *    by four bytes in the same lane of the vectors 2, 3, 5 and 7 further on. A byte with 16·v bytes
 *    after its lane up to a common reference counts y·x^32·x^(8·16·v), so the wanted sum is
 *
 *     y·x^32·x^(8·16·7) = (y2·x^(8·16·5) + y3·x^(8·16·4) + y5·x^(8·16·2) + y7)·x^32  mod P
 *
 * 32 linear equations for the 32 bits of y2, y3, y5, y7. They have one solution for every y, because the 32
 * products on the right are linearly independent (not so for 2, 3, 4, 5); solved once at start. The solution
 * is linear in y, so it is the sum of one part for y's low and one for its high four bits: eight tables of
 * sixteen bytes, just what i8x16.swizzle looks up.
 *
 * 3. The last 112 to 127 bytes, and any input below 256, go through the slicing tables of wasm.ts.
 */
import { IwarpError } from '../base/errors.ts';
import {
  copyMemory,
  doWhile,
  fillMemory,
  i32,
  ModuleBuilder,
  returnValue,
  select,
  sequence,
  tree,
  v128,
  when,
  whileDo,
} from './emit.ts';
import type { Code, FunctionReference, Local } from './emit.ts';
import type { Crc32cEngine } from './types.ts';
import { webAssembly } from './host.ts';
import { multiply, powerOfOctets } from './polynomial.ts';
import { defineRuns } from './runs.ts';
import { defineSlicing, fillSlicingTables, SLICING_TABLES_END } from './wasm.ts';
import { WasmEngine } from './wasm-engine.ts';

/** A stage that removes bytes by a sparse multiple. */
interface SparseStage {
  /** Distances in bytes, ascending; the last is the reach n. */
  readonly distances: readonly number[];
  /** Input from this many bytes up goes through this stage. */
  readonly from: number;
  /** Where s is kept: the last n bytes of it, a block of new ones, and zeros for the rest. */
  readonly scratch: number;
  /**
   * Bytes of s computed between two moves to the front of scratch: the scratch stays in the level-1 cache.
   */
  readonly block: number;
  /** Where the bytes that are left go. */
  readonly tail: number;
}

/**
 * Addresses in memory; the tails and scratch areas of the stages lie between `folded` and `end`. That none
 * overlap is tested.
 */
export const SIMD_MEMORY: { readonly swizzleTables: number; readonly folded: number; readonly end: number } =
  {
    swizzleTables: SLICING_TABLES_END,
    folded: 17_152,
    end: 131_072,
  };

/**
 * Both stages, long input first. Thresholds by bench/micro/crc32c.ts; below them the next stage is faster.
 */
export const SPARSE_STAGES: readonly [SparseStage, SparseStage] = [
  { distances: [4323, 5259, 5685], from: 24_576, scratch: 49_152, block: 32_768, tail: 17_408 },
  { distances: [154, 177, 183, 258, 290], from: 600, scratch: 32_768, block: 8192, tail: 26_624 },
];

/** Bytes from which the swizzle fold is faster than slicing (bench/micro/crc32c.ts). */
const SWIZZLE_FROM = 256;
/** How many vectors ahead a byte is moved; the furthest is the number of vectors left at the end. */
export const SWIZZLE_DISTANCES = [2, 3, 5, 7] as const;
export const SWIZZLE_REACH = 7;

/**
 * Vectors a round of a sparse stage works on. Two beat four by a third in the second stage: with four the
 * loads come too close after the stores that they overlap (bench/micro/crc32c.ts at 1460 and 4096 bytes).
 */
const UNROLL = 2;
const ROUND = 16 * UNROLL;

/** The module with SIMD: one export, crc32c(register, address, bytes) -> register. */
export function emitSimdModule(): Uint8Array {
  const module = new ModuleBuilder('env', 'memory');
  const slicing = defineSlicing(module);
  const swizzle = defineSwizzleFold(module, slicing);
  const stages = SPARSE_STAGES.map((stage) => ({ stage, remove: defineSparse(module, stage) }));
  const crc32c = module.define(3, (_, register, address, octets) =>
    sequence(
      ...stages.map(({ stage, remove }) =>
        when(
          i32.atLeast(octets.get, i32.const(stage.from)),
          octets.set(remove.call(register.get, address.get, octets.get)),
          address.set(i32.const(stage.tail)),
          register.set(i32.const(0)),
        ),
      ),
      when(
        i32.atLeast(octets.get, i32.const(SWIZZLE_FROM)),
        returnValue(swizzle.call(register.get, address.get, octets.get)),
      ),
      slicing.call(register.get, address.get, octets.get),
    ),
  );
  module.export('crc32c', crc32c);
  defineRuns(module, true);
  return module.toBytes();
}

/**
 * (register, address, bytes) -> bytes left: removes all but n to n + 31 bytes and writes those to
 * stage.tail.
 *
 * `at` is the address in scratch from which s[i-n] of the vector at hand is loaded, so that the distances
 * become immediate offsets n - d of loads, and s[i] is stored at offset n. Zeros stand before the first s
 * only as far back as the first gathering looks, and behind the last one only as far on as that of the tail
 * does.
 */
function defineSparse(module: ModuleBuilder, stage: SparseStage): FunctionReference {
  const { distances, scratch, block } = stage;
  const reach = Math.max(...distances);
  const nearest = Math.min(...distances);
  // No octet that is removed reaches these: their s is the message itself.
  const head = nearest - (nearest % ROUND);
  return module.define(3, (f, register, address, octets) => {
    const [at, blockEnd, left, rest] = f.locals('i32', 4) as [Local, Local, Local, Local];
    const vectors = f.locals('v128', UNROLL);
    const gather = (offset: number): Code =>
      tree(
        v128.xor,
        distances.map((distance) => v128.load(at.get, reach - distance + offset)),
      );

    const round = sequence(
      ...vectors.map((vector, index) =>
        vector.set(v128.xor(v128.load(address.get, 16 * index), gather(16 * index))),
      ),
      ...vectors.map((vector, index) => v128.store(at.get, vector.get, reach + 16 * index)),
      address.advance(ROUND),
      at.advance(ROUND),
    );

    return sequence(
      left.set(i32.and(i32.sub(octets.get, i32.const(reach)), i32.const(-ROUND))),
      rest.set(i32.sub(octets.get, left.get)),
      at.set(i32.const(scratch)),
      clear(at.get, head, reach - head),
      copy({ target: at.get, offset: reach, source: address.get, octets: head }),
      // (1) of polynomial.ts: the register goes into the first four octets.
      v128.store(at.get, v128.xor(v128.load(at.get, reach), v128.firstLane(v128.zero, register.get)), reach),
      address.advance(head),
      at.advance(head),
      doWhile(
        left.get,
        blockEnd.set(select(left.get, i32.const(block), i32.below(left.get, i32.const(block)))),
        left.set(i32.sub(left.get, blockEnd.get)),
        blockEnd.set(i32.add(blockEnd.get, i32.const(scratch))),
        doWhile(i32.below(at.get, blockEnd.get), round),
        when(left.get, copyMemory(i32.const(scratch), at.get, i32.const(reach)), at.set(i32.const(scratch))),
      ),
      clear(at.get, reach, reach - nearest + ROUND),
      writeTail(stage, { at, address, out: left, rest }, gather),
      rest.get,
    );
  });
}

/**
 * Beyond this many bytes memory.fill and memory.copy; up to it a row of stores, for such a call takes a
 * tenth of the whole time at 1000 bytes.
 */
const ROW = 512;
const row = (octets: number, one: (offset: number) => Code): Code =>
  sequence(...Array.from({ length: Math.ceil(octets / 16) }, (_, index) => one(16 * index)));

/** Zero `octets` from `target` + `offset` on; in a row of stores up to 15 more. */
function clear(target: Code, offset: number, octets: number): Code {
  if (octets > ROW) return fillMemory(i32.add(target, i32.const(offset)), i32.const(0), i32.const(octets));
  return row(octets, (at) => v128.store(target, v128.zero, offset + at));
}

/** Copy whole vectors from `source` to `target` + `offset`. */
function copy({
  target,
  offset,
  source,
  octets,
}: {
  target: Code;
  offset: number;
  source: Code;
  octets: number;
}): Code {
  if (octets > ROW) return copyMemory(i32.add(target, i32.const(offset)), source, i32.const(octets));
  return row(octets, (at) => v128.store(target, v128.load(source, at), offset + at));
}

interface TailLocals {
  readonly at: Local;
  readonly address: Local;
  readonly out: Local;
  readonly rest: Local;
}

/**
 * tail[i] = m[i] ^ gathered s, a round at a time; the last one steps back so as to end with the input, and
 * writes some bytes again.
 */
function writeTail(
  stage: SparseStage,
  { at, address, out, rest }: TailLocals,
  gather: (offset: number) => Code,
): Code {
  const one = row(ROUND, (offset) =>
    v128.store(out.get, v128.xor(v128.load(address.get, offset), gather(offset)), offset),
  );
  const locals = [at, address, out];
  const odd = i32.and(rest.get, i32.const(ROUND - 1));
  const whole = i32.and(rest.get, i32.const(-ROUND));
  const stepBack = i32.sub(i32.const(ROUND), odd);
  return sequence(
    out.set(i32.const(stage.tail)),
    doWhile(
      i32.below(out.get, i32.add(i32.const(stage.tail), whole)),
      one,
      ...locals.map((local) => local.advance(ROUND)),
    ),
    when(odd, ...locals.map((local) => local.set(i32.sub(local.get, stepBack))), one),
  );
}

/**
 * (register, address, bytes) -> register, for 240 bytes and more. Eight vectors s0..s7 hold what earlier
 * vectors have sent ahead: s of number i mod 8 is xored into vector i. The furthest target, 7 ahead, is the
 * one that vector i - 1 has just used up, so it is overwritten instead of added to.
 */
function defineSwizzleFold(module: ModuleBuilder, slicing: FunctionReference): FunctionReference {
  return module.define(3, (f, register, address, octets) => {
    const tables = f.locals('v128', 2 * SWIZZLE_DISTANCES.length);
    const ahead = f.locals('v128', 8);
    const [vector, low, high, mask] = f.locals('v128', 4) as [Local, Local, Local, Local];
    const [count, end] = f.locals('i32', 2) as [Local, Local];

    const fold = (index: number, own: number): Code =>
      sequence(
        vector.set(v128.xor(v128.load(address.get, 16 * index), (ahead[own] as Local).get)),
        low.set(v128.and(vector.get, mask.get)),
        high.set(v128.and(v128.shiftRight16(vector.get, i32.const(4)), mask.get)),
        ...SWIZZLE_DISTANCES.map((distance, number) => {
          const target = ahead[(own + distance) % 8] as Local;
          const lowTable = (tables[2 * number] as Local).get;
          const highTable = (tables[2 * number + 1] as Local).get;
          const sent = v128.xor(v128.swizzle(lowTable, low.get), v128.swizzle(highTable, high.get));
          return target.set(distance === SWIZZLE_REACH ? sent : v128.xor(target.get, sent));
        }),
      );
    const eight = sequence(...ahead.map((_, index) => fold(index, index)), address.advance(128));
    // One vector at a time everything moves up by one instead.
    const moveUp = ahead.slice(1).map((local, index) => (ahead[index] as Local).set(local.get));

    const keep = 16 * SWIZZLE_REACH;
    return sequence(
      ...tables.map((table, index) => table.set(v128.load(i32.const(SIMD_MEMORY.swizzleTables), 16 * index))),
      mask.set(v128.splat8(i32.const(15))),
      (ahead[0] as Local).set(v128.firstLane(v128.zero, register.get)),
      count.set(i32.shiftRight(i32.sub(octets.get, i32.const(keep)), i32.const(4))),
      octets.set(i32.sub(octets.get, i32.shiftLeft(count.get, i32.const(4)))),
      end.set(i32.add(address.get, i32.shiftLeft(i32.shiftRight(count.get, i32.const(3)), i32.const(7)))),
      doWhile(i32.below(address.get, end.get), eight),
      count.set(i32.and(count.get, i32.const(7))),
      whileDo(count.get, fold(0, 0), ...moveUp, address.advance(16), count.advance(-1)),
      ...ahead
        .slice(0, SWIZZLE_REACH)
        .map((local, index) =>
          v128.store(
            i32.const(SIMD_MEMORY.folded),
            v128.xor(v128.load(address.get, 16 * index), local.get),
            16 * index,
          ),
        ),
      slicing.call(
        slicing.call(i32.const(0), i32.const(SIMD_MEMORY.folded), i32.const(keep)),
        i32.add(address.get, i32.const(keep)),
        i32.sub(octets.get, i32.const(keep)),
      ),
    );
  });
}

/**
 * The eight tables: for each distance the byte sent ahead for the sixteen low halves, then for the sixteen
 * high ones.
 */
export function swizzleTables(): Uint8Array {
  // The contribution of each of the 32 unknown bits: bit `bit` of the octet for distance number `number`.
  const columns = SWIZZLE_DISTANCES.flatMap((distance) => {
    const power = powerOfOctets(16 * (SWIZZLE_REACH - distance));
    return Array.from({ length: 8 }, (_, bit) => multiply(octetTerm(1 << bit), power));
  });
  const solve = solver(columns);
  const furthest = powerOfOctets(16 * SWIZZLE_REACH);
  const result = new Uint8Array(2 * SWIZZLE_DISTANCES.length * 16);
  for (let half = 0; half < 2; half++) {
    for (let value = 0; value < 16; value++) {
      const bits = solve(multiply(octetTerm(value << (4 * half)), furthest));
      SWIZZLE_DISTANCES.forEach((_, number) => {
        result[(2 * number + half) * 16 + value] = (bits >>> (8 * number)) & 255;
      });
    }
  }
  return result;
}

/**
 * A byte y as y·x^32 mod P, which is what it adds to the register: y has the layout of y·x^24 in the
 * register already.
 */
function octetTerm(octet: number): number {
  return multiply(octet, powerOfOctets(1));
}

/**
 * Gaussian elimination over GF(2): a function that returns which of the 32 independent columns xor to a given
 * word, as bits.
 */
function solver(columns: readonly number[]): (word: number) => number {
  // pivots[b] is a sum of columns whose highest bit is b; `bits` says of which.
  const pivots: ({ readonly word: number; readonly bits: number } | undefined)[] = [];
  const reduce = (word: number, bits: number): { word: number; bits: number } => {
    let [restWord, restBits] = [word, bits];
    for (let bit = 31; bit >= 0; bit--) {
      const pivot = pivots[bit];
      if (pivot === undefined || ((restWord >>> bit) & 1) === 0) continue;
      restWord ^= pivot.word;
      restBits ^= pivot.bits;
    }
    return { word: restWord, bits: restBits };
  };
  columns.forEach((column, index) => {
    const rest = reduce(column, 1 << index);
    // A zero rest would mean dependent columns: the distances above are chosen so that there are none.
    if (rest.word !== 0) pivots[31 - Math.clz32(rest.word)] = rest;
  });
  return (word) => reduce(word, 0).bits;
}

function fillSimdTables(memory: ArrayBuffer): void {
  fillSlicingTables(memory);
  new Uint8Array(memory, SIMD_MEMORY.swizzleTables).set(swizzleTables());
}

export function simdSupported(): boolean {
  return webAssembly?.validate(emitSimdModule()) ?? false;
}

export function createSimdEngine(): Crc32cEngine {
  if (webAssembly === undefined) throw new IwarpError('ERR_NOT_SUPPORTED', 'this host has no WebAssembly');
  return new WasmEngine({
    name: 'simd',
    module: new webAssembly.Module(emitSimdModule()),
    reserved: SIMD_MEMORY.end,
    fillTables: fillSimdTables,
  });
}
