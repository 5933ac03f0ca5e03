import { describe, expect, it } from 'vitest';
import { FieldNames } from '../../src/base/field-names.ts';

interface Request {
  readonly a?: number;
  readonly b?: number;
  readonly c?: number;
}

const make = (): FieldNames<Request> => new FieldNames<Request>({ a: true, b: true, c: true });

describe('names of fields', () => {
  it('are known in any order, and none is missed', () => {
    const names = make();
    for (const request of [
      { a: 1, b: 2, c: 3 },
      { c: 1, a: 2 },
      {},
      { b: 1 },
      { b: 1, c: 2, a: 3 },
      { a: 1 },
    ])
      expect(names.unknownIn(request)).toBeNull();
    expect(names.text).toBe('a, b, c');
  });

  it('unknown ones are found at every place, whatever was there before', () => {
    for (const first of [{}, { a: 1 }, { a: 1, b: 2, c: 3 }, { c: 1, b: 2 }]) {
      const names = make();
      expect(names.unknownIn(first)).toBeNull();
      expect(names.unknownIn({ x: 1 })).toBe('x');
      expect(names.unknownIn({ a: 1, x: 1, b: 2 })).toBe('x');
      expect(names.unknownIn({ a: 1, b: 1, c: 2, x: 1 })).toBe('x');
      // it is not remembered as known
      expect(names.unknownIn({ x: 1 })).toBe('x');
      expect(names.unknownIn({ c: 1, b: 2 })).toBeNull();
    }
  });

  it('do not include what every object inherits', () => {
    for (const field of ['constructor', 'toString', '__proto__x'])
      expect(make().unknownIn({ [field]: 1 })).toBe(field);
  });
});
