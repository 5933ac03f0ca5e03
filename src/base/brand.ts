/**
 * Classes that know their objects across copies of the package: an application and a library that it uses may
 * each have installed one, and an error or a ticket of one copy reaches code of the other.
 */

type AnyClass = abstract new (...args: never[]) => object;

const ordinary = Function.prototype[Symbol.hasInstance];

/**
 * Let `instanceof` of this class be true for objects of the class of the same name in any copy of the
 * package. Call it in a static block of the class. Subclasses that are not branded themselves are
 * distinguished as usual, by their prototype.
 */
export function brand(type: AnyClass, name: string): void {
  const mark = Symbol.for(`iwarp.${name}`);
  Object.defineProperty(type.prototype, mark, { value: true });
  Object.defineProperty(type, Symbol.hasInstance, {
    value(this: unknown, value: unknown): boolean {
      if (this !== type) return ordinary.call(this as never, value);
      return typeof value === 'object' && value !== null && mark in value;
    },
  });
}
