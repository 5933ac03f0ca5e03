/**
 * A small assembler for WebAssembly's binary format: enough for the CRC32c kernels, and no more. Read the
 * WebAssembly core specification, chapter 5 (Binary Format), with its section 5.4.8 for vector instructions;
 * every number below is from there.
 *
 * Code is a tree of bytes, and an instruction is a function from its operands' code to its own: operands are
 * emitted first, then the opcode, which is the order of a stack machine. So an expression tree of calls *is*
 * the program. It is flattened once, at the end: flattening at every level would take most of the time that
 * loading takes.
 *
 * ```ts
 * const module = new ModuleBuilder('env', 'memory');
 * const sum = module.define(2, (_, a, b) => i32.add(a.get, b.get));
 * module.export('sum', sum);
 * new WebAssembly.Module(module.toBytes());
 * ```
 *
 * Nothing is checked here; WebAssembly.Module checks types and structure when it compiles.
 */
import { TextEncoder } from '../base/host.ts';

export type Code = readonly (number | Code)[];
type ValueType = 'i32' | 'v128';

const VALUE_TYPES = { i32: 0x7f, v128: 0x7b } as const;
const NO_RESULT = 0x40;
const END = 0x0b;

/** Instructions and operands one after the other. */
export function sequence(...parts: readonly Code[]): Code {
  return parts;
}

// --- numbers
// ---------------------------------------------------------------------------------------------------------

/** Unsigned LEB128: seven bits a byte, lowest first, the top bit says that more follow. */
function unsigned(value: number): Code {
  const octets: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest = Math.floor(rest / 128)) octets.push((rest % 128) | 0x80);
  octets.push(rest);
  return octets;
}

/** Signed LEB128 of a 32-bit integer: the last octet's bit 6 is the sign. */
function signed(value: number): Code {
  const octets: number[] = [];
  let rest = value | 0;
  while (rest < -64 || rest > 63) {
    octets.push((rest & 0x7f) | 0x80);
    rest >>= 7;
  }
  octets.push(rest & 0x7f);
  return octets;
}

/** A vector of the format: its length, then its items. */
function vector(items: readonly Code[]): Code {
  return [unsigned(items.length), ...items];
}

/** The bytes of a tree, in order. */
function flatten(code: Code, octets: number[] = []): number[] {
  for (const item of code) {
    if (typeof item === 'number') octets.push(item);
    else flatten(item, octets);
  }
  return octets;
}

function text(value: string): Code {
  return vector(Array.from(new TextEncoder().encode(value), (octet) => [octet]));
}

// --- instructions
// ----------------------------------------------------------------------------------------------------

type Operation = (...operands: readonly Code[]) => Code;
type Load = (address: Code, offset?: number) => Code;
type Store = (address: Code, value: Code, offset?: number) => Code;

const operation =
  (...opcode: Code): Operation =>
  (...operands) => [...operands, ...opcode];

// The alignment of a memory instruction is a hint (a power of two, here always 2^0: any address); the offset
// is added to the address.
const load =
  (...opcode: Code): Load =>
  (address, offset = 0) => [address, ...opcode, 0, unsigned(offset)];

const store =
  (...opcode: Code): Store =>
  (address, value, offset = 0) => [address, value, ...opcode, 0, unsigned(offset)];

/** Vector instructions: a prefix byte, then the number as LEB128. */
const vectorOpcode = (number: number): Code => [0xfd, unsigned(number)];

interface I32Instructions {
  readonly const: (value: number) => Code;
  readonly load: Load;
  readonly load8: Load;
  readonly store8: Store;
  readonly isZero: Operation;
  readonly below: Operation;
  readonly atLeast: Operation;
  readonly add: Operation;
  readonly sub: Operation;
  readonly and: Operation;
  readonly xor: Operation;
  readonly shiftLeft: Operation;
  readonly shiftRight: Operation;
}

/** 32-bit integers; comparisons and the shift to the right are the unsigned ones. */
export const i32: I32Instructions = {
  const: (value) => [0x41, signed(value)],
  load: load(0x28),
  load8: load(0x2d),
  store8: store(0x3a),
  isZero: operation(0x45),
  below: operation(0x49),
  atLeast: operation(0x4f),
  add: operation(0x6a),
  sub: operation(0x6b),
  and: operation(0x71),
  xor: operation(0x73),
  shiftLeft: operation(0x74),
  shiftRight: operation(0x76),
};

interface V128Instructions {
  readonly zero: Code;
  readonly load: Load;
  readonly store: Store;
  readonly and: Operation;
  readonly xor: Operation;
  readonly swizzle: Operation;
  readonly splat8: Operation;
  readonly shiftRight16: Operation;
  readonly firstLane: Operation;
}

/** Vectors of sixteen bytes. */
export const v128: V128Instructions = {
  zero: [vectorOpcode(12), Array.from({ length: 16 }, () => 0)],
  load: load(vectorOpcode(0)),
  store: store(vectorOpcode(11)),
  and: operation(vectorOpcode(78)),
  xor: operation(vectorOpcode(81)),
  /** (table, indices): the table's byte at each index below 16, else 0. */
  swizzle: operation(vectorOpcode(14)),
  /** The low byte of an i32 in all sixteen. */
  splat8: operation(vectorOpcode(15)),
  /** (vector, count): each of the eight 16-bit lanes shifted to the right. */
  shiftRight16: operation(vectorOpcode(141)),
  /** (vector, value): the vector with its first 32-bit lane replaced. */
  firstLane: operation(vectorOpcode(28), 0),
};

