/** Counts of one connection: what went which way, and which rules were broken how often. */
import type { ProblemId } from './problems.ts';
import type { DecodedFpdu, Direction, InspectEvent } from './types.ts';

/** Counts of one direction of a connection. */
export interface DirectionSummary {
  /** FPDUs, or over UDP datagrams with a DDP segment. */
  fpdus: number;
  /** Bytes on the stream: start-up frame and FPDUs, markers included. */
  octets: number;
  /** Bytes after DDP headers. */
  payload: number;
  /** Bytes passed over. */
  skipped: number;
  /** Bytes that the capture does not have. */
  missing: number;
  /** Opcode name to number of FPDUs. */
  readonly opcodes: Map<string, number>;
}

/** Counts of NBD on one connection. */
export interface NbdSummary {
  /** How data moves: within messages, or by RDMA Write and Read. */
  mode: 'message' | 'direct';
  /** Command name to number of requests. */
  readonly requests: Map<string, number>;
  /** Replies of the server. */
  replies: number;
  /** Error name to number of replies that report it. */
  readonly errors: Map<string, number>;
  /** Replies to no request. */
  unmatched: number;
  /** Requests without a reply so far, or at the end of the connection. */
  waiting: number;
}

/** Counts of a connection over UDP. */
export interface DatagramSummary {
  /** Datagrams that only acknowledge, FINs included. */
  acknowledgements: number;
  /** Selective acknowledgements. */
  ranges: number;
  /** Datagrams of each direction whose sequence number had been seen before. */
  repeated: [number, number];
  /** Datagrams of each direction that came after a higher sequence number. */
  late: [number, number];
}

/** A Terminate in a summary. */
export interface SeenTerminate {
  /** The direction it went. */
  readonly direction: Direction;
  /** `layer/type/code (layer: name)`. */
  readonly description: string;
}

/** Counts of one connection. */
export interface ConnectionSummary {
  /** Whether CRC is in use; `unknown` until a start-up frame or an FPDU shows it. */
  crc: 'on' | 'off' | 'unknown';
  /** Whether each direction carries markers. */
  markers: [boolean, boolean];
  /** The direction of the MPA Request, if it was seen. */
  initiator: Direction | undefined;
  /** Time of the first event in seconds; undefined before it. */
  first: number | undefined;
  /** Time of the last event. */
  last: number;
  /** Counts of each direction, by {@link Direction}. */
  readonly directions: [DirectionSummary, DirectionSummary];
  /** How often each requirement was broken. */
  readonly problems: Map<ProblemId, number>;
  /** Present once a request or reply of NBD was seen. */
  nbd?: NbdSummary;
  /** Present for a connection over UDP. */
  trp?: DatagramSummary;
  /**
   * `layer/type/code (…)` of each Terminate, with the direction it went. At most one a direction is lawful;
   * four are kept.
   */
  readonly terminates: SeenTerminate[];
}

const MAX_TERMINATES = 4;

export function emptySummary(): ConnectionSummary {
  const direction = (): DirectionSummary => ({
    fpdus: 0,
    octets: 0,
    payload: 0,
    skipped: 0,
    missing: 0,
    opcodes: new Map(),
  });
  return {
    crc: 'unknown',
    markers: [false, false],
    initiator: undefined,
    first: undefined,
    last: 0,
    directions: [direction(), direction()],
    problems: new Map(),
    terminates: [],
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
  if (event.kind === 'startup' || (event.kind === 'trp' && event.ddp === undefined)) return;
  side.fpdus++;
  side.payload += event.payloadLength;
  side.opcodes.set(event.opcode, (side.opcodes.get(event.opcode) ?? 0) + 1);
  if (event.kind === 'fpdu') summarizeFrame(summary, event);
  if (event.terminate !== undefined && summary.terminates.length < MAX_TERMINATES) {
    summary.terminates.push({ direction: event.direction, description: event.terminate.description });
  }
}

/** Adds the fields that only an FPDU of MPA has. */
function summarizeFrame(summary: ConnectionSummary, event: DecodedFpdu): void {
  const { captured, crc, direction, markers, octets } = event;
  if (captured !== undefined) summary.directions[direction].missing += octets - captured;
  if (markers.length > 0) summary.markers[direction] = true;
  if (summary.crc === 'unknown' && crc.use !== 'unknown') summary.crc = crc.use;
}
