// A pcap file for each case that did not pass.

import { accessSync, constants, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isSystemError, reasonOf } from '../support/system-errors.ts';
import { pcapOf } from '../probe/pcap.ts';
import type { Result } from '../runner/runner.ts';

/** Captures of what did not pass. */
export class Captures {
  readonly #folder: string | undefined;
  readonly #base: number;
  readonly #paths = new Map<Result, string>();
  #failed = false;

  constructor(folder: string | undefined, base: number) {
    this.#folder = folder;
    this.#base = base;
    if (folder === undefined) return;
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
  }

  keep(result: Result): void {
    if (
      this.#folder === undefined ||
      result.verdict === 'pass' ||
      result.verdict === 'skip' ||
      result.capture.length === 0
    )
      return;
    // A disk that is full ends neither the run nor its reports.
    if (this.#failed) return;
    const path = join(
      this.#folder,
      `${result.case.id}.${result.role}${result.round > 0 ? `.${result.round + 1}` : ''}.pcap`,
    );
    try {
      writeFileSync(path, pcapOf(result.capture, this.#base));
      this.#paths.set(result, path);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      this.#failed = true;
      process.stderr.write(`conformance: ${path}: ${reasonOf(error)}; no more captures\n`);
    }
  }

  pathOf(result: Result): string | null {
    return this.#paths.get(result) ?? null;
  }
}
