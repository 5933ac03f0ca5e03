/**
 * Files that a program writes at its end. They are opened at its beginning, so that an hour of measuring does not end with a name that was
 * mistyped.
 */
import { closeSync, existsSync, fstatSync, ftruncateSync, openSync, rmSync, writeSync } from 'node:fs';

/** A file that will be written. Until then what it holds stays as it is. */
export class OutputFile {
  readonly path: string;
  readonly #fresh: boolean;
  readonly #file: number;
  #state: 'open' | 'closed' = 'open';

  /** Throws the system's error when the file cannot be written. */
  constructor(path: string) {
    this.path = path;
    this.#fresh = !existsSync(path);
    this.#file = openSync(path, 'a');
  }

  /** The whole text, once. */
  write(text: string): void {
    if (fstatSync(this.#file).isFile()) ftruncateSync(this.#file, 0);
    const octets = Buffer.from(text);
    for (let at = 0; at < octets.length;) at += writeSync(this.#file, octets, at);
    this.#state = 'closed';
    closeSync(this.#file);
  }

  /** There will be nothing to write; after a write nothing happens. */
  discard(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    closeSync(this.#file);
    if (this.#fresh) rmSync(this.path, { force: true });
  }
}
