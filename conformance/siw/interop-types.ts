/** The functions that the interop runner needs of a peer beside those for cases. */
import type { Peer } from './bench.ts';

export interface OpenPeer extends Peer {
  readonly description: string;
  /** The kernel messages about a crash of the peer's kernel; null if all is well. */
  crash(): Promise<string | null>;
  /** The messages of the peer's kernel so far, or the latest of them. */
  kernelLog(): Promise<string>;
  /** `resetsAtClose` of the peer's kernel; null for one whose connections are not all ours. */
  resetsAtClose(): Promise<number | null>;
  /** Whether the peer is beyond help: a guest that has ended, has fallen over, or answers no command. */
  dead(): Promise<boolean>;
  close(): Promise<void>;
}
