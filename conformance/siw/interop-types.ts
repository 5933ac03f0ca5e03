/** What the interop runner needs of a peer beside the cases' view. */
import type { Peer } from './bench.ts';

export interface OpenPeer extends Peer {
  readonly description: string;
  /** What the peer's kernel said if it fell over; null if all is well. */
  crash(): Promise<string | null>;
  /** What the peer's kernel has said so far, or the latest of it. */
  kernelLog(): Promise<string>;
  close(): Promise<void>;
}
