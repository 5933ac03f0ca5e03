/**
 * What the streams of a thread share. A thread has one set for each CRC engine, not one for each device: what a device of its own kept free would be
 * lost to the engine's memory with it, and after a few hundred devices, opened one after the other, no stage would lie where CRCs are made in place.
 */
import type { Crc32cEngine } from '../crc32c/engine.ts';
import { FreeListSlabPool } from '../mpa/deframer.ts';
import { FreeListStagePool } from './stages.ts';
import type { StreamResources } from './stream-types.ts';

const shared = new WeakMap<Crc32cEngine, StreamResources>();

/** Those of an engine, made at the first call. */
export function resourcesOf(crc: Crc32cEngine): StreamResources {
  let resources = shared.get(crc);
  if (resources === undefined) shared.set(crc, (resources = { crc, slabs: new FreeListSlabPool(crc), stages: new FreeListStagePool(crc) }));
  return resources;
}
