/** The files that a run of the interop cases leaves behind. */
import type { DriverName, Part, Topic } from './bench.ts';
import type { LostGuest } from './lab-run.ts';
import type { OurSettings } from './our-settings.ts';

export interface InteropRecord {
  /** When it began, ISO 8601. */
  readonly began: string;
  readonly seconds: number;
  readonly peer: string;
  /** The settings that our side worked with. */
  readonly ours: OurSettings;
  /** Guests that died while a case ran, if there were any. */
  readonly lost?: readonly LostGuest[];
  readonly cases: readonly RecordedCase[];
}

export interface RecordedCase {
  readonly driver: DriverName;
  readonly topic: Topic;
  readonly tool: string;
  readonly name: string;
  readonly ours: Part;
  readonly ok: boolean;
  readonly detail: string;
  /** How the tries before failed, if there were any. */
  readonly before?: readonly string[];
  /**
   * The proved fault of the peer for which the case was run a second time; see `LabRun.run`.
   */
  readonly excused?: string;
  readonly seconds: number;
}

/** The observations, with those of earlier tries. */
export function resultText({
  detail,
  before = [],
  excused,
}: Pick<RecordedCase, 'detail' | 'before' | 'excused'>): string {
  return (
    `${detail}${before.map((words) => ` (a try before failed: ${words})`).join('')}` +
    `${excused === undefined ? '' : ` (tried again, since ${excused})`}`
  );
}
