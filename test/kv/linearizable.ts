/**
 * Whether a history of one key can have happened one operation after the other, each somewhere between its
 * call and its return: the search of Wing and Gong with the memory of Lowe.
 */

/** An operation of one key; a value of null is a key that is not there. */
export type Operation =
  | { readonly kind: 'get'; readonly result: string | null }
  | { readonly kind: 'set'; readonly value: string }
  | { readonly kind: 'add'; readonly value: string; readonly stored: boolean }
  | { readonly kind: 'delete'; readonly was: boolean }
  | { readonly kind: 'increment'; readonly result: string }
  | { readonly kind: 'cas'; readonly before: string; readonly value: string; readonly stored: boolean };

export interface Call {
  readonly begin: number;
  readonly end: number;
  readonly operation: Operation;
}

/** The state after the operation; undefined if it cannot have happened in this state. */
function step(state: string | null, operation: Operation): string | null | undefined {
  switch (operation.kind) {
    case 'get':
      return operation.result === state ? state : undefined;
    case 'set':
      return operation.value;
    case 'add':
      if (operation.stored !== (state === null)) return undefined;
      return operation.stored ? operation.value : state;
    case 'delete':
      return operation.was === (state !== null) ? null : undefined;
    case 'increment':
      return String(Number(state ?? '0') + 1) === operation.result ? operation.result : undefined;
    case 'cas':
      // A version stands for one storing of a value; values are never stored twice here.
      if (operation.stored) return state === operation.before ? operation.value : undefined;
      return state === operation.before ? undefined : state;
  }
}

export function isLinearizable(history: readonly Call[]): boolean {
  const calls = history.toSorted((a, b) => a.begin - b.begin);
  const seen = new Set<string>();
  const done = new Uint8Array(calls.length);
  const search = (left: number, state: string | null): boolean => {
    if (left === 0) return true;
    const known = `${done.join('')} ${state}`;
    if (seen.has(known)) return false;
    seen.add(known);
    // Whatever comes next has begun before the first return of those that are left.
    let first = Infinity;
    for (const [i, { end }] of calls.entries()) if (done[i] === 0 && end < first) first = end;
    for (const [i, { begin, operation }] of calls.entries()) {
      if (done[i] === 1) continue;
      if (begin > first) break;
      const after = step(state, operation);
      if (after === undefined) continue;
      done[i] = 1;
      if (search(left - 1, after)) return true;
      done[i] = 0;
    }
    return false;
  };
  return search(calls.length, null);
}
