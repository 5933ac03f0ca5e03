/**
 * Whether the peer's kernel has thrown away the last octets of a stream that a stock program ended in order.
 * siw closes its socket at once. Octets of ours that come across that, such as the window updates that every
 * receiver of rsockets has to send, make Linux answer with a reset, and what still waits to be sent or sent
 * again is lost. The proof: our side misses octets at an end that was in order, and the peer's TCP has
 * counted such a reset while the case ran.
 */
/** Connections that Linux has reset because data came after their close. */
const COUNTER = 'TCPAbortOnData';

/** How many of them a kernel has counted since its boot, by its /proc/net/netstat; 0 if it does not count. */
export function resetsAtClose(netstat: string): number {
  const [names = [], values = []] = [...netstat.matchAll(/^TcpExt: (.*)$/gm)].map(([, line]) =>
    line!.trim().split(' '),
  );
  return Number(values[names.indexOf(COUNTER)] ?? 0);
}

/**
 * Words on the fault, if our side misses octets at the peer's end, and `resets` connections were reset at
 * their close while the case ran. Null in all other cases.
 */
export function lostTailFault(said: string, resets: number): string | null {
  const missing = /the peer ended the connection with (\d+) bytes to come/.exec(said)?.[1];
  if (missing === undefined || resets <= 0) return null;
  return (
    `the last ${missing} octets did not come, and the peer's TCP has reset ${resets} ` +
    `connection${resets === 1 ? '' : 's'} at the close, for octets that came across it (F6 of siw 6.1)`
  );
}
