// The union is written out for the API reference, as in queues/completion.ts.
/** The wire protocols of a device: what carries the work of its queue pairs to the peer. */
export const WIRES: readonly WireName[] = ['iwarp', 'qpip', 'trp', 'shm'];

/**
 * `iwarp` is MPA, DDP and RDMAP over TCP. `qpip` is plain TCP and UDP with nothing added, for Sends and
 * Receives. `trp` is iWARP over UDP: DDP and RDMAP over the Trivial Reliability Protocol. `shm` is DDP and
 * RDMAP over memory that two threads of the process share.
 */
export type WireName = 'iwarp' | 'qpip' | 'trp' | 'shm';
