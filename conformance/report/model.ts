// The model that all report formats are made from: plain data, so that the JSON report is the model itself.

import type { Case } from '../cases/define.ts';
import { fpduView, startupView } from '../probe/decode.ts';
import type { Field } from '../probe/decode.ts';
import type { LogEntry } from '../probe/connection.ts';
import { toHex } from '../profiles/protocol.ts';
import type { Result, Verdict } from '../runner/runner.ts';

interface ReportField {
  readonly offset: number;
  /** The first of them. */
  readonly octets: string;
  /** How many there are. */
  readonly length: number;
  readonly name: string;
  readonly value: string;
}

export interface ReportEvent {
  readonly from: LogEntry['from'];
  readonly what: LogEntry['what'];
  readonly text: string;
  /** The first of them. */
  readonly octets: string;
  /** How many there are. */
  readonly length: number;
  readonly fields: readonly ReportField[];
}

export interface ReportResult {
  readonly id: string;
  readonly role: string;
  readonly round: number;
  readonly title: string;
  readonly requirements: readonly string[];
  readonly verdict: Verdict;
  readonly expected: string;
  readonly actual: string;
  readonly reason: string;
  readonly blamed: readonly string[];
  readonly waiver: string | null;
  readonly unexpected: boolean;
  readonly ms: number;
  readonly seed: number;
  readonly tries: number;
  /** The command that runs the case again, octet for octet. */
  readonly replay: string;
  /** The capture, when one was written. */
  readonly pcap: string | null;
  /** The events of the case, for every case that did not pass. */
  readonly events: readonly ReportEvent[];
}

interface Totals {
  readonly run: number;
  readonly passed: number;
  readonly failed: number;
  readonly waived: number;
  readonly skipped: number;
  readonly errors: number;
  readonly unexpected: number;
}

/** The facts about a run. */
interface RunFacts {
  readonly profile: string;
  readonly peer: string;
  readonly strict: boolean;
  /** Departures read over. */
  readonly quirks: readonly string[];
  readonly seed: number;
  readonly began: string;
  readonly seconds: number;
  /** Why the run ended before its last case. */
  readonly stopped?: string | null;
}

export interface Report extends RunFacts {
  readonly suite: 'iwarp conformance';
  readonly totals: Totals;
  readonly results: readonly ReportResult[];
}

/** The data that make a report of results. */
interface ReportHead extends RunFacts {
  /** The command that runs cases of this peer; `iwarp conformance run` by default. */
  readonly replayCommand?: string;
  /** Options that a replay needs besides the case and the seed. */
  readonly replayOptions: string;
  pcapOf(result: Result): string | null;
}

/** Octets of one event in a report; longer ones are cut, the capture has them whole. */
const MAX_OCTETS = 4096;
/** Octets of one field; more than any report shows. */
const MAX_FIELD_OCTETS = 64;
/** Events shown of a case that moved much. */
const MAX_EVENTS = 60;

/** The report of a run. */
export function makeReport(results: readonly Result[], head: ReportHead): Report {
  const { profile, peer, strict, quirks, seed, began, seconds, stopped = null } = head;
  return {
    suite: 'iwarp conformance',
    profile,
    peer,
    strict,
    quirks,
    seed,
    began,
    seconds,
    stopped,
    totals: totalsOf(results),
    results: results.map((result) => resultOf(result, head)),
  };
}

function totalsOf(results: readonly Result[]): Totals {
  const count = (test: (result: Result) => boolean): number => results.filter(test).length;
  return {
    run: count((r) => r.verdict !== 'skip'),
    passed: count((r) => r.verdict === 'pass'),
    failed: count((r) => r.verdict === 'fail' && r.waiver === null),
    waived: count((r) => r.verdict === 'fail' && r.waiver !== null),
    skipped: count((r) => r.verdict === 'skip'),
    errors: count((r) => r.verdict === 'error'),
    unexpected: count((r) => r.unexpected),
  };
}

function resultOf(result: Result, head: ReportHead): ReportResult {
  const {
    case: entry,
    role,
    round,
    verdict,
    expected,
    actual,
    reason,
    blamed,
    waiver,
    unexpected,
    ms,
    seed,
    tries,
  } = result;
  return {
    id: entry.id,
    role,
    round,
    title: entry.title,
    requirements: entry.requirements,
    verdict,
    expected,
    actual,
    reason,
    blamed,
    waiver,
    unexpected,
    ms: Math.round(ms * 10) / 10,
    seed,
    tries,
    replay: replayOf(entry, role, seed, head),
    pcap: head.pcapOf(result),
    events: verdict === 'pass' || verdict === 'skip' ? [] : eventsOf(result.log),
  };
}

function replayOf(
  entry: Case,
  role: string,
  seed: number,
  { replayCommand = 'iwarp conformance run', replayOptions }: ReportHead,
): string {
  return (
    `${replayCommand} ${entry.id} --role ${role} --seed ` +
    `${seed}${replayOptions === '' ? '' : ` ${replayOptions}`}`
  );
}

function eventsOf(log: readonly LogEntry[]): ReportEvent[] {
  const shown =
    log.length <= MAX_EVENTS ? log : [...log.slice(0, MAX_EVENTS / 2), ...log.slice(-MAX_EVENTS / 2)];
  return shown.map((entry) => ({
    from: entry.from,
    what: entry.what,
    text: entry.text,
    octets: toHex(entry.octets.subarray(0, MAX_OCTETS)),
    length: entry.octets.length,
    fields: viewOf(entry).map(({ offset, octets, name, value }) => ({
      offset,
      octets: toHex(octets.subarray(0, MAX_FIELD_OCTETS)),
      length: octets.length,
      name,
      value,
    })),
  }));
}

/** The decoded octets of a log entry. */
function viewOf(entry: LogEntry): Field[] {
  if (entry.what === 'startup') return startupView(entry.octets);
  if (entry.what === 'fpdu') return fpduView(entry.octets, entry.markers);
  return entry.octets.length === 0
    ? []
    : [{ offset: 0, octets: entry.octets, name: 'octets', value: `${entry.octets.length}` }];
}
