/**
 * Interop cases one after the other on one peer: with the tries that a case may have, and with another guest
 * where one has died while a case ran.
 */
import { existsSync, renameSync } from 'node:fs';
import { Bench, caseTitle, type InteropCase } from './bench.ts';
import { crcTwiceIn } from './crc-twice.ts';
import { grantTwiceIn } from './grant-twice.ts';
import type { OpenPeer } from './interop-types.ts';
import { kernelFault } from './kernel-faults.ts';
import { kernelWords } from './kernel-words.ts';
import { lastOctetFirstIn } from './last-octet-first.ts';
import { lostTailFault } from './lost-tail.ts';
import { splitTrailerIn } from './split-trailer.ts';

export interface Outcome {
  readonly testCase: InteropCase;
  readonly ok: boolean;
  readonly detail: string;
  readonly seconds: number;
  /** How it failed in tries before this one. */
  readonly before: readonly string[];
  /** Why one more try was allowed: a fault of the peer that the capture or the peer's kernel proves. */
  readonly excused?: string;
}

/** A guest that has died while a case ran. */
export interface LostGuest {
  readonly title: string;
  /** The section of the report; null if the kernel's words are those of no known fault. */
  readonly fault: string | null;
  /** The kernel's words; empty if it had none. */
  readonly words: string;
}

/** Faults of siw for which a case is tried again, each with its proof: M1 shows in a fourth of the tries. */
const PROVED_FAULTS = 3;
/** Length of a failure in a table: enough for the last words of both sides. */
const MAX_TOLD = 400;

export class LabRun {
  readonly lost: LostGuest[] = [];
  readonly #open: () => Promise<OpenPeer>;
  #peer: OpenPeer;
  #bench: Bench;
  /** What the peer had counted when the case began. */
  #resets = 0;

  private constructor(open: () => Promise<OpenPeer>, peer: OpenPeer) {
    this.#open = open;
    this.#peer = peer;
    this.#bench = new Bench(peer);
  }

  /** On the peer that `open` makes, and on others of its making if that one dies. */
  static async begin(open: () => Promise<OpenPeer>): Promise<LabRun> {
    return new LabRun(open, await open());
  }

  get peer(): OpenPeer {
    return this.#peer;
  }

  /**
   * A busy machine misses limits, and siw has faults that come and go; ours stay. Earlier failures are
   * reported with the result. A fault of siw allows another try without being asked for, if the capture, or
   * the last words of a guest's kernel, prove that it was one of those that are known; three times at most.
   */
  async run(testCase: InteropCase, retries: number): Promise<Outcome> {
    const before: string[] = [];
    const proofs: string[] = [];
    for (;;) {
      this.#resets = await this.#resetsAtClose(testCase);
      const outcome = await this.#runCase(testCase);
      const died = outcome.ok ? null : await this.#renewed(testCase);
      const fault = outcome.ok ? null : await this.#excuse(testCase, outcome.detail, died, proofs.length);
      if (fault !== null) proofs.push(fault);
      if (outcome.ok || (fault === null && before.length - proofs.length >= retries))
        return { ...outcome, before, ...(proofs.length === 0 ? {} : { excused: proofs.join('; then ') }) };
      const { capture } = this.#bench;
      // to be looked at
      if (existsSync(capture)) renameSync(capture, capture.replace('.pcap', '.before.pcap'));
      before.push(
        outcome.detail
          .replace(/\n {2}capture: .*$/, '')
          .replaceAll(/\s+/g, ' ')
          .slice(0, MAX_TOLD),
      );
    }
  }

  async close(): Promise<void> {
    await this.#peer.close();
  }

  /** If the guest has died, boot another; how the first ended. */
  async #renewed(testCase: InteropCase): Promise<LostGuest | null> {
    if (!(await this.#peer.dead())) return null;
    const log = (await this.#peer.crash().catch(() => null)) ?? '';
    const lost: LostGuest = {
      title: caseTitle(testCase),
      fault: kernelFault(log),
      words: kernelWords(log),
    };
    this.lost.push(lost);
    process.stdout.write(`the guest is lost: ${lost.fault ?? 'of no known fault'}\n`);
    const { capture } = this.#bench;
    await this.#peer.close();
    this.#peer = await this.#open();
    this.#bench = new Bench(this.#peer);
    this.#bench.capture = capture;
    return lost;
  }

  /** Why the case may be tried again, for a dead guest once in all. Null if it may not. */
  async #excuse(
    testCase: InteropCase,
    detail: string,
    died: LostGuest | null,
    excuses: number,
  ): Promise<string | null> {
    if (died !== null) return excuses === 0 ? diedOf(died) : null;
    return excuses < PROVED_FAULTS ? await this.#provedFault(testCase, detail) : null;
  }

  /** Words on the fault of siw that has ended the case; null if none is proved. */
  async #provedFault(testCase: InteropCase, detail: string): Promise<string | null> {
    const { capture } = this.#bench;
    const { ours } = testCase;
    // The proofs judge the Messages of one of our stacks.
    if (ours !== 'client' && ours !== 'server') return null;
    return (
      crcTwiceIn(capture, ours) ??
      splitTrailerIn(capture, ours, await this.#peer.kernelLog()) ??
      lastOctetFirstIn(capture, ours, detail) ??
      grantTwiceIn(capture, ours, detail) ??
      lostTailFault(detail, (await this.#resetsAtClose(testCase)) - this.#resets)
    );
  }

  /** What the peer has counted so far, of a case whose programs may lose the end of a stream; 0 of others. */
  async #resetsAtClose({ topic }: InteropCase): Promise<number> {
    return topic === 'streams' ? ((await this.#peer.resetsAtClose()) ?? 0) : 0;
  }

  async #runCase(testCase: InteropCase): Promise<Omit<Outcome, 'before'>> {
    const bench = this.#bench;
    bench.begin(`${testCase.driver}-${caseTitle(testCase)}`);
    const began = performance.now();
    let ok = true;
    let detail: string;
    try {
      detail = await testCase.run(bench);
    } catch (error) {
      ok = false;
      detail = `${(error as Error).message}\n  capture: ${bench.capture}`;
    }
    await bench.finish(!ok);
    const seconds = Math.round((performance.now() - began) / 100) / 10;
    process.stdout.write(
      `${ok ? 'ok  ' : 'FAIL'} ${caseTitle(testCase)} (${seconds} s): ${detail.split('\n')[0]}\n`,
    );
    return { testCase, ok, detail, seconds };
  }
}

/** Why a case whose guest has died may run again; null if the fault is not known. */
function diedOf({ fault, words }: LostGuest): string | null {
  return fault === null ? null : `the guest died of ${fault} (${words.split('\n')[0]})`;
}
