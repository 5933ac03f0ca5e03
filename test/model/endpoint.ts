/**
 * One end of a connection in the model test: its queue pair, its regions and windows, and what the model
 * expects of them.
 */
import {
  ACCESS,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type WcStatus,
  type WorkCompletion,
} from '../../src/verbs/index.ts';
import type { Side } from '../support/pair.ts';
import type { Draw } from './draw.ts';
import { hasWindows, REGION_OCTETS, type ModelRegion, type ModelWindow, type Target } from './objects.ts';

export const SLOT_OCTETS = 64;
const REGIONS = 5;
const WINDOWS = 2;

/** A send-side request that has been posted: which completions are right for it. */
interface ExpectedSend {
  readonly wrId: number;
  readonly signaled: boolean;
  statuses: readonly WcStatus[];
}

/** A message that a receive must show. */
interface ExpectedMessage {
  readonly status: WcStatus;
  readonly payload: Uint8Array;
  readonly immediate: bigint | undefined;
  readonly invalidated: number | undefined;
  readonly solicited: boolean;
}

/** Buffers for receives: each posted entry has one slot, named by its wrId. */
export class ReceivePool {
  readonly depth: number;
  readonly shared: boolean;
  readonly inbox: MemoryRegion;
  readonly #post: (wrId: number, slot: number) => void;
  readonly #free: number[];
  #next = 0;
  /** wrIds posted and not completed, oldest first. */
  posted: number[] = [];

  constructor(
    pd: ProtectionDomain,
    depth: number,
    shared: boolean,
    post: (pool: ReceivePool, wrId: number, offset: number) => void,
  ) {
    this.depth = depth;
    this.shared = shared;
    this.inbox = pd.registerMemory(new Uint8Array(depth * SLOT_OCTETS), ACCESS.LOCAL_WRITE);
    this.#free = Array.from({ length: depth }, (_, slot) => slot);
    this.#post = (wrId, slot) => post(this, wrId, slot * SLOT_OCTETS);
  }

  postOne(): void {
    const slot = this.#free.pop()!;
    const wrId = this.#next++ * this.depth + slot;
    this.#post(wrId, slot);
    this.posted.push(wrId);
  }

  /** The completion of `wrId` has come. */
  complete(wrId: number): Uint8Array {
    const at = this.posted.indexOf(wrId);
    if (at < 0) throw new Error(`a receive completed that was not posted, or twice: ${wrId}`);
    if (at > 0 && !this.shared)
      throw new Error(`receives completed out of order: ${wrId} before ${this.posted[0]}`);
    this.posted.splice(at, 1);
    const slot = wrId % this.depth;
    this.#free.push(slot);
    return this.inbox.bytes.subarray(slot * SLOT_OCTETS, (slot + 1) * SLOT_OCTETS);
  }
}

export class Endpoint {
  readonly side: Side;
  readonly pd: ProtectionDomain;
  readonly draw: Draw;
  qp: QueuePair;
  pool: ReceivePool;
  regions: ModelRegion[] = [];
  windows: ModelWindow[] = [];
  stale: number[] = [];
  sends: ExpectedSend[] = [];
  messages: ExpectedMessage[] = [];
  #nextWrId = 0;
  #base = 0x1_0000;

  constructor(side: Side, pd: ProtectionDomain, draw: Draw, qp: QueuePair, pool: ReceivePool) {
    this.side = side;
    this.pd = pd;
    this.draw = draw;
    this.qp = qp;
    this.pool = pool;
    this.populate();
  }

  wrId(): number {
    return this.#nextWrId++;
  }

  /** Regions and windows anew. */
  populate(): void {
    while (this.regions.length < REGIONS) this.regions.push(this.#region());
    while (this.windows.length < WINDOWS) this.windows.push(this.#window());
  }

  #nextBase(): number {
    this.#base += 0x1000 + this.draw.below(64) * 8;
    return this.#base;
  }

  /** Rights that a region may have: mostly all of them. */
  drawAccess(remote: boolean): number {
    const { draw } = this;
    if (!remote) return draw.oneIn(4) ? 0 : ACCESS.LOCAL_WRITE;
    if (!draw.oneIn(3)) return 31;
    const bits = draw.below(32);
    return (bits & (ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC)) === 0 ? bits : bits | ACCESS.LOCAL_WRITE;
  }

  /** Memory with something in it, of the kind that the device allocates. */
  drawMemory(octets: number): Uint8Array {
    const memory = this.side.device.allocateMemory(octets);
    memory.set(this.draw.octets(octets));
    return memory;
  }

  #region(): ModelRegion {
    const { draw, pd } = this;
    const memory = this.drawMemory(REGION_OCTETS);
    if (draw.oneIn(3)) {
      const mayBeRemote = !draw.oneIn(5);
      const mr = pd.allocateFastRegion(REGION_OCTETS, { remote: mayBeRemote });
      const nothing = new Uint8Array(0);
      return {
        kind: 'region',
        mr,
        memory: nothing,
        bytes: nothing,
        base: 0,
        addressed: false,
        access: 0,
        stag: mr.rkey,
        valid: false,
        mayBeRemote,
      };
    }
    const access = this.drawAccess(true);
    const addressed = !draw.oneIn(3);
    const base = addressed ? this.#nextBase() : 0;
    const mr = pd.registerMemory(memory, access, addressed ? { iova: base } : {});
    const mayBeRemote = (access & (ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC)) !== 0;
    return {
      kind: 'region',
      mr,
      memory,
      bytes: memory.slice(),
      base,
      addressed,
      access,
      stag: mr.rkey,
      valid: true,
      mayBeRemote,
    };
  }

