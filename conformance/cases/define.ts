// How cases are written. A case has a stable name, the requirements it examines, what the probe does, and
// what the peer may do. One fault at a time; the first outcome is the one to send, all of them are lawful.

import type { EndpointOptions } from '../profiles/protocol.ts';
import type { Capability } from '../profiles/types.ts';
import type { Connection, Role } from '../probe/connection.ts';
import { describeOutcomes } from '../probe/trial.ts';
import type { Outcome, StartupChoice, Trial } from '../probe/trial.ts';

export interface Case {
  /** Dotted, stable name; never renumbered. */
  readonly id: string;
  /** The probe's action, in words. */
  readonly title: string;
  readonly requirements: readonly string[];
  /** Parts of the probe in which the case makes sense. */
  readonly roles: readonly Role[];
  readonly needs: readonly Capability[];
  /** How the tester sets the peer up; a case with a special set-up needs the tester. */
  readonly setup: EndpointOptions;
  /** Waits for a peer's own time-outs or moves much data: left out of the fast set. */
  readonly slow: boolean;
  /**
   * About the start-up of RFC 6581, or not to be had without it: a peer may know revision 1 only (ENH-011).
   */
  readonly enhanced: boolean;
  /** The reactions that the peer may show, in words. */
  readonly expected: string;
  run(trial: Trial): Promise<void>;
}

export const BOTH: readonly Role[] = ['initiator', 'responder'];
export const AS_INITIATOR: readonly Role[] = ['initiator'];
export const AS_RESPONDER: readonly Role[] = ['responder'];

export interface CaseOptions {
  readonly roles?: readonly Role[];
  readonly needs?: readonly Capability[];
  readonly setup?: EndpointOptions;
  readonly slow?: boolean;
  readonly enhanced?: boolean;
  /** The probe's part of the start-up. */
  readonly startup?: StartupChoice;
}

/** A case that checks for itself. `requirements` is a list of ids in one string. */
export function scripted(
  id: string,
  title: string,
  requirements: string,
  expected: string,
  run: (trial: Trial) => Promise<void>,
  options: CaseOptions = {},
): Case {
  const needs = new Set(options.needs ?? []);
  if (options.setup !== undefined) needs.add('tester');
  return {
    id,
    title,
    requirements: requirements.split(' '),
    roles: options.roles ?? BOTH,
    needs: [...needs],
    setup: options.setup ?? {},
    slow: options.slow ?? false,
    enhanced: options.enhanced ?? false,
    expected,
    run,
  };
}

/** A case on an established connection that checks for itself. */
export function established(
  id: string,
  title: string,
  requirements: string,
  expected: string,
  run: (trial: Trial, connection: Connection) => Promise<void>,
  options: CaseOptions = {},
): Case {
  return scripted(
    id,
    title,
    requirements,
    expected,
    async (trial) => run(trial, await trial.establish(options.startup)),
    options,
  );
}

/**
 * A case that does one thing on an established connection and judges the reaction by its list of outcomes.
 */
export function stimulus(
  id: string,
  title: string,
  requirements: string,
  outcomes: readonly Outcome[],
  act: (trial: Trial, connection: Connection) => Promise<void> | void,
  options: CaseOptions = {},
): Case {
  return established(
    id,
    title,
    requirements,
    describeOutcomes(outcomes),
    async (trial, connection) => {
      await act(trial, connection);
      await trial.expect(connection, outcomes);
    },
    options,
  );
}

/** 0 to `count` - 1. */
export function range(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}

/** Two hexadecimal digits, for names. */
export function hex2(value: number): string {
  return value.toString(16).padStart(2, '0');
}
