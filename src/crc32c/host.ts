/**
 * The part of the WebAssembly JavaScript interface that the engines use. Node has it, the Node 20 type
 * package does not describe it, and the browser's type library would bring a whole browser along.
 */

export interface WebAssemblyMemory {
  readonly buffer: ArrayBuffer;
}

export interface WebAssemblyModule {
  readonly [Symbol.toStringTag]: string;
}

interface WebAssemblyInterface {
  validate(bytes: Uint8Array): boolean;
  readonly Module: new (bytes: Uint8Array) => WebAssemblyModule;
  readonly Memory: new (limits: { initial: number; maximum: number }) => WebAssemblyMemory;
  readonly Instance: new (
    module: WebAssemblyModule,
    imports: Record<string, Record<string, unknown>>,
  ) => { readonly exports: Record<string, unknown> };
}

/** Undefined where WebAssembly is switched off (`node --jitless`). */
export const webAssembly: WebAssemblyInterface | undefined = (
  globalThis as unknown as { WebAssembly?: WebAssemblyInterface }
).WebAssembly;

/** Bytes of a page, the unit of WebAssembly memory. */
export const PAGE = 65_536;
