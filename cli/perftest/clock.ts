/** The course of a test by time: a margin, the sample, a margin again. */
import type { Settings } from './settings.ts';

type Phase = 'margin' | 'sample' | 'after' | 'over';

/** Runs through the phases by timers; figures count in the sample only. */
export class TestClock {
  phase: Phase = 'margin';
  sampleBegan = 0;
  sampleEnded = 0;
  #timer: NodeJS.Timeout | undefined;
  #began = Number.POSITIVE_INFINITY;
  readonly #s: Settings;
  readonly #onOver: () => void;

  constructor(s: Settings, onOver: () => void) {
    this.#s = s;
    this.#onOver = onOver;
  }

  start(): void {
    this.#began = performance.now();
    this.#wait(this.#s.margin, () => this.#sample());
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** End now, and the sample with it, if half of the time is over; false if it is not. */
  cut(): boolean {
    const now = performance.now();
    if (this.phase === 'margin' || now - this.#began < this.#s.duration! * 500) return false;
    this.stop();
    if (this.phase === 'sample') this.sampleEnded = now;
    this.phase = 'over';
    this.#onOver();
    return true;
  }

  #sample(): void {
    this.phase = 'sample';
    this.sampleBegan = performance.now();
    this.#wait(this.#s.duration! - 2 * this.#s.margin, () => this.#after());
  }

  #after(): void {
    this.phase = 'after';
    this.sampleEnded = performance.now();
    this.#wait(this.#s.margin, () => {
      this.phase = 'over';
      this.#onOver();
    });
  }

  #wait(seconds: number, then: () => void): void {
    if (seconds <= 0) then();
    else this.#timer = setTimeout(then, seconds * 1000);
  }
}
