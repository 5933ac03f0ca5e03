/**
 * The exchange of start-up frames on one connection: the machine of its role, its verdict, and bytes that
 * came too early.
 *
 * Read RFC 5044 7.1 and RFC 6581 9 first; the state tables are in `startup.ts`.
 */
import { putBytes } from '../base/copy.ts';
import type { DepthRequest, Negotiated, Role, StartupVerdict } from '../llp/startup.ts';
import type { ConnectionPolicy } from './policy.ts';
import { MpaInitiator, MpaResponder } from './startup.ts';

/**
 * Bytes that may wait after a start-up frame while the ULP decides; more is an abuse. One socket read's
 * worth.
 */
const MAX_EARLY_OCTETS = 65_536;
/** Room made for the first of them: a small FPDU or two. It doubles from there. */
const FIRST_ROOM = 512;

export class StartupExchange {
  readonly #initiator: MpaInitiator | null;
  readonly #responder: MpaResponder | null;
  /**
   * Null while there are none, as with nearly every peer. One piece of memory: what a peer sends by single
   * bytes may not cost an object each.
   */
  #early: Uint8Array | null = null;
  #earlyOctets = 0;
  /** The result of the peer's frame, once it is complete or wrong. */
  verdict: StartupVerdict | null = null;
  /** A frame to be sent before a failed connection is closed. */
  farewell: Uint8Array | null = null;

  constructor(role: Role, policy: ConnectionPolicy, privateData: Uint8Array, wishes: DepthRequest) {
    this.#initiator = role === 'initiator' ? new MpaInitiator(policy, privateData, wishes) : null;
    this.#responder = role === 'responder' ? new MpaResponder(policy) : null;
  }

  /** The Request to begin with; null for the responder. */
  begin(): Uint8Array | null {
    return this.#initiator?.start() ?? null;
  }

  /** Bytes from the peer; returns how far it read. Then `verdict` may be set. */
  handleBytes(bytes: Uint8Array, start: number, end: number): number {
    if (this.#initiator !== null) {
      const at = this.#initiator.handleBytes(bytes, start, end);
      this.#judgeReply(this.#initiator);
      return at;
    }
    const responder = this.#responder!;
    const at = responder.handleBytes(bytes, start, end);
    if (responder.failure !== null) {
      this.verdict = { kind: 'failed', reason: responder.failure };
      this.farewell = responder.farewell;
    } else if (responder.request !== null) {
      const { revision, privateData, enhanced, legacyDepths } = responder.request;
      const depths = enhanced ?? legacyDepths;
      this.verdict = {
        kind: 'request',
        request: { revision, privateData, peerIrd: depths?.ird, peerOrd: depths?.ord },
      };
    }
    return at;
  }

  #judgeReply({ outcome, request }: MpaInitiator): void {
    if (outcome === null) return;
    if (outcome.kind === 'accepted') {
      this.verdict = outcome;
    } else if (outcome.kind === 'failed') {
      this.verdict = { kind: 'failed', reason: outcome.reason };
    } else {
      const { revision, privateData, enhanced } = outcome;
      this.verdict = {
        kind: 'rejected',
        rejection: {
          revision,
          privateData,
          peerIrd: enhanced?.ird,
          peerOrd: enhanced?.ord,
          markersAsked: request.markers,
        },
      };
    }
  }

  /**
   * Responder: accept. The Reply, and the result; null if the policy turned it into a rejection
   * (ENH-019).
   */
  accept(
    privateData: Uint8Array,
    wishes: DepthRequest,
  ): { readonly reply: Uint8Array; readonly negotiated: Negotiated | null } {
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

  /**
   * Bytes after a start-up frame while the ULP decides are kept as the beginning of full operation (MPA-026,
   * MPA-037); false if too many.
   */
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
    const room = new Uint8Array(
      Math.min(MAX_EARLY_OCTETS, Math.max(octets, early === null ? FIRST_ROOM : 2 * early.length)),
    );
    if (early !== null) room.set(early);
    this.#early = room;
    return room;
  }

  /** The bytes kept, once. */
  takeEarly(): Uint8Array | null {
    const early = this.#early;
    this.#early = null;
    return early?.subarray(0, this.#earlyOctets) ?? null;
  }
}
