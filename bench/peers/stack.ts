/**
 * How the programs of this package open the stack for a case: the same whether they use verbs, promises or
 * byte streams.
 */
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import { defaultCrc32cEngine, type Crc32cEngineName } from '../../src/crc32c/engine.ts';
import { readMemory } from '../../src/crc32c/memory.ts';
import type { ConnectionPolicy } from '../../src/mpa/policy.ts';
import { arrivals } from '../../src/transport/arrival.ts';
import { wrapTransport } from '../../src/transport/middleware.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';
import type { CaseSpec } from '../types.ts';

/**
 * A device for the case. `arrived` is called whenever octets have come, which only a device in this thread
 * can tell.
 */
export function open(spec: CaseSpec, arrived: (() => void) | null): Rnic {
  const crc32c = spec.crc === 'off' || spec.crc === 'auto' ? {} : { crc32c: spec.crc as Crc32cEngineName };
  const poll = spec.busyPoll === null ? {} : { busyPoll: spec.busyPoll };
  if (spec.engine === 'worker') {
    if (arrived !== null)
      throw new Error('with the engine in a worker only polling would tell when a Write has come');
    return openRnic({ ...crc32c, ...poll, engine: 'worker', engines: spec.engines });
  }
  if (arrived === null) return openRnic({ ...crc32c, ...poll, engine: 'thread' });
  const tcp = new TcpTransport({ allocate: (octets) => readMemory(defaultCrc32cEngine(), octets), ...poll });
  return openRnic({ ...crc32c, transport: wrapTransport(tcp, arrivals(arrived)) });
}

/** The policy that both sides ask for in start-up. */
export function policy(spec: CaseSpec): Partial<ConnectionPolicy> {
  return {
    crc: spec.crc === 'off' ? 'off' : 'preferred',
    markers: spec.markers,
    ...(spec.fpdu > 0 && { emss: spec.fpdu }),
  };
}
