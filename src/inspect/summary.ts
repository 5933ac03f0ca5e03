/** Counts of one connection: what went which way, and which rules were broken how often. */
import type { ProblemId } from './problems.ts';
import type { Direction, InspectEvent } from './types.ts';

interface DirectionSummary {
  fpdus: number;
  /** Octets on the stream: start-up frame and FPDUs, markers included. */
  octets: number;
  /** Octets after DDP headers. */
  payload: number;
  /** Octets passed over, and those the capture does not have. */
  skipped: number;
  missing: number;
  /** Opcode name to number of FPDUs. */
  readonly opcodes: Map<string, number>;
}

export interface ConnectionSummary {
  crc: 'on' | 'off' | 'unknown';
  /** Whether each direction carries markers. */
  markers: [boolean, boolean];
  /** Who sent the Request, if it was seen. */
  initiator: Direction | undefined;
  first: number | undefined;
  last: number;
  readonly directions: readonly [DirectionSummary, DirectionSummary];
  readonly problems: Map<ProblemId, number>;
  /** `layer/type/code (…)` of each Terminate, with the direction it went. At most one a direction is lawful; four are kept. */
  readonly terminates: { readonly direction: Direction; readonly description: string }[];
}

const MAX_TERMINATES = 4;

export function emptySummary(): ConnectionSummary {
  const direction = (): DirectionSummary => ({ fpdus: 0, octets: 0, payload: 0, skipped: 0, missing: 0, opcodes: new Map() });
  return {
    crc: 'unknown', markers: [false, false], initiator: undefined, first: undefined, last: 0,
    directions: [direction(), direction()], problems: new Map(), terminates: [],
  };
}

/** Count one event. */
export function summarize(summary: ConnectionSummary, event: InspectEvent): void {
  const side = summary.directions[event.direction];
  summary.first ??= event.time;
  summary.last = Math.max(summary.last, event.time);
  for (const { id } of event.problems) summary.problems.set(id, (summary.problems.get(id) ?? 0) + 1);
  if (event.kind === 'note') {
    side.skipped += event.octets;
    side.missing += event.missing ?? 0;
    return;
  }
  side.octets += event.octets;
  if (event.kind === 'startup') return;
  side.fpdus++;
  side.missing += event.captured === undefined ? 0 : event.octets - event.captured;
  side.payload += event.payloadLength;
  side.opcodes.set(event.opcode, (side.opcodes.get(event.opcode) ?? 0) + 1);
  if (event.markers.length > 0) summary.markers[event.direction] = true;
  if (summary.crc === 'unknown' && event.crc.use !== 'unknown') summary.crc = event.crc.use;
  if (event.terminate !== undefined && summary.terminates.length < MAX_TERMINATES) {
    summary.terminates.push({ direction: event.direction, description: event.terminate.description });
  }
}
