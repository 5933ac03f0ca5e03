/**
 * Start-up of one stream: the MPA machine of its role, what it came to, and octets that came too early. A stream keeps this only until it is
 * operational or on its way out: nothing of it is needed afterwards, and a frame is over half a KiB of memory.
 *
 * Read RFC 5044 7.1 and RFC 6581 9 first; the state tables are in `mpa/startup.ts`.
 */
import { putBytes } from '../base/copy.ts';
import type { DepthWishes } from '../mpa/negotiate.ts';
import type { ConnectionPolicy, Negotiated } from '../mpa/policy.ts';
import { MpaInitiator, MpaResponder, type StartupFailure } from '../mpa/startup.ts';
import type { StartupFrame } from '../mpa/wire.ts';
import type { StreamEvent } from './stream-types.ts';

/** Octets that may wait after a start-up frame while the ULP decides; more is an abuse. One socket read's worth. */
const MAX_EARLY_OCTETS = 65_536;
/** Room made for the first of them: a small FPDU or two. It doubles from there. */
const FIRST_ROOM = 512;

/** What the peer's frame came to. */
type StartupVerdict =
  | { readonly kind: 'request'; readonly request: StartupFrame }
  /** With a `terminate` other than FINE this connection is to end with that code, said in its first FPDU (ENH-022, ENH-040). */
  | { readonly kind: 'accepted'; readonly negotiated: Negotiated; readonly privateData: Uint8Array; readonly terminate: number }
  | { readonly kind: 'rejected'; readonly event: StreamEvent }
  /** The `farewell` is to be sent before the connection is closed. */
  | { readonly kind: 'failed'; readonly reason: StartupFailure; readonly farewell: Uint8Array | null };

export class StreamStartup {
  readonly #initiator: MpaInitiator | null;
  readonly #responder: MpaResponder | null;
  /** Null while there are none, as with nearly every peer. One piece of memory: what a peer sends by single octets may not cost an object each. */
  #early: Uint8Array | null = null;
  #earlyOctets = 0;
  /** What the frame came to, once it has come. */
  verdict: StartupVerdict | null = null;

  constructor(role: 'initiator' | 'responder', policy: ConnectionPolicy, privateData: Uint8Array, wishes: DepthWishes) {
    this.#initiator = role === 'initiator' ? new MpaInitiator(policy, privateData, wishes) : null;
    this.#responder = role === 'responder' ? new MpaResponder(policy) : null;
  }

  /** The Request to begin with; null for the responder. */
  begin(): Uint8Array | null {
    return this.#initiator?.start() ?? null;
  }

  /** Octets from the peer; returns how far it read. Then `verdict` may be set. */
  handleBytes(bytes: Uint8Array, start: number, end: number): number {
    if (this.#initiator !== null) {
      const at = this.#initiator.handleBytes(bytes, start, end);
      this.#judgeReply(this.#initiator);
      return at;
    }
    const responder = this.#responder!;
    const at = responder.handleBytes(bytes, start, end);
    if (responder.failure !== null) this.verdict = { kind: 'failed', reason: responder.failure, farewell: responder.farewell };
    else if (responder.request !== null) this.verdict = { kind: 'request', request: responder.request };
    return at;
  }

  #judgeReply({ outcome, request }: MpaInitiator): void {
    if (outcome === null) return;
    if (outcome.kind === 'accepted') {
      this.verdict = outcome;
    } else if (outcome.kind === 'failed') {
      this.verdict = { kind: 'failed', reason: outcome.reason, farewell: null };
    } else {
      const { revision, privateData, enhanced } = outcome;
      const event: StreamEvent = {
        type: 'rejected', revision, privateData, peerIrd: enhanced?.ird, peerOrd: enhanced?.ord, markersAsked: request.markers,
      };
      this.verdict = { kind: 'rejected', event };
    }
  }

  /** Responder: accept. The Reply, and what was settled; null if the policy turned it into a rejection (ENH-019). */
  accept(privateData: Uint8Array, wishes: DepthWishes): { readonly reply: Uint8Array; readonly negotiated: Negotiated | null } {
    return this.#responder!.accept(privateData, wishes);
  }

  /** Responder: the rejecting Reply. */
  reject(privateData: Uint8Array): Uint8Array {
    return this.#responder!.reject(privateData);
  }

  /** Private data of the peer's frame. */
  get peerPrivateData(): Uint8Array {
    const { verdict } = this;
    if (verdict?.kind === 'accepted') return verdict.privateData;
    return this.#responder!.request!.privateData;
  }

  /** No whole frame in time. */
  expire(): void {
    this.#initiator?.handleTimeout();
    this.#responder?.fail('timeout', 'timeout');
  }

  /** TCP has gone under start-up; the machines end with it. */
  lose(): void {
    this.#initiator?.handleLost();
    this.#responder?.fail('lost', 'truncated');
  }

  /** Octets after a start-up frame while the ULP decides are kept as the beginning of full operation (MPA-026, MPA-037); false if too many. */
  keepEarly(bytes: Uint8Array, at: number, end: number): boolean {
    const before = this.#earlyOctets;
    const now = before + end - at;
    if (now > MAX_EARLY_OCTETS) return false;
    putBytes(bytes.subarray(at, end), this.#earlyRoom(now), before);
    this.#earlyOctets = now;
    return true;
  }

  #earlyRoom(octets: number): Uint8Array {
    const early = this.#early;
    if (early !== null && octets <= early.length) return early;
    const room = new Uint8Array(Math.min(MAX_EARLY_OCTETS, Math.max(octets, early === null ? FIRST_ROOM : 2 * early.length)));
    if (early !== null) room.set(early);
    this.#early = room;
    return room;
  }

  /** The octets kept, once. */
  takeEarly(): Uint8Array | null {
    const early = this.#early;
    this.#early = null;
    return early?.subarray(0, this.#earlyOctets) ?? null;
  }
}
