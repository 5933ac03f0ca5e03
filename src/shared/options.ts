/** Options that both sides of a shared region have, checked. */
import { defaultRnic, type EngineKind, type Rnic } from '../api/environment.ts';
import { checkBytes, checkInteger, IwarpError, orNoMemory } from '../base/errors.ts';
import type { SharedEnd } from './socket.ts';

/** Length of a region unless the program says otherwise: 16 MiB. */
const DEFAULT_LENGTH = 16 * 2 ** 20;
/** A ticket's length is a u32. */
const MOST_LENGTH = 0xffff_ffff;
/** Operations that may wait; the paper's measurements have 500 in flight. */
const DEFAULT_DEPTH = 512;

/** Options of a region, on either side. */
export interface RegionOptions {
  /** Length of this side's region in bytes, 1 to 2^32 - 1. Default 16 MiB. Not together with `memory`. */
  readonly octets?: number | undefined;
  /**
   * Memory to share instead of new memory. With a worker engine it must be over a SharedArrayBuffer. A
   * listener shares it with every connection.
   */
  readonly memory?: ArrayBufferView | undefined;
  /** Operations that may wait for their completion to be polled or awaited, 1 to 16384. Default 512. */
  readonly depth?: number | undefined;
  /** Where the streams run: `thread` or `worker`. Default: as IWARP_ENGINE says. Not together with `rnic`. */
  readonly engine?: EngineKind | undefined;
  /** Device that carries the connection. Default: the process's own. */
  readonly rnic?: Rnic | undefined;
}

/** @internal Names of {@link RegionOptions}. */
export const REGION_NAMES = { octets: true, memory: true, depth: true, engine: true, rnic: true } as const;

/** @internal Checked options: the parts of an end. `allocateMemory` makes the region of each connection. */
export interface RegionPlan extends Omit<SharedEnd, 'memory'> {
  readonly allocateMemory: () => Uint8Array;
}

/** @internal @throws ERR_INVALID_ARGUMENT, ERR_NOT_SHARED */
export function planRegion({ octets, memory, depth, engine, rnic: given }: RegionOptions): RegionPlan {
  if (given !== undefined && engine !== undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.engine: the device in options.rnic has its own');
  if (memory !== undefined && octets !== undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.octets: options.memory has its own length');
  const rnic = given ?? defaultRnic(engine);
  const own = memory === undefined ? undefined : checkBytes('options.memory', memory);
  const length = checkInteger(
    own === undefined ? 'options.octets' : 'the length of options.memory',
    own?.length ?? octets ?? DEFAULT_LENGTH,
    1,
    MOST_LENGTH,
  );
  if (own !== undefined) rnic.device.checkMemory('options.memory', own);
  return {
    rnic,
    depth: checkInteger('options.depth', depth ?? DEFAULT_DEPTH, 1, 16_384),
    allocateMemory: () => own ?? new Uint8Array(orNoMemory(length, () => new SharedArrayBuffer(length))),
  };
}
