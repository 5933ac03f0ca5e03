/** What completions say: statuses and opcodes. Their places in the lists number them for worker engines. */

// The API reference shows a union as it is written (`typeof LIST[number]` would stand there otherwise), so it
// is written out beside its list; test/types/lists.test.ts compares the two.

/** Completion statuses, with libibverbs' meanings (verbs draft figure 36). */
export const WC_STATUSES: readonly WcStatus[] = [
  'success',
  'local-length-error',
  'local-protection-error',
  'local-qp-operation-error',
  'flushed',
  'mw-bind-error',
  'fast-register-error',
  'local-invalidate-error',
  'remote-invalidate-error',
  'remote-access-error',
  'remote-operation-error',
  'zero-read-resources',
  'bad-response',
  'fatal-error',
];
/** How a work request ended. */
export type WcStatus =
  | 'success'
  | 'local-length-error'
  | 'local-protection-error'
  | 'local-qp-operation-error'
  | 'flushed'
  | 'mw-bind-error'
  | 'fast-register-error'
  | 'local-invalidate-error'
  | 'remote-invalidate-error'
  | 'remote-access-error'
  | 'remote-operation-error'
  | 'zero-read-resources'
  | 'bad-response'
  | 'fatal-error';

/** Kinds of requests for a send queue. */
export const SEND_OPCODES: readonly WcOpcode[] = [
  'send',
  'rdma-write',
  'rdma-read',
  'immediate',
  'atomic-fetch-add',
  'atomic-cmp-swap',
  'local-invalidate',
  'bind-mw',
  'reg-mr',
];

/** The kind of a completed work request. */
export type WcOpcode =
  | 'send'
  | 'rdma-write'
  | 'rdma-read'
  | 'immediate'
  | 'atomic-fetch-add'
  | 'atomic-cmp-swap'
  | 'local-invalidate'
  | 'bind-mw'
  | 'reg-mr'
  | 'receive'
  | 'receive-immediate';