/** (address, byte value, count) */
export const fillMemory: Operation = operation(0xfc, 11, 0);
/** (to, from, count), overlap allowed. */
export const copyMemory: Operation = operation(0xfc, 10, 0, 0);
/** (a, b, condition): a if the condition is not 0, else b; both are evaluated. */
export const select: Operation = operation(0x1b);
export const returnValue: Operation = operation(0x0f);

/**
 * Fold code with a two-operand instruction as a balanced tree: the shortest chain of dependent instructions.
 */
export function tree(combine: Operation, leaves: readonly Code[]): Code {
  if (leaves.length <= 1) return leaves[0] ?? [];
  const half = leaves.length >> 1;
  return combine(tree(combine, leaves.slice(0, half)), tree(combine, leaves.slice(half)));
}

// --- control
// ---------------------------------------------------------------------------------------------------------

const BLOCK = 0x02;
const LOOP = 0x03;
const IF = 0x04;
const BRANCH = 0x0c;
const BRANCH_IF = 0x0d;

/** Run the body while the condition is not 0, asking first. */
export function whileDo(condition: Code, ...body: readonly Code[]): Code {
  // Branch 1 leaves the block, branch 0 starts the loop again.
  const round = [i32.isZero(condition), BRANCH_IF, 1, ...body, BRANCH, 0];
  return [BLOCK, NO_RESULT, LOOP, NO_RESULT, round, END, END];
}

/** Run the body, and again while the condition is not 0. */
export function doWhile(condition: Code, ...body: readonly Code[]): Code {
  return [LOOP, NO_RESULT, ...body, condition, BRANCH_IF, 0, END];
}

/** Run the body if the condition is not 0. */
export function when(condition: Code, ...body: readonly Code[]): Code {
  return [condition, IF, NO_RESULT, ...body, END];
}

// --- functions and the module
// ----------------------------------------------------------------------------------------

export interface Local {
  /** Push the value. */
  readonly get: Code;
  /** Store a value. */
  set(value: Code): Code;
  /** Add a constant: `set(add(get, const))`. For i32. */
  advance(amount: number): Code;
}

export interface FunctionReference {
  readonly index: number;
  call(...operands: readonly Code[]): Code;
}

/** Hands out the locals of the function that is being defined. */
export class FunctionBuilder {
  readonly types: ValueType[] = [];
  readonly #parameters: number;

  constructor(parameters: number) {
    this.#parameters = parameters;
  }

  local(type: ValueType): Local {
    this.types.push(type);
    return localAt(this.#parameters + this.types.length - 1);
  }

  locals(type: ValueType, count: number): Local[] {
    return Array.from({ length: count }, () => this.local(type));
  }
}

function localAt(index: number): Local {
  const get: Code = [0x20, unsigned(index)];
  const set = (value: Code): Code => [value, 0x21, unsigned(index)];
  return { get, set, advance: (amount) => set(i32.add(get, i32.const(amount))) };
}

interface Definition {
  readonly parameters: number;
  readonly locals: readonly ValueType[];
  readonly body: Code;
}

const MAGIC_AND_VERSION: Code = [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
const SECTIONS = { type: 1, import: 2, function: 3, export: 7, code: 10 } as const;

/** A module that imports one memory; its functions take i32 parameters and return one i32. */
export class ModuleBuilder {
  readonly #memoryModule: string;
  readonly #memoryName: string;
  readonly #definitions: Definition[] = [];
  readonly #exports: Code[] = [];

  constructor(memoryModule: string, memoryName: string) {
    this.#memoryModule = memoryModule;
    this.#memoryName = memoryName;
  }

  define(
    parameters: number,
    build: (builder: FunctionBuilder, ...locals: Local[]) => Code,
  ): FunctionReference {
    const builder = new FunctionBuilder(parameters);
    const body = build(builder, ...Array.from({ length: parameters }, (_, index) => localAt(index)));
    const index = this.#definitions.push({ parameters, locals: builder.types, body }) - 1;
    return { index, call: operation(0x10, unsigned(index)) };
  }

  export(name: string, reference: FunctionReference): void {
    this.#exports.push([text(name), 0x00, unsigned(reference.index)]);
  }

  toBytes(): Uint8Array {
    const section = (id: number, items: readonly Code[]): Code => {
      const content = flatten(vector(items));
      return [id, unsigned(content.length), content];
    };
    const types = this.#definitions.map(({ parameters }) => [
      0x60,
      vector(Array.from({ length: parameters }, () => [VALUE_TYPES.i32])),
      vector([[VALUE_TYPES.i32]]),
    ]);
    // Kind 2 is memory; limits without a maximum, of at least one page, accept any unshared memory.
    const memory = [text(this.#memoryModule), text(this.#memoryName), 0x02, 0x00, 1];
    const codes = this.#definitions.map(({ locals, body }) => {
      const content = flatten([vector(locals.map((type) => [1, VALUE_TYPES[type]])), body, END]);
      return [unsigned(content.length), content];
    });
    return Uint8Array.from(
      flatten([
        MAGIC_AND_VERSION,
        section(SECTIONS.type, types),
        section(SECTIONS.import, [memory]),
        section(
          SECTIONS.function,
          this.#definitions.map((_, index) => unsigned(index)),
        ),
        section(SECTIONS.export, this.#exports),
        section(SECTIONS.code, codes),
      ]),
    );
  }
}
