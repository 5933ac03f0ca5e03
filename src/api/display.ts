/** The text that `console.log` shows for an object of this layer, in Node, Bun and Deno. */

const INSPECT = Symbol.for('nodejs.util.inspect.custom');

/** @internal Show objects of a class as its name and these fields. */
export function displayAs<T extends object>(
  type: { readonly prototype: T; readonly name: string },
  fields: (object: T) => object,
): void {
  Object.defineProperty(type.prototype, INSPECT, {
    configurable: true,
    writable: true,
    value: function show(this: T, _depth: number, options: object, inspect: Inspect): string {
      return `${type.name} ${inspect(fields(this), options)}`;
    },
  });
}

/** `util.inspect`, as it hands itself to the method. */
type Inspect = (value: unknown, options?: object) => string;
