// A profile knows how to bring one kind of peer into the state that a case needs, and what that kind of peer
// can offer.

import type { Connection, Limits, Role } from '../probe/connection.ts';
import type { EndpointOptions } from './protocol.ts';
import type { Region, Tester } from './tester.ts';

/**
 * The abilities that a case needs of its peer beyond connecting:
 * - `region`: memory of the peer that the probe may read and write, under a name that the probe learns;
 * - `send`: one Send of the probe that the peer takes, with a visible consequence;
 * - `tester`: everything, through the tester protocol;
 * - `extensions`: RFC 7306, and the tester;
 * - `first-msn`: the tester can begin with message sequence numbers near their wrap.
 */
export type Capability = 'region' | 'send' | 'tester' | 'extensions' | 'first-msn';

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** One case's dealings with its peer. */
export interface Session {
  /** Where the probe connects, as initiator. */
  readonly address: Address | null;
  readonly tester: Tester | null;
  /**
   * Nothing is known of the program above the peer: its own messages, and their times, say nothing about the
   * peer.
   */
  readonly strangeProgram?: boolean;
  /** As responder: make the peer connect to this address. */
  invite(address: Address): Promise<void>;
  /** Full operation has begun; take what this kind of peer sends on its own. */
  established(connection: Connection): Promise<void>;
  /** Memory of the peer, at least `length` octets where the peer can choose. */
  region(connection: Connection, length: number): Promise<Region>;
  /** Payload of a Send that the peer will take. */
  acceptableSend(): Uint8Array;
  /** Octets that a posted receive of the peer holds. */
  readonly receiveSize: number;
  /** Throw a Deviation unless the Send with this payload has been delivered. */
  delivered(connection: Connection, payload: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

export interface SessionOptions {
  readonly role: Role;
  readonly setup: EndpointOptions;
  readonly limits: Limits;
  readonly seed: number;
}

export interface Profile {
  readonly name: string;
  readonly capabilities: ReadonlySet<Capability>;
  readonly roles: readonly Role[];
  /** Where the probe listens for this peer, as responder; port 0 takes a free one. */
  readonly listen: Address;
  /** The peer's description in the report. */
  readonly description: string;
  begin(options: SessionOptions): Promise<Session>;
  /** Why there can be no further session, once that is so. */
  lost?(): string | null;
  close(): Promise<void>;
}
