/** The assembler: what it emits runs and does what the notation says. */
import { describe, expect, it } from 'vitest';
import {
  copyMemory,
  doWhile,
  fillMemory,
  i32,
  ModuleBuilder,
  select,
  sequence,
  tree,
  v128,
  when,
  whileDo,
} from '../../src/crc32c/emit.ts';
import type { Code, FunctionBuilder, Local } from '../../src/crc32c/emit.ts';
import { webAssembly } from '../../src/crc32c/host.ts';

type Fn = (...values: number[]) => number;

/** Assemble one function over a memory of two pages, and load it. */
function load(
  parameters: number,
  build: (f: FunctionBuilder, ...locals: Local[]) => Code,
): { run: Fn; bytes: Uint8Array } {
  if (webAssembly === undefined) throw new Error('this test needs WebAssembly');
  const module = new ModuleBuilder('env', 'memory');
  module.export('run', module.define(parameters, build));
  const memory = new webAssembly.Memory({ initial: 2, maximum: 2 });
  const instance = new webAssembly.Instance(new webAssembly.Module(module.toBytes()), { env: { memory } });
  return { run: instance.exports['run'] as Fn, bytes: new Uint8Array(memory.buffer) };
}

describe.runIf(webAssembly !== undefined)('emitted code', () => {
  it('constants of every LEB128 length and both signs', () => {
    const values = [
      0,
      1,
      -1,
      63,
      64,
      -64,
      -65,
      127,
      128,
      8191,
      8192,
      -8192,
      -8193,
      2 ** 20,
      -(2 ** 27) - 1,
      2 ** 31 - 1,
      -(2 ** 31),
    ];
    for (const value of values) expect(load(0, () => i32.const(value)).run()).toBe(value);
    expect(load(0, () => i32.const(0xdeadbeef)).run()).toBe(0xdeadbeef | 0);
  });

  it('arithmetic, unsigned comparisons and shifts', () => {
    const two = (op: (...operands: Code[]) => Code): Fn =>
      load(2, (_, a, b) => op(a?.get ?? [], b?.get ?? [])).run;
    expect(two(i32.add)(5, 7)).toBe(12);
    expect(two(i32.sub)(5, 7)).toBe(-2);
    expect(two(i32.and)(12, 10)).toBe(8);
    expect(two(i32.xor)(12, 10)).toBe(6);
    expect(two(i32.shiftLeft)(1, 31)).toBe(-(2 ** 31));
    expect(two(i32.shiftRight)(-1, 28)).toBe(15);
    expect([two(i32.below)(1, -1), two(i32.below)(-1, 1), two(i32.below)(3, 3)]).toEqual([1, 0, 0]);
    expect([two(i32.atLeast)(1, -1), two(i32.atLeast)(-1, 1), two(i32.atLeast)(3, 3)]).toEqual([0, 1, 1]);
    expect(load(1, (_, a) => i32.isZero(a?.get ?? [])).run(0)).toBe(1);
    expect(load(3, (_, a, b, c) => select(a?.get ?? [], b?.get ?? [], c?.get ?? [])).run(8, 9, 0)).toBe(9);
  });

  it('loops ask first or last, and conditions hold', () => {
    const sum = load(1, (f, n) => {
      const total = f.local('i32');
      if (n === undefined) return [];
      return sequence(whileDo(n.get, total.set(i32.add(total.get, n.get)), n.advance(-1)), total.get);
    }).run;
    expect([sum(0), sum(1), sum(10)]).toEqual([0, 1, 55]);
    const rounds = load(1, (f, n) => {
      const count = f.local('i32');
      if (n === undefined) return [];
      return sequence(doWhile(n.get, count.advance(1), when(n.get, n.advance(-1))), count.get);
    }).run;
    expect([rounds(0), rounds(1), rounds(5)]).toEqual([1, 1, 5]);
  });

  it('more locals than one LEB128 octet can number', () => {
    const last = load(1, (f, a) => {
      const locals = f.locals('i32', 300);
      const set = locals.map((local, index) => local.set(i32.add(a?.get ?? [], i32.const(index))));
      return sequence(
        ...set,
        tree(
          i32.xor,
          locals.slice(297).map((local) => local.get),
        ),
      );
    }).run;
    expect(last(1000)).toBe(1297 ^ 1298 ^ 1299);
  });

  it('memory: large offsets, unaligned vectors, fill and overlapping copy', () => {
    const { run, bytes } = load(2, (_, at, value) => {
      if (at === undefined || value === undefined) return [];
      return sequence(
        v128.store(at.get, v128.splat8(value.get), 70_001),
        fillMemory(i32.const(10), i32.const(0x1ff), i32.const(5)),
        copyMemory(i32.const(12), i32.const(10), i32.const(5)),
        i32.load8(at.get, 70_001),
      );
    });
    expect(run(2, 0x1ab)).toBe(0xab);
    expect(bytes.indexOf(0xab)).toBe(70_003);
    expect(bytes.lastIndexOf(0xab)).toBe(70_018);
    expect(bytes.subarray(9, 19).join()).toBe('0,255,255,255,255,255,255,255,0,0');
  });

  it('functions call each other, and only exports can be seen', () => {
    if (webAssembly === undefined) throw new Error('this test needs WebAssembly');
    const module = new ModuleBuilder('env', 'memory');
    const twice = module.define(1, (_, a) => i32.add(a?.get ?? [], a?.get ?? []));
    module.export(
      'four',
      module.define(1, (_, a) => twice.call(twice.call(a?.get ?? []))),
    );
    const memory = new webAssembly.Memory({ initial: 1, maximum: 1 });
    const { exports } = new webAssembly.Instance(new webAssembly.Module(module.toBytes()), {
      env: { memory },
    });
    expect(Object.keys(exports)).toEqual(['four']);
    expect((exports['four'] as Fn)(10)).toBe(40);
  });
});
