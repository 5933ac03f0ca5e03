/** How a socket gets its connection: the addresses of its plan, one after the other, each with a channel. */
import { nextTick } from 'node:process';
import type { Rnic } from '../api/environment.ts';
import { inThisContext } from '../base/async-context.ts';
import { IwarpError } from '../base/errors.ts';
import type { ChannelHandler } from './byte-channel.ts';
import type { ConnectPlan, LookupAddress } from './connect.ts';
import type { RdmaSocketOptions } from './options.ts';
import { agreesFirst, protocolOf, type ConnectedChannel } from './protocols.ts';
import { agree } from './streaming.ts';

/** The socket that dials. */
interface Dialer {
  readonly rnic: Rnic;
  readonly options: RdmaSocketOptions;
  readonly handler: ChannelHandler;
  readonly isGone: () => boolean;
  /** An attempt begins on this channel; the one before has ended. */
  readonly take: (channel: ConnectedChannel) => void;
  /** The program's `lookup` has answered. */
  readonly found: (error: Error | null, host: string, answer?: LookupAddress) => void;
  readonly failed: (error: Error) => void;
}

/** One call of `connect`. */
export class Dialing {
  readonly #dialer: Dialer;
  readonly #plan: ConnectPlan;
  /** Addresses of the peer that have not been tried yet. */
  #untried: readonly LookupAddress[] = [];
  /** Gives up the agreement in front of MPA. */
  #stopAgreeing: (() => void) | null = null;
  /** Addresses that `options.lookup` gave and that have been tried, each with its port. */
  readonly tried: string[] = [];

  constructor(dialer: Dialer, plan: ConnectPlan) {
    this.#dialer = dialer;
    this.#plan = plan;
  }

  /** Throws ERR_LIMIT or ERR_DESTROYED if the device has no room, and what the program's `lookup` throws. */
  begin(): void {
    const { lookup, target } = this.#plan;
    if (lookup === null) {
      this.#attempt(target.host);
      return;
    }
    // Another resolver's cache may answer, in any context.
    const resolved = inThisContext((error: Error | null, addresses: readonly LookupAddress[]) =>
      nextTick(() => this.#resolved(error, addresses)),
    );
    lookup(resolved);
  }

  #resolved(error: Error | null, addresses: readonly LookupAddress[]): void {
    const { found, failed, isGone } = this.#dialer;
    const { host } = this.#plan.target;
    if (isGone()) return;
    for (const answer of addresses) found(null, host, answer);
    if (error !== null) {
      found(error, host);
      failed(error);
      return;
    }
    this.#untried = addresses;
    this.next();
  }

  /** The next address of the name. False if there is none, or nothing waits for it. */
  next(): boolean {
    const [next, ...rest] = this.#untried;
    if (next === undefined || this.#dialer.isGone()) return false;
    this.#untried = rest;
    try {
      this.#attempt(next.address);
    } catch (limit) {
      this.#dialer.failed(limit as Error);
    }
    return true;
  }

  #attempt(host: string): void {
    const { rnic, options, handler, take } = this.#dialer;
    const { target, policy, lookup } = this.#plan;
    if (lookup !== null) this.tried.push(`${host}:${target.port}`);
    const channel = protocolOf(options).make(rnic, options, handler);
    take(channel);
    const { qp, depth } = channel;
    const first = agreesFirst(options);
    const privateData = first ? undefined : channel.connectionData;
    const request = {
      ...target,
      host,
      policy,
      responderResources: depth,
      initiatorDepth: depth,
      privateData,
    };
    if (!first) {
      channel.use(rnic.cm.connect(qp, request), null);
      return;
    }
    this.#stopAgreeing = agree(rnic, { ...target, host }, channel.connectionData, (result) => {
      this.#stopAgreeing = null;
      if (result instanceof IwarpError) {
        channel.abort(result);
        return;
      }
      const { tls: _below, ...over } = { ...request, over: result.port };
      channel.use(rnic.cm.connect(qp, over), result.ack);
    });
  }

  /** The socket is destroyed. */
  stop(): void {
    this.#stopAgreeing?.();
  }

  /** What an error of `connect` names. */
  get place(): { readonly address: string; readonly port?: number } {
    const { target } = this.#plan;
    return target.path === undefined ? { address: target.host, port: target.port } : { address: target.path };
  }
}
