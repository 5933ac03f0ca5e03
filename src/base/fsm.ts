/**
 * State machines as literal tables. The table is the only place that says which input leads where; what it does not list is an
 * error, never a silent no-op (design, section 2).
 */
import { IwarpError } from './errors.ts';

/** For each state the inputs it accepts and the state each leads to. */
export type Transitions<S extends string, I extends string> = Readonly<Record<S, Readonly<Partial<Record<I, S>>>>>;

/** A named table with its initial state. */
export interface MachineTable<S extends string, I extends string> {
  readonly name: string;
  readonly initial: S;
  readonly transitions: Transitions<S, I>;
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
    const next = this.table.transitions[this.#state][input];
    if (next === undefined) {
      throw new IwarpError('ERR_INTERNAL', `${this.table.name}: input ${input} is not listed in state ${this.#state}`);
    }
    this.#state = next;
    return next;
  }
}
