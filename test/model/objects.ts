/**
 * The naive model's memory: plain objects that say what every region and window of one endpoint must be.
 * Beside each stands the real one. Nothing here is clever; that is its use.
 */
import { ACCESS, type MemoryRegion, type MemoryWindow } from '../../src/verbs/index.ts';

export const REGION_OCTETS = 128;

export interface ModelRegion {
  readonly kind: 'region';
  mr: MemoryRegion;
  /** The memory registered, and what must stand in it. */
  memory: Uint8Array;
  bytes: Uint8Array;
  base: number;
  addressed: boolean;
  access: number;
  stag: number;
  valid: boolean;
  readonly mayBeRemote: boolean;
}

export interface ModelWindow {
  readonly kind: 'window';
  mw: MemoryWindow;
  stag: number;
  valid: boolean;
  region: ModelRegion | null;
  offset: number;
  length: number;
  base: number;
  access: number;
}

/** Where an access lands: octets of a region. */
export interface Place {
  readonly region: ModelRegion;
  readonly offset: number;
}

/** Why an access is refused, in the order in which the stack has to look. */
type Refusal = 'stag' | 'association' | 'right' | 'bounds';

/** What a peer may name: an object of the right domain, or something that it must not reach. */
export interface Target {
  readonly stag: number;
  readonly object: ModelRegion | ModelWindow | null;
  /** The STag exists, in another domain. */
  readonly foreign: boolean;
}

/** `length` > 0 octets at `to` through the target with `right`. */
export function access(target: Target, to: number, length: number, right: number): Place | Refusal {
  if (target.foreign) return 'association';
  const { object } = target;
  if (object === null || !object.valid || object.stag !== target.stag) return 'stag';
  if ((object.access & right) === 0) return 'right';
  const size = object.kind === 'region' ? object.bytes.length : object.length;
  const offset = to - object.base;
  if (offset < 0 || offset + length > size) return 'bounds';
  return object.kind === 'region'
    ? { region: object, offset }
    : { region: object.region!, offset: object.offset + offset };
}

/** The Terminate for a refused tagged access, and for a refused Read or atomic. */
export const TAGGED_CODE: Readonly<Record<Refusal, string>> = {
  stag: '1/1/00',
  association: '1/1/02',
  right: '1/1/02',
  bounds: '1/1/01',
};
export const READ_CODE: Readonly<Record<Refusal, string>> = {
  stag: '0/1/00',
  association: '0/1/03',
  right: '0/1/02',
  bounds: '0/1/01',
};

/** May a peer invalidate it? The Terminate if not. */
export function invalidation(
  target: Target,
  windows: readonly ModelWindow[],
): string | ModelRegion | ModelWindow {
  if (target.foreign) return '0/1/09';
  const { object } = target;
  if (object === null || object.stag !== target.stag) return '0/1/00';
  if ((object.access & (ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC)) === 0)
    return '0/1/02';
  if (object.kind === 'region' && hasWindows(object, windows)) return '0/1/09';
  return object;
}

export function hasWindows(region: ModelRegion, windows: readonly ModelWindow[]): boolean {
  return windows.some((window) => window.valid && window.region === region);
}

/** After this the region or window is unusable. */
export function invalidate(object: ModelRegion | ModelWindow): void {
  object.valid = false;
  if (object.kind === 'window') object.region = null;
}
