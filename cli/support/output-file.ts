/**
 * Files that a program writes at its end. Whether they can be written is seen at its beginning, so that an
 * hour of measuring does not end with a name that was mistyped.
 */
import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  openSync,
  realpathSync,
  rmSync,
  writeSync,
} from 'node:fs';

/**
 * A file that will be written. Until then what it holds stays as it is, and none comes into being: a program
 * that is killed leaves nothing behind.
 */
export class OutputFile {
  readonly path: string;
  /** The file that was there, open. */
  #file: number | null;

  /** Throws the system's error when the file cannot be written. */
  constructor(path: string) {
    this.path = path;
    const found = existsSync(path);
    this.#file = openSync(path, 'a');
    if (found) return;
    // The name may be a link to where nothing is yet: the link stays.
    const made = realpathSync(path);
    this.discard();
    rmSync(made, { force: true });
  }

  /** The whole text, once. */
  write(text: string): void {
    const file = (this.#file ??= openSync(this.path, 'w'));
    if (fstatSync(file).isFile()) ftruncateSync(file, 0);
    const octets = Buffer.from(text);
    for (let at = 0; at < octets.length; ) at += writeSync(file, octets, at);
    this.discard();
  }

  /** There will be nothing to write; after a write nothing happens. */
  discard(): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }
}