  #window(): ModelWindow {
    const mw = this.pd.allocateMw();
    return {
      kind: 'window',
      mw,
      stag: mw.rkey,
      valid: false,
      region: null,
      offset: 0,
      length: 0,
      base: 0,
      access: 0,
    };
  }

  /** Between rounds: one region or window goes, another comes. Returns the calls made. */
  churn(): number {
    const { draw } = this;
    if (draw.oneIn(2)) {
      const window = draw.pick(this.windows);
      this.stale.push(window.stag);
      window.mw.deallocate();
      this.windows.splice(this.windows.indexOf(window), 1);
    } else {
      const region = draw.pick(this.regions);
      const bound = hasWindows(region, this.windows);
      let refused = false;
      try {
        region.mr.deregister();
      } catch (error) {
        refused = (error as { code?: string }).code === 'ERR_IN_USE';
        if (!refused) throw error;
      }
      if (refused !== bound)
        throw new Error(
          `deregistration ${refused ? 'refused' : 'allowed'} with ${bound ? '' : 'no '}windows bound`,
        );
      if (bound) return 1;
      this.stale.push(region.stag);
      this.regions.splice(this.regions.indexOf(region), 1);
    }
    this.populate();
    return 2;
  }

  /** Everything goes: after the end of a connection nobody can say what its last requests did. */
  clear(): void {
    for (const window of this.windows) window.mw.deallocate();
    for (const region of this.regions) region.mr.deregister();
    this.windows = [];
    this.regions = [];
    this.populate();
  }

  /** What this endpoint's peer may name. */
  targets(): Target[] {
    return [...this.regions, ...this.windows].map((object) => ({
      stag: object.stag,
      object,
      foreign: false,
    }));
  }

  /** Every octet and every STag as the model has it. */
  verify(): void {
    for (const region of this.regions) {
      if (Buffer.compare(region.memory, region.bytes) !== 0)
        throw new Error(`memory differs in region ${region.stag.toString(16)}`);
      if (region.mr.valid !== region.valid || region.mr.rkey !== region.stag)
        throw new Error(`region ${region.stag.toString(16)} is not as the model has it`);
    }
    for (const window of this.windows) {
      if (window.mw.valid !== window.valid || window.mw.rkey !== window.stag)
        throw new Error(`window ${window.stag.toString(16)} is not as the model has it`);
    }
    const bound = this.windows.filter((window) => window.valid).length;
    if (this.qp.query().boundWindows !== bound)
      throw new Error(`${this.qp.query().boundWindows} windows are bound, not ${bound}`);
  }

  /** Every request that must complete has, once, in order, with a right status; nothing else has. */
  verifySends(completions: readonly WorkCompletion[]): void {
    let at = 0;
    let failed = false;
    let faults = 0;
    for (const expected of this.sends) {
      const wc = completions[at];
      if (wc === undefined || wc.wrId !== expected.wrId) {
        if (!expected.signaled && expected.statuses.includes('success') && !failed) continue;
        throw new Error(
          `completion lost: ${expected.wrId} (${expected.statuses.join('|')}), next is ` +
            `${wc?.wrId ?? 'none'} ${wc?.status ?? ''}`,
        );
      }
      at++;
      if (!expected.statuses.includes(wc.status))
        throw new Error(`${wc.opcode} ${wc.wrId}: ${wc.status}, not ${expected.statuses.join('|')}`);
      if (failed && wc.status === 'success') throw new Error(`${wc.wrId} succeeded after a failure`);
      if (wc.status !== 'success' && wc.status !== 'flushed' && ++faults > 1)
        throw new Error(`${wc.wrId} is a second fault: ${wc.status}`); // VERBS-057
      if (!expected.signaled && wc.status === 'success')
        throw new Error(`unsignaled ${wc.wrId} gave a completion`);
      failed ||= wc.status !== 'success';
    }
    if (at !== completions.length)
      throw new Error(`completion too many: ${completions[at]!.wrId} ${completions[at]!.status}`);
    this.sends = [];
  }

  /** The messages in order, then, if the connection has ended, everything posted as flushed. */
  verifyReceives(completions: readonly WorkCompletion[], ended: boolean): void {
    let at = 0;
    for (const message of this.messages) {
      const wc = completions[at++];
      if (wc === undefined) throw new Error('a receive completion was lost');
      const buffer = this.pool.complete(Number(wc.wrId));
      if (wc.status !== message.status)
        throw new Error(`receive ${wc.wrId}: ${wc.status}, not ${message.status}`);
      if (message.status !== 'success') continue;
      if (
        wc.immediate !== message.immediate ||
        wc.invalidatedStag !== message.invalidated ||
        wc.solicited !== message.solicited
      ) {
        throw new Error(`receive ${wc.wrId}: immediate, invalidated STag or solicited differ`);
      }
      if (message.immediate !== undefined) continue;
      if (
        wc.byteLength !== message.payload.length ||
        Buffer.compare(buffer.subarray(0, wc.byteLength), message.payload) !== 0
      ) {
        throw new Error(`receive ${wc.wrId}: the message differs`);
      }
    }
    this.messages = [];
    const flushed = ended && !this.pool.shared ? this.pool.posted.length : 0;
    for (let i = 0; i < flushed; i++) {
      const wc = completions[at++];
      if (wc?.status !== 'flushed')
        throw new Error(`a posted receive was not flushed: ${wc?.status ?? 'no completion'}`);
      this.pool.complete(Number(wc.wrId));
    }
    if (at !== completions.length)
      throw new Error(`receive completion too many: ${completions[at]!.wrId} ${completions[at]!.status}`);
  }
}
