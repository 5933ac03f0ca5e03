/**
 * The sockets and servers of this package, marked so that `iwarp/preload`, which changes `net` for the whole
 * process, leaves them as they are.
 */

/** Key of the mark, in options of `net.connect` and on servers. */
export const OWN: unique symbol = Symbol.for('iwarp.own') as never;
