/**
 * CRC32c in WebAssembly without SIMD: slicing by 16. Read polynomial.ts first (tables and why look-ups may be
 * added up), emit.ts for the notation. The loop is the one of js.ts; what it gains is that loads need no
 * bounds check and tables no base register: each table's address is the immediate offset of its load.
 */
import { IwarpError } from '../base/errors.ts';
import { i32, ModuleBuilder, sequence, tree, when, whileDo } from './emit.ts';
import type { Code, FunctionReference, Local } from './emit.ts';
import type { Crc32cEngine } from './types.ts';
import { webAssembly } from './host.ts';
import { slicingTables } from './polynomial.ts';
import { defineRuns } from './runs.ts';
import { WasmEngine } from './wasm-engine.ts';

/** Sixteen tables of 256 words at the start of memory. */
const TABLES = 0;
const TABLE_OCTETS = 1024;
export const SLICING_TABLES_END: number = TABLES + 16 * TABLE_OCTETS;

export function fillSlicingTables(memory: ArrayBuffer): void {
  new Int32Array(memory, TABLES).set(slicingTables());
}

/** Add crc32c(register, address, bytes) -> register by slicing to a module. */
export function defineSlicing(module: ModuleBuilder): FunctionReference {
  return module.define(3, (f, register, address, octets) => {
    const words = f.locals('i32', 4);
    return sequence(
      whileDo(
        i32.atLeast(octets.get, i32.const(16)),
        sliceWords(register, address, words),
        octets.advance(-16),
      ),
      when(i32.and(octets.get, i32.const(8)), sliceWords(register, address, words.slice(0, 2))),
      when(i32.and(octets.get, i32.const(4)), sliceWords(register, address, words.slice(0, 1))),
      octets.set(i32.and(octets.get, i32.const(3))),
      whileDo(octets.get, sliceOctet(register, address), octets.advance(-1)),
      register.get,
    );
  });
}

/** Run the register over as many words as there are locals, and move the address after them. */
function sliceWords(register: Local, address: Local, words: readonly Local[]): Code {
  const loads = words.map((word, index) => {
    const loaded = i32.load(address.get, 4 * index);
    return word.set(index === 0 ? i32.xor(loaded, register.get) : loaded);
  });
  // Octet j of the 4·n has 4·n-1-j octets after it, the index of its table.
  const lookups = words.map((word, index) =>
    [0, 1, 2, 3].map((octet) => lookUp(4 * words.length - 1 - (4 * index + octet), octetOf(word.get, octet))),
  );
  // Only the first word waits for the register of the round before: its look-ups come last, after all the
  // others.
  const [first = [], ...others] = lookups;
  const independent = others.length > 0 ? [tree(i32.xor, others.flat())] : [];
  return sequence(
    ...loads,
    register.set(tree(i32.xor, [...independent, tree(i32.xor, first)])),
    address.advance(4 * words.length),
  );
}

function sliceOctet(register: Local, address: Local): Code {
  const index = i32.and(i32.xor(i32.load8(address.get), register.get), i32.const(255));
  const shifted = i32.shiftRight(register.get, i32.const(8));
  return sequence(
    register.set(i32.xor(shifted, lookUp(0, i32.shiftLeft(index, i32.const(2))))),
    address.advance(1),
  );
}

/** Byte 0 to 3 of a word, times four: the place in a table of words. */
function octetOf(word: Code, octet: number): Code {
  if (octet === 0) return i32.shiftLeft(i32.and(word, i32.const(255)), i32.const(2));
  if (octet === 3) return i32.shiftLeft(i32.shiftRight(word, i32.const(24)), i32.const(2));
  return i32.and(i32.shiftRight(word, i32.const(8 * octet - 2)), i32.const(0x3fc));
}

function lookUp(table: number, place: Code): Code {
  return i32.load(place, TABLES + TABLE_OCTETS * table);
}

/** The module without SIMD: one export, crc32c(register, address, bytes) -> register. */
function emitWasmModule(): Uint8Array {
  const module = new ModuleBuilder('env', 'memory');
  module.export('crc32c', defineSlicing(module));
  defineRuns(module, false);
  return module.toBytes();
}

export function wasmSupported(): boolean {
  return webAssembly?.validate(emitWasmModule()) ?? false;
}

export function createWasmEngine(): Crc32cEngine {
  if (webAssembly === undefined) throw new IwarpError('ERR_NOT_SUPPORTED', 'this host has no WebAssembly');
  return new WasmEngine({
    name: 'wasm',
    module: new webAssembly.Module(emitWasmModule()),
    reserved: SLICING_TABLES_END,
    fillTables: fillSlicingTables,
  });
}
