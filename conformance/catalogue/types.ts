// The shape of one catalogue entry. The catalogue lists every observable rule of RFC 5044 (MPA), 5041 (DDP),
// 5040 (RDMAP), 6581 (enhanced set-up), 7306 (extensions), 5042 (security) and of the RDMA verbs draft, in
// our own words. Read first: RFC 5040 section 7, RFC 5041 section 7, RFC 5044 sections 4 and 7.

export type Group = 'MPA' | 'DDP' | 'RDMAP' | 'ENH' | 'EXT' | 'SEC' | 'VERBS';

type Level = 'MUST' | 'MUST NOT' | 'SHOULD' | 'SHOULD NOT' | 'MAY';

/**
 * Where it shows whether the rule is kept.
 *
 * - `wire`: a black-box peer can bring the situation about and observe the outcome, with the help of a
 *   command set or a capture where the tested side has to start something;
 * - `api`: the cause or the outcome shows only through the local interface (completions, events, refused
 *   calls);
 * - `local`: a matter of design, operation or of the operating system, or a pure freedom: no test can decide
 *   it.
 */
type Kind = 'wire' | 'api' | 'local';

export interface Requirement {
  /** Stable name such as `MPA-041`; never renumbered, never reused. */
  readonly id: string;
  readonly group: Group;
  readonly level: Level;
  /**
   * True when no single sentence states the rule but it follows from the texts, or peers need it to
   * interoperate.
   */
  readonly derived: boolean;
  readonly kind: Kind;
  /**
   * The bound party: I initiator and R responder of the set-up, tx sender and rx receiver of the structure,
   * src and snk of the data, ULP the user of the stack, RI the verbs implementation, RNIC the whole local
   * stack, PRM the privileged resource manager.
   */
  readonly role: string;
  /** The chapter of the catalogue it stands in. */
  readonly topic: string;
  /** Document and section, the leading source first; `verbs draft` is draft-hilland-rddp-verbs-00. */
  readonly clause: string;
  readonly text: string;
  /**
   * How a test sees it. M1 to M5 are the marker vectors of conformance/vectors/markers.json; `Rec` marks our
   * own figure.
   */
  readonly observation: string;
  /**
   * The events that must follow on the wire when the rule's fault is injected: `Term layer/type/code` in
   * hexadecimal (the first code is the one to send, all listed ones are to be accepted, codes in brackets are
   * what other stacks send), `close` (FIN or RST), `none` (normal operation), IE/CE/AE for an immediate,
   * completion or asynchronous error, `-` not applicable.
   */
  readonly expected: string;
}
