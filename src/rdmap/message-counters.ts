/** The kinds of message that a stream counts, in either direction. */

/** Messages of a stream by kind. */
export interface MessageCounters {
  /** Sends of all four kinds. */
  sends: number;
  /** RDMA Writes. */
  writes: number;
  /** RDMA Read Requests. */
  reads: number;
  /** RDMA Read Responses. */
  readResponses: number;
  /** Immediate Data messages, with and without Solicited Event. */
  immediates: number;
  /** Atomic Requests. */
  atomics: number;
  /** Terminates; at most one. */
  terminates: number;
}

/** Their names, in the order in which they are kept. */
export const COUNTERS: readonly (keyof MessageCounters)[] = [
  'sends',
  'writes',
  'reads',
  'readResponses',
  'immediates',
  'atomics',
  'terminates',
];
