/**
 * Memory that the MPA connections of a thread share. A thread has one set for each CRC engine, not one for
 * each device: memory that a device kept for itself would be lost to the engine together with the device, and
 * after a few hundred devices, opened one after the other, no transmit buffer would lie where CRCs are made
 * in place.
 */
import type { Crc32cEngine } from '../crc32c/engine.ts';
import { reassemblyPool, type ReassemblyPool } from './deframer.ts';
import { transmitBufferPool, type TransmitBufferPool } from './transmit-buffer-pool.ts';

/** A CRC engine with the pools over its memory. */
export interface MpaResources {
  readonly crc: Crc32cEngine;
  readonly reassembly: ReassemblyPool;
  readonly transmitBuffers: TransmitBufferPool;
}

const shared = new WeakMap<Crc32cEngine, MpaResources>();

/** The resources of an engine, made at the first call. */
export function resourcesOf(crc: Crc32cEngine): MpaResources {
  let resources = shared.get(crc);
  if (resources === undefined)
    shared.set(
      crc,
      (resources = {
        crc,
        reassembly: reassemblyPool(crc),
        transmitBuffers: transmitBufferPool(crc),
      }),
    );
  return resources;
}
