/**
 * How many connections a listener has: those that the program has not answered yet (SEC-033), those whose
 * peers are waited for after a failed start-up, and all together; in sum and for each address. Where a limit
 * is reached, the oldest connection that has not sent its whole start-up frame makes room for the newcomer,
 * so that half-sent frames shut out no newcomer. It is taken from the address that has the most of them, so
 * that an address which fills a listener displaces only its own.
 *
 * A connection whose start-up has failed no longer counts as pending, but the system still has it: a peer
 * that does not close its side is waited for (`closeTimeout`). Such connections are bounded by `maxPending`
 * too, or a peer could pile up sockets by failing quickly; further ones are reset at once.
 */
import { nextState, type MachineTable } from '../base/fsm.ts';
import { ipOctets, isIP } from '../transport/ip-address.ts';
import type { StreamLink } from './engine.ts';

/** Limits of one listener; Infinity for none. */
export interface ListenLimits {
  /** Connections in start-up or waiting for an answer. */
  readonly maxPending: number;
  /** `maxPending` for one address. */
  readonly maxPendingPerAddress: number;
  /** All connections of the listener, from their TCP connection to their end. */
  readonly maxConnections: number;
  /** `maxConnections` for one address. */
  readonly maxConnectionsPerAddress: number;
}

/** Why a listener refuses a connection. */
const LISTEN_REFUSALS = ['too-many-pending', 'too-many-connections'] as const;
/** One of `LISTEN_REFUSALS`. */
export type ListenRefusal = (typeof LISTEN_REFUSALS)[number];

export const SLOT_STATES = ['starting', 'waiting', 'accepted', 'answered', 'leaving', 'free'] as const;
export type SlotState = (typeof SLOT_STATES)[number];
export const SLOT_INPUTS = ['request', 'accept', 'answer', 'leave', 'gone'] as const;
export type SlotInput = (typeof SLOT_INPUTS)[number];

/**
 * How one connection counts. Events of a connection may come after its slot was given away. An accepted one
 * is pending until it is established: over UDP that is when its client has been heard, and a forged source
 * address never is.
 */
export const SLOT_TABLE: MachineTable<SlotState, SlotInput> = {
  name: 'listener slot',
  initial: 'starting',
  transitions: {
    starting: { request: 'waiting', leave: 'leaving', gone: 'free' },
    waiting: { accept: 'accepted', answer: 'answered', leave: 'leaving', gone: 'free' },
    accepted: { answer: 'answered', leave: 'accepted', gone: 'free' },
    answered: { leave: 'answered', gone: 'free' },
    leaving: { request: 'leaving', accept: 'leaving', answer: 'leaving', leave: 'leaving', gone: 'free' },
    free: { request: 'free', accept: 'free', answer: 'free', leave: 'free', gone: 'free' },
  },
};

type SlotLink = Pick<StreamLink, 'abort' | 'displace' | 'remoteAddress'>;

/** The connections of one address: of an IPv6 address, those of its /64, which one host may have whole. */
interface AddressGroup {
  readonly name: string;
  pending: number;
  connections: number;
  /** Connections in start-up, linked from the oldest to the newest. */
  starting: number;
  oldest: ListenerSlot | null;
  newest: ListenerSlot | null;
}

/** The part of one connection in the counts of its listener. */
export class ListenerSlot {
  readonly link: SlotLink;
  readonly group: AddressGroup;
  older: ListenerSlot | null = null;
  newer: ListenerSlot | null = null;
  #state: SlotState = SLOT_TABLE.initial;

  /** Made by {@link ListenerLimits.take}. */
  constructor(link: SlotLink, group: AddressGroup) {
    this.link = link;
    this.group = group;
  }

  get state(): SlotState {
    return this.#state;
  }

  step(input: SlotInput): void {
    this.#state = nextState(SLOT_TABLE, this.#state, input, this);
  }
}

const IPV6_PREFIX_OCTETS = 8;

function groupName(address: string = ''): string {
  if (isIP(address) === 4) return address;
  const octets = ipOctets(address);
  if (octets === undefined) return address;
  return octets.length === 4 ? octets.join('.') : octets.subarray(0, IPV6_PREFIX_OCTETS).join(':');
}

/** The counts of one listener. */
export class ListenerLimits {
  readonly #limits: ListenLimits;
  readonly #groups = new Map<string, AddressGroup>();
  #pending = 0;
  #leaving = 0;
  #connections = 0;

  constructor(limits: ListenLimits) {
    this.#limits = limits;
  }

