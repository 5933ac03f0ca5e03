/**
 * State machines as literal tables. The table is the only place that says which input leads where; what it
 * does not list is an error, never a silent no-op (docs/state-machines.md).
 */
import { IwarpError } from './errors.ts';

/** For each state the inputs it accepts and the state each leads to. */
type Transitions<S extends string, I extends string> = Readonly<Record<S, Readonly<Partial<Record<I, S>>>>>;

/** A named table with its initial state. */
export interface MachineTable<S extends string, I extends string> {
  readonly name: string;
  readonly initial: S;
  readonly transitions: Transitions<S, I>;
}

/** One step of a machine, as the trace hook sees it. */
export interface Transition {
  /** Name of the table: `queue pair`, `RDMA stream`, `MPA initiator`, … */
  readonly table: string;
  /** The machine itself: the same object for every step of one queue pair or stream. */
  readonly machine: object;
  /** State before. */
  readonly from: string;
  /** What happened. */
  readonly input: string;
  /** State after. */
  readonly to: string;
}

/**
 * The trace hook: null, and then it costs one comparison a transition, of which a connection has less than a
 * dozen.
 */
export const trace: { transition: ((transition: Transition) => void) | null } = { transition: null };

/**
 * Where `input` leads from `from`; one that the table does not list throws ERR_INTERNAL. It serves
 * owners that keep the state in a field, where a {@link Machine} for each would cost memory in every idle
 * connection; the trace distinguishes them by `machine`.
 */
export function nextState<S extends string, I extends string>(
  table: MachineTable<S, I>,
  from: S,
  input: I,
  machine: object,
): S {
  const to = table.transitions[from][input];
  if (to === undefined)
    throw new IwarpError('ERR_INTERNAL', `${table.name}: input ${input} is not listed in state ${from}`);
  if (trace.transition !== null) trace.transition({ table: table.name, machine, from, input, to });
  return to;
}

/** One running machine over a table. */
export class Machine<S extends string, I extends string> {
  readonly table: MachineTable<S, I>;
  #state: S;

  constructor(table: MachineTable<S, I>) {
    this.table = table;
    this.#state = table.initial;
  }

  get state(): S {
    return this.#state;
  }

  /** True if the table lists `input` in the present state. */
  accepts(input: I): boolean {
    return this.table.transitions[this.#state][input] !== undefined;
  }

  /** Take the listed transition; an unlisted one throws ERR_INTERNAL and changes nothing. */
  step(input: I): S {
    this.#state = nextState(this.table, this.#state, input, this);
    return this.#state;
  }
}
