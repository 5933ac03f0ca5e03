/** What a run of the interop cases leaves behind. */
import type { DriverName, Topic } from './bench.ts';

export interface InteropRecord {
  /** When it began, ISO 8601. */
  readonly began: string;
  readonly seconds: number;
  readonly peer: string;
  readonly cases: readonly RecordedCase[];
}

export interface RecordedCase {
  readonly driver: DriverName;
  readonly topic: Topic;
  readonly tool: string;
  readonly name: string;
  readonly ours: 'client' | 'server';
  readonly ok: boolean;
  readonly detail: string;
  readonly seconds: number;
}
