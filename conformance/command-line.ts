// Parts that the commands of `iwarp conformance` share: how they refuse, and how they take numbers.

import { reasonOf } from './support/system-errors.ts';

/** The command line is wrong: printed with the usage. */
export class UsageError extends Error {}

/** The command line asks for something impossible: printed as one line. */
export class Refusal extends Error {
  /** For the shell. */
  readonly status: number;

  constructor(message: string, status = 2) {
    super(message);
    this.status = status;
  }
}

/** Do a call that the system may refuse; its reason goes after `what`. @throws Refusal */
export function orRefuse<T>(what: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw new Refusal(`${what}: ${reasonOf(error)}`);
  }
}

/** Do an asynchronous call that the system may refuse; its reason goes after `what`. @throws Refusal */
export async function orRefuseLater<T>(what: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw new Refusal(`${what}: ${reasonOf(error)}`);
  }
}

/** A whole number from an option. @throws UsageError */
export function whole(
  option: string,
  text: string | undefined,
  otherwise: number,
  min: number,
  max: number,
): number {
  return inRange(option, text, otherwise, min, max, /^\d+$/, 'a whole number');
}

/** A number from an option. @throws UsageError */
export function decimal(
  option: string,
  text: string | undefined,
  otherwise: number,
  min: number,
  max: number,
): number {
  return inRange(option, text, otherwise, min, max, /^\d+(\.\d+)?$/, 'a number');
}

function inRange(
  option: string,
  text: string | undefined,
  otherwise: number,
  min: number,
  max: number,
  form: RegExp,
  kind: string,
): number {
  if (text === undefined) return otherwise;
  const value = form.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new UsageError(`${option} ${JSON.stringify(text)}: ${kind} from ${min} to ${max} is needed`);
}
