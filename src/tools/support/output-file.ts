// Where reports go. The files are opened before the first case, so that a run of an hour does not end with a name that was mistyped.

import { closeSync, existsSync, fstatSync, ftruncateSync, openSync, rmSync, writeSync } from 'node:fs';

/** A file that a report will be written into. Until then what it holds stays as it is. */
export class ReportFile {
  readonly #path: string;
  readonly #fresh: boolean;
  readonly #file: number;

  /** Throws the system's error when the file cannot be written. */
  constructor(path: string) {
    this.#path = path;
    this.#fresh = !existsSync(path);
    this.#file = openSync(path, 'a');
  }

  write(text: string): void {
    if (fstatSync(this.#file).isFile()) ftruncateSync(this.#file, 0);
    const octets = Buffer.from(text);
    for (let at = 0; at < octets.length;) at += writeSync(this.#file, octets, at);
    closeSync(this.#file);
  }

  /** There will be no report. */
  discard(): void {
    closeSync(this.#file);
    if (this.#fresh) rmSync(this.#path, { force: true });
  }
}
