/**
 * One round of requests on one connection in one direction: draws them, says by the naive model what each
 * must do, and applies that to the model. A request that races with an unanswered Read gets a fence, so that
 * posting order is the order of effects.
 */
import { ACCESS, type SendWorkRequest, type Sge, type WcStatus } from '../../src/verbs/index.ts';
import { SLOT_OCTETS, type Endpoint } from './endpoint.ts';
import {
  access,
  hasWindows,
  invalidate,
  invalidation,
  READ_CODE,
  REGION_OCTETS,
  TAGGED_CODE,
  type ModelRegion,
  type ModelWindow,
  type Place,
  type Target,
} from './objects.ts';

/** What posting must do: nothing wrong, or this code. */
export interface Step {
  readonly request: SendWorkRequest;
  readonly code: string | undefined;
}

/** How the round ends the connection. */
interface Doom {
  readonly by: 'local' | 'remote';
  readonly terminate: string;
}

const DONE: readonly WcStatus[] = ['success'];
const DONE_OR_NOT: readonly WcStatus[] = ['success', 'flushed'];
const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, MW_BIND } = ACCESS;
const ONES = (1n << 64n) - 1n;

interface Common {
  wrId: number;
  signaled: boolean;
  fence: boolean;
}

export class Round {
  readonly #from: Endpoint;
  readonly #to: Endpoint;
  readonly #foreign: () => readonly number[];
  /** Regions that an unanswered Read or atomic fills here, or reads there. */
  readonly #sinks = new Set<ModelRegion>();
  readonly #sources = new Set<ModelRegion>();
  /** STags that a Send of this round invalidates there. */
  readonly #invalidated = new Set<number>();
  readonly #overtaking: boolean;
  #receives: number;
  doom: Doom | null = null;

  /** `overtaking`: a Write may be placed before earlier Sends and atomics have their effect. */
  constructor(from: Endpoint, to: Endpoint, foreign: () => readonly number[], overtaking: boolean) {
    this.#from = from;
    this.#to = to;
    this.#foreign = foreign;
    this.#overtaking = overtaking;
    this.#receives = to.pool.shared ? Number.POSITIVE_INFINITY : to.pool.posted.length;
  }

  next(): Step {
    const draw = this.#from.draw;
    const common: Common = { wrId: this.#from.wrId(), signaled: !draw.oneIn(3), fence: draw.oneIn(12) };
    if (this.doom !== null) return this.#behindDoom(common);
    const kind = draw.below(100);
    if (kind < 24) return this.#send(common);
    if (kind < 30) return this.#immediate(common);
    if (kind < 54) return this.#write(common);
    if (kind < 72) return this.#read(common);
    if (kind < 84) return this.#atomic(common);
    if (kind < 90) return this.#bind(common);
    if (kind < 95) return this.#localInvalidate(common);
    return this.#fastRegister(common);
  }

  // ------------------------------------------------------------------------------------------------- helpers

  /** It will be posted: this is what its completion may say. */
  #expect(common: Common, statuses: readonly WcStatus[] = DONE): void {
    this.#from.sends.push({ wrId: common.wrId, signaled: common.signaled, statuses });
    if (common.fence) this.#settleReads();
  }

