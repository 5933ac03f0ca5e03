// A pcap file for each case that did not pass.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pcapOf } from '../probe/pcap.ts';
import type { Result } from '../runner/runner.ts';

/** Captures of what did not pass. */
export class Captures {
  readonly #folder: string | undefined;
  readonly #base: number;
  readonly #paths = new Map<Result, string>();

  constructor(folder: string | undefined, base: number) {
    this.#folder = folder;
    this.#base = base;
    if (folder !== undefined) mkdirSync(folder, { recursive: true });
  }

  keep(result: Result): void {
    if (this.#folder === undefined || result.verdict === 'pass' || result.verdict === 'skip' || result.capture.length === 0) return;
    const path = join(this.#folder, `${result.case.id}.${result.role}${result.round > 0 ? `.${result.round + 1}` : ''}.pcap`);
    writeFileSync(path, pcapOf(result.capture, this.#base));
    this.#paths.set(result, path);
  }

  pathOf(result: Result): string | null {
    return this.#paths.get(result) ?? null;
  }
}