  /** Connections in start-up or waiting for an answer. */
  get pending(): number {
    return this.#pending;
  }

  /** Connections that count, in whatever state. */
  get connections(): number {
    return this.#connections;
  }

  /**
   * Make room for a connection from this address. Null if there is some now, else the limit that is reached
   * by connections which cannot be displaced.
   */
  refusal(address: string | undefined): ListenRefusal | null {
    const { maxPending, maxPendingPerAddress, maxConnections, maxConnectionsPerAddress } = this.#limits;
    const group = this.#groups.get(groupName(address));
    if (group !== undefined) {
      if (group.pending >= maxPendingPerAddress && !displaceOldest(this, group)) return 'too-many-pending';
      if (group.connections >= maxConnectionsPerAddress && !displaceOldest(this, group))
        return 'too-many-connections';
    }
    if (this.#pending >= maxPending && !displaceOldest(this, this.#fullest())) return 'too-many-pending';
    if (this.#connections >= maxConnections && !displaceOldest(this, this.#fullest()))
      return 'too-many-connections';
    return null;
  }

  /** A connection has come, for which `refusal` was asked. */
  take(link: SlotLink): ListenerSlot {
    const name = groupName(link.remoteAddress?.address);
    let group = this.#groups.get(name);
    if (group === undefined) {
      group = { name, pending: 0, connections: 0, starting: 0, oldest: null, newest: null };
      this.#groups.set(name, group);
    }
    const slot = new ListenerSlot(link, group);
    this.#pending++;
    this.#connections++;
    group.pending++;
    group.connections++;
    group.starting++;
    slot.older = group.newest;
    if (group.newest === null) group.oldest = slot;
    else group.newest.newer = slot;
    group.newest = slot;
    return slot;
  }

  /** Its whole start-up frame is here: it waits for the program, and can no longer be displaced. */
  requested(slot: ListenerSlot): void {
    if (slot.state === 'starting') unlink(slot);
    slot.step('request');
  }

  /** The program has accepted it. */
  accepted(slot: ListenerSlot): void {
    slot.step('accept');
  }

  /** It is established, or the program has rejected it. */
  answered(slot: ListenerSlot): void {
    if (isPending(slot.state)) this.#notPending(slot);
    slot.step('answer');
    const { maxConnections, maxConnectionsPerAddress } = this.#limits;
    // Established connections count only where there is a limit for them.
    if (maxConnections === Infinity && maxConnectionsPerAddress === Infinity) this.gone(slot);
  }

  /** Counts a connection whose request will not be answered and whose link is closing. */
  leave(slot: ListenerSlot): void {
    if (slot.state !== 'starting' && slot.state !== 'waiting') return;
    if (this.#leaving >= this.#limits.maxPending) {
      this.gone(slot);
      slot.link.abort();
      return;
    }
    if (slot.state === 'starting') unlink(slot);
    this.#notPending(slot);
    this.#leaving++;
    slot.step('leave');
  }

  /** TCP is gone, or the connection no longer counts for another reason. */
  gone(slot: ListenerSlot): void {
    const { group, state } = slot;
    slot.step('gone');
    if (state === 'free') return;
    if (state === 'starting') unlink(slot);
    if (isPending(state)) this.#notPending(slot);
    else if (state === 'leaving') this.#leaving--;
    this.#connections--;
    if (--group.connections === 0) this.#groups.delete(group.name);
  }

  #notPending(slot: ListenerSlot): void {
    this.#pending--;
    slot.group.pending--;
  }

  /** The address with the most connections in start-up. */
  #fullest(): AddressGroup | null {
    let fullest: AddressGroup | null = null;
    for (const group of this.#groups.values()) if (group.starting > (fullest?.starting ?? 0)) fullest = group;
    return fullest;
  }
}

function isPending(state: SlotState): boolean {
  return state === 'starting' || state === 'waiting' || state === 'accepted';
}

/** False if none of the group is in start-up. */
function displaceOldest(limits: ListenerLimits, group: AddressGroup | null): boolean {
  const slot = group?.oldest ?? null;
  if (slot === null) return false;
  limits.gone(slot);
  slot.link.displace();
  return true;
}

function unlink(slot: ListenerSlot): void {
  const { group, older, newer } = slot;
  group.starting--;
  if (older === null) group.oldest = newer;
  else older.newer = newer;
  if (newer === null) group.newest = older;
  else newer.older = older;
  slot.older = slot.newer = null;
}