  #settleReads(): void {
    this.#sinks.clear();
    this.#sources.clear();
  }

  /**
   * The connection ends with this request; what stood in front of it may or may not have completed by then.
   */
  #end(common: Common, by: Doom['by'], terminate: string, statuses: readonly WcStatus[]): void {
    for (const send of this.#from.sends) send.statuses = DONE_OR_NOT;
    this.#expect(common, statuses);
    this.doom = { by, terminate };
  }

  /** Fence if the request uses or changes what an unanswered one still works on. */
  #guard(common: Common, here: readonly ModelRegion[], there: readonly ModelRegion[]): void {
    common.fence ||=
      here.some((region) => this.#sinks.has(region)) || there.some((region) => this.#sources.has(region));
  }

  #behindDoom(common: Common): Step {
    this.#expect(common, this.doom!.by === 'local' ? ['flushed'] : DONE_OR_NOT);
    return { request: { ...common, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 }, code: undefined };
  }

  /** Elements over own regions, mostly good; the code of the first bad one. */
  #elements(
    max: number,
    octets: number,
    right: number,
  ): { sges: Sge[]; places: Place[]; lengths: number[]; code: string | undefined } {
    const { draw, regions } = this.#from;
    const sges: Sge[] = [];
    const places: Place[] = [];
    const lengths: number[] = [];
    let code: string | undefined;
    let left = octets;
    const count = max === 1 ? 1 : 1 + draw.below(max);
    for (let i = 0; i < count; i++) {
      const length = i === count - 1 ? left : draw.below(left + 1);
      const good = regions.filter(
        (region) => region.valid && (region.access & right) === right && region.bytes.length >= length,
      );
      const region = good.length === 0 || draw.oneIn(60) ? draw.pick(regions) : draw.pick(good);
      const room = Math.max(0, region.bytes.length - length);
      const offset = draw.oneIn(100) ? draw.below(REGION_OCTETS * 2) : draw.below(room + 1);
      if (length > 0 && code === undefined) {
        if (!region.valid) code = 'ERR_INVALID_REGION';
        else if (offset + length > region.bytes.length) code = 'ERR_OUT_OF_RANGE';
        else if ((region.access & right) !== right) code = 'ERR_ACCESS';
      }
      sges.push({ mr: region.mr, offset, length });
      places.push({ region, offset });
      lengths.push(length);
      left -= length;
    }
    return { sges, places, lengths, code };
  }

  /** Something of the peer to name: mostly something that grants the right. */
  #target(right: number, length: number): { target: Target; to: number } {
    const { draw } = this.#from;
    const targets = this.#to.targets();
    const odd = draw.below(300);
    let target: Target;
    if (odd === 0)
      target = {
        stag: this.#to.stale.length > 0 ? draw.pick(this.#to.stale) : 0,
        object: null,
        foreign: false,
      };
    else if (odd === 1) target = { stag: draw.pick(this.#foreign()), object: null, foreign: true };
    else if (odd === 2) target = draw.pick(targets);
    else {
      const good = targets.filter(
        ({ object }) => object!.valid && (object!.access & right) !== 0 && sizeOf(object!) >= length,
      );
      target = good.length > 0 ? draw.pick(good) : draw.pick(targets);
    }
    const { object } = target;
    if (object === null) return { target, to: draw.below(100) };
    const offset = draw.oneIn(200)
      ? draw.below(4 * REGION_OCTETS)
      : draw.below(Math.max(1, sizeOf(object) - length + 1));
    return { target, to: object.base + offset };
  }

  #gather(places: readonly Place[], lengths: readonly number[]): Uint8Array {
    return Buffer.concat(
      places.map(({ region, offset }, i) => region.bytes.subarray(offset, offset + lengths[i]!)),
    );
  }

  // ----------------------------------------------------------------------------------------- Send, Immediate

  #send(common: Common): Step {
    const { draw } = this.#from;
    const octets = draw.oneIn(150) ? SLOT_OCTETS + 1 + draw.below(20) : draw.below(SLOT_OCTETS + 1);
    const solicited = draw.oneIn(4);
    const inline = draw.oneIn(3);
    const { sges, places, lengths, code } = this.#elements(3, octets, 0);
    const invalidating = draw.oneIn(8) ? this.#target(31, 0).target : undefined;
    const bytes = draw.octets(octets);
    const request: SendWorkRequest = {
      ...common,
      opcode: 'send',
      solicited,
      ...(inline ? { inline: bytes } : { sges }),
      ...(invalidating === undefined ? {} : { invalidate: invalidating.stag }),
    };
    if (!inline && code !== undefined) return { request, code };
    const payload = inline ? bytes : this.#gather(places, lengths);
    const there =
      invalidating?.object == null ? [] : [regionOf(invalidating.object)].filter((region) => region !== null);
    this.#guard(common, inline ? [] : places.map((place) => place.region), there);
    this.#deliver(common, payload, undefined, solicited, invalidating);
    return { request: { ...request, fence: common.fence }, code: undefined };
  }

  /** The message meets its receive. */
  #deliver(
    common: Common,
    payload: Uint8Array,
    immediate: bigint | undefined,
    solicited: boolean,
    invalidating?: Target,
  ): void {
    const { messages, windows } = this.#to;
    const plain = { payload, immediate, solicited, invalidated: undefined };
    if (this.#receives === 0) return this.#end(common, 'remote', '1/2/02', DONE_OR_NOT);
    this.#receives--;
    if (immediate === undefined && payload.length > SLOT_OCTETS) {
      messages.push({ ...plain, status: 'local-length-error' });
      return this.#end(common, 'remote', '1/2/05', DONE_OR_NOT);
    }
    if (invalidating === undefined) {
      messages.push({ ...plain, status: 'success' });
      return this.#expect(common);
    }
    const verdict = invalidation(invalidating, windows);
    if (typeof verdict === 'string') {
      messages.push({ ...plain, status: 'remote-invalidate-error' });
      return this.#end(common, 'remote', verdict, DONE_OR_NOT);
    }
    this.#invalidated.add(verdict.stag);
    invalidate(verdict);
    messages.push({ ...plain, status: 'success', invalidated: verdict.stag });
    return this.#expect(common);
  }

  #immediate(common: Common): Step {
    const { draw } = this.#from;
    const immediate = draw.u64();
    const solicited = draw.oneIn(3);
    this.#deliver(common, new Uint8Array(8), immediate, solicited);
    return { request: { ...common, opcode: 'immediate', immediate, solicited }, code: undefined };
  }

  // ------------------------------------------------------------------------------------- Write, Read, atomic

  #write(common: Common): Step {
    const { draw } = this.#from;
    const octets = draw.oneIn(10) ? 0 : 1 + draw.below(60);
    const { target, to } = this.#target(REMOTE_WRITE, octets);
    // Whether the Write or the invalidation comes first is open then.
    if (this.#overtaking && this.#invalidated.has(target.stag)) return this.#immediate(common);
    const { sges, places, lengths, code } = this.#elements(3, octets, 0);
    const immediate = draw.oneIn(6) ? draw.u64() : undefined;
    const request: SendWorkRequest = {
      ...common,
      opcode: 'rdma-write',
      sges,
      rkey: target.stag,
      remoteAddr: to,
      ...(immediate === undefined ? {} : { immediate }),
    };
    if (code !== undefined) return { request, code };
    const place = octets === 0 ? null : access(target, to, octets, REMOTE_WRITE);
    this.#guard(
      common,
      places.map((p) => p.region),
      typeof place === 'object' && place !== null ? [place.region] : [],
    );
    if (typeof place === 'string') this.#end(common, 'remote', TAGGED_CODE[place], DONE_OR_NOT);
    else {
      if (place !== null) place.region.bytes.set(this.#gather(places, lengths), place.offset);
      if (immediate === undefined) this.#expect(common);
      else this.#deliver(common, new Uint8Array(8), immediate, false);
    }
    return { request: { ...request, fence: common.fence }, code: undefined };
  }

  #read(common: Common): Step {
    const { draw, windows } = this.#from;
    const octets = draw.oneIn(12) ? 0 : 1 + draw.below(60);
    const { target, to } = this.#target(REMOTE_READ, octets);
    const { sges, places, code } = this.#elements(1, octets, LOCAL_WRITE);
    const sink = places[0]!;
    const localInvalidate = draw.oneIn(12) && !hasWindows(sink.region, windows);
    const request: SendWorkRequest = {
      ...common,
      opcode: 'rdma-read',
      sges,
      rkey: target.stag,
      remoteAddr: to,
      localInvalidate,
    };
    if (code !== undefined) return { request, code };
    const place = octets === 0 ? null : access(target, to, octets, REMOTE_READ);
    // An answer goes into the sink while later ones are on their way: those that invalidate it must come
    // last.
    this.#guard(common, [sink.region], []);
    if (typeof place === 'string') {
      this.#end(common, 'remote', READ_CODE[place], ['remote-access-error']);
    } else {
      this.#expect(common);
      if (place !== null) {
        sink.region.bytes.set(place.region.bytes.subarray(place.offset, place.offset + octets), sink.offset);
        this.#sources.add(place.region);
      }
      this.#sinks.add(sink.region);
      if (localInvalidate) invalidate(sink.region);
    }
    return { request: { ...request, fence: common.fence }, code: undefined };
  }

  #atomic(common: Common): Step {
    const { draw } = this.#from;
    const found = this.#target(REMOTE_ATOMIC, 8);
    const aligned = draw.oneIn(150) ? found.to : this.#alignedTo(found.target, found.to);
    const { sges, places, code } = this.#elements(1, 8, LOCAL_WRITE);
    const sink = places[0]!;
    const operands = draw.oneIn(2)
      ? ({ opcode: 'atomic-fetch-add', add: draw.u64() } as const)
      : ({
          opcode: 'atomic-cmp-swap',
          compare: 0n,
          compareMask: draw.oneIn(2) ? 0n : ONES,
          swap: draw.u64(),
        } as const);
    const request = { ...common, ...operands, sges, rkey: found.target.stag, remoteAddr: aligned };
    if (code !== undefined) return { request, code };
    const place = access(found.target, aligned, 8, REMOTE_ATOMIC);
    this.#guard(common, [sink.region], typeof place === 'string' ? [] : [place.region]);
    if (typeof place === 'string') this.#end(common, 'remote', READ_CODE[place], ['remote-access-error']);
    else if (place.offset % 8 !== 0) this.#end(common, 'remote', '0/2/07', ['remote-operation-error']);
    else {
      this.#expect(common);
      const view = new DataView(place.region.bytes.buffer, place.region.bytes.byteOffset + place.offset);
      const original = view.getBigUint64(0, true);
      if (operands.opcode === 'atomic-fetch-add')
        view.setBigUint64(0, BigInt.asUintN(64, original + operands.add), true);
      else if ((original & operands.compareMask) === 0n) view.setBigUint64(0, operands.swap, true);
      new DataView(sink.region.bytes.buffer, sink.region.bytes.byteOffset + sink.offset).setBigUint64(
        0,
        original,
        true,
      );
      this.#sinks.add(sink.region);
      if (this.#overtaking) this.#sources.add(place.region);
    }
    return { request: { ...request, fence: common.fence }, code: undefined };
  }

  /** Move the offset down to a word of the region's memory, if that stays inside. */
  #alignedTo({ object }: Target, to: number): number {
    if (object === null) return to;
    const start = object.kind === 'region' ? 0 : object.offset;
    const down = to - ((to - object.base + start) % 8);
    return down >= object.base ? down : down + 8;
  }

  // ---------------------------------------------------------------------------------------------- own memory

  #bind(common: Common): Step {
    const { draw, windows, regions } = this.#from;
    const free = windows.filter((window) => !window.valid);
    const good = regions.filter(
      (region) => region.valid && region.addressed && (region.access & MW_BIND) !== 0,
    );
    if (good.length === 0) return this.#write(common);
    const window = free.length === 0 || draw.oneIn(80) ? draw.pick(windows) : draw.pick(free);
    const region = draw.pick(good);
    const offset = draw.below(8) * 8;
    const length = 8 * (1 + draw.below(8));
    let wanted = draw.below(8) * REMOTE_WRITE;
    const request = { ...common, opcode: 'bind-mw', mw: window.mw, mr: region.mr, offset, length } as const;
    if (offset + length > region.bytes.length)
      return { request: { ...request, access: wanted }, code: 'ERR_OUT_OF_RANGE' };
    if ((region.access & LOCAL_WRITE) === 0 && (wanted & (REMOTE_WRITE | REMOTE_ATOMIC)) !== 0) {
      if (draw.oneIn(4)) return { request: { ...request, access: wanted }, code: 'ERR_ACCESS' };
      wanted &= REMOTE_READ;
    }
    if (window.valid) {
      this.#end(common, 'local', '0/0/00', ['mw-bind-error']);
    } else {
      this.#expect(common);
      this.#from.stale.push(window.stag);
      Object.assign(window, {
        valid: true,
        region,
        offset,
        length,
        base: region.base + offset,
        access: wanted,
        stag: nextKey(window.stag),
      });
    }
    return { request: { ...request, access: wanted, fence: common.fence }, code: undefined };
  }

  #localInvalidate(common: Common): Step {
    const { draw, windows, regions } = this.#from;
    const target: ModelRegion | ModelWindow = draw.oneIn(2) ? draw.pick(windows) : draw.pick(regions);
    const bound = target.kind === 'region' && hasWindows(target, windows);
    if (bound && !draw.oneIn(20)) return this.#write(common);
    const own = regionOf(target);
    this.#guard(common, own === null ? [] : [own], []);
    const request = {
      ...common,
      opcode: 'local-invalidate',
      target: target.kind === 'region' ? target.mr : target.mw,
    } as const;
    if (bound) {
      this.#end(common, 'local', '0/0/00', ['local-invalidate-error']);
    } else {
      this.#expect(common);
      invalidate(target);
    }
    return { request: { ...request, fence: common.fence }, code: undefined };
  }

  #fastRegister(common: Common): Step {
    const { draw, regions } = this.#from;
    const idle = regions.filter((region) => !region.valid);
    const region = idle.length === 0 ? (draw.oneIn(15) ? draw.pick(regions) : null) : draw.pick(idle);
    if (region === null) return this.#write(common);
    const long = draw.oneIn(40);
    const memory = this.#from.drawMemory(long ? REGION_OCTETS + 1 : REGION_OCTETS);
    const remote = region.mayBeRemote || draw.oneIn(20);
    const wanted = this.#from.drawAccess(remote);
    const addressed = draw.oneIn(2);
    const base = addressed ? 0x10_0000 + draw.below(1000) * 8 : 0;
    this.#guard(common, [region], []);
    const request = {
      ...common,
      opcode: 'reg-mr',
      mr: region.mr,
      memory,
      access: wanted,
      ...(addressed ? { iova: base } : {}),
    } as const;
    if (long) return { request, code: 'ERR_TOO_LARGE' };
    if (!region.mayBeRemote && (wanted & (REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC)) !== 0)
      return { request, code: 'ERR_ACCESS' };
    if (region.valid) {
      this.#end(common, 'local', '0/0/00', ['fast-register-error']);
    } else {
      this.#expect(common);
      this.#from.stale.push(region.stag);
      Object.assign(region, {
        memory,
        bytes: memory.slice(),
        base,
        addressed,
        access: wanted,
        valid: true,
        stag: nextKey(region.stag),
      });
    }
    return { request: { ...request, fence: common.fence }, code: undefined };
  }
}

function sizeOf(object: ModelRegion | ModelWindow): number {
  return object.kind === 'region' ? object.bytes.length : object.length;
}

function regionOf(object: ModelRegion | ModelWindow): ModelRegion | null {
  return object.kind === 'region' ? object : object.region;
}

function nextKey(stag: number): number {
  return ((stag & 0xffff_ff00) | ((stag + 1) & 0xff)) >>> 0;
}
