// The error that a case throws when the peer does something else than it may.

/** A departure of the peer from what a case allows. */
export class Deviation extends Error {
  readonly expected: string;
  readonly actual: string;
  /** Requirements that the departure touches beyond those of the case, when known. */
  readonly requirements: readonly string[];

  constructor(expected: string, actual: string, requirements: readonly string[] = []) {
    super(`expected ${expected}; got ${actual}`);
    this.name = 'Deviation';
    this.expected = expected;
    this.actual = actual;
    this.requirements = requirements;
  }
}

/** The case cannot be judged with this peer: what it needs is not there. */
export class Inapplicable extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = 'Inapplicable';
  }
}

/**
 * A peer that keeps every rule can be without what the case is about: the case says nothing about it, and is
 * left out.
 */
export class Unsuited extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = 'Unsuited';
  }
}

/** There was no connection to judge anything by. */
export class NotConnected extends Inapplicable {
  constructor(reason: string) {
    super(reason);
    this.name = 'NotConnected';
  }
}

/** Throw a {@link Deviation} unless `condition` holds. */
export function check(
  condition: boolean,
  expected: string,
  actual: string,
  requirements: readonly string[] = [],
): asserts condition {
  if (!condition) throw new Deviation(expected, actual, requirements);
}

/** Throw unless both are equal. */
export function same(
  what: string,
  actual: number | bigint | string | boolean,
  expected: number | bigint | string | boolean,
): void {
  if (actual !== expected) throw new Deviation(`${what} ${show(expected)}`, `${what} ${show(actual)}`);
}

/** Throw unless both are the same octets. */
export function sameBytes(what: string, actual: Uint8Array, expected: Uint8Array): void {
  if (actual.length === expected.length && actual.every((octet, i) => octet === expected[i])) return;
  const at = expected.findIndex((octet, i) => octet !== actual[i]);
  const where = actual.length === expected.length ? ` (first difference at ${at})` : '';
  throw new Deviation(`${what} ${brief(expected)}`, `${what} ${brief(actual)}${where}`);
}

/** Octets as text, shortened in the middle of long runs. */
export function brief(bytes: Uint8Array): string {
  const hex = Array.from(bytes.subarray(0, 24), (octet) => octet.toString(16).padStart(2, '0')).join(' ');
  return bytes.length === 0 ? 'no octets' : `${bytes.length} octets: ${hex}${bytes.length > 24 ? ' …' : ''}`;
}

function show(value: number | bigint | string | boolean): string {
  if (typeof value === 'bigint') return `0x${value.toString(16)}`;
  return typeof value === 'number' && value > 0xffff ? `0x${value.toString(16)}` : String(value);
}
