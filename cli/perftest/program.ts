/** Which of the perftest programs runs. */
export type Verb = 'write' | 'read' | 'send' | 'atomic';
export type Kind = 'bw' | 'lat';

/** One of the eight programs. */
export interface Program {
  readonly name: string;
  readonly verb: Verb;
  readonly kind: Kind;
}
