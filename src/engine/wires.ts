/** The streams of each wire, for the engine that drives them in whatever thread. */
import { Interned } from '../base/interned.ts';
import { systemRandom } from '../base/random.ts';
import { resolveEmss } from '../mpa/emss.ts';
import { MpaLowerLayer, type MpaConfig } from '../mpa/lower-layer.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import type { MpaResources } from '../mpa/resources.ts';
import { RdmaStream } from '../stream/stream.ts';
import type { StreamConfig } from '../stream/types.ts';
import type { WireName } from '../base/wires.ts';
import { QpipStream } from '../qpip/stream.ts';
import { SharedPlacement } from '../shm/placement.ts';
import { ShmPort } from '../shm/port.ts';
import { ShmStream } from '../shm/stream.ts';
import type { TrpOptions } from '../trp/profile.ts';
import { TrpStream } from '../trp/stream.ts';
import type { StreamMaker } from './inline/inline-engine.ts';

/**
 * iWARP without the CRC of policies that only prefer it: nothing on the way could change an octet that could
 * not change it behind the check.
 */
function overSharedMemory(resources: MpaResources): StreamMaker {
  const configs = new Interned<StreamConfig & MpaConfig>();
  return ({ role, policy: given, confirm, port, host }) => {
    const policy = given.crc === 'preferred' ? withoutCrc(given) : given;
    const config = configs.of({ role, policy, confirm, emss: resolveEmss(policy, SHARED), resources });
    // Another port stands for one that is observed: nothing shall pass by it.
    if (!(port instanceof ShmPort)) return new RdmaStream(config, new MpaLowerLayer(config));
    return new ShmStream(config, new SharedPlacement(port, () => host.wake()));
  };
}

/** Policies in which a CRC was preferred. */
const plain = new WeakMap<ConnectionPolicy, ConnectionPolicy>();

function withoutCrc(policy: ConnectionPolicy): ConnectionPolicy {
  const known = plain.get(policy) ?? { ...policy, crc: 'off' };
  plain.set(policy, known);
  return known;
}

/** Whatever the addresses are, there are no segments. */
const SHARED = { localAddress: { address: '', family: 'Unix' } } as const;

/** Undefined for iWARP: the inline engine makes those itself. `trp` has the options of that wire. */
export function streamMaker(
  wire: WireName,
  trp: TrpOptions,
  resources: MpaResources,
): StreamMaker | undefined {
  switch (wire) {
    case 'iwarp':
      return undefined;
    case 'qpip':
      return ({ role, policy, host }) => new QpipStream(role, policy, host);
    case 'shm':
      return overSharedMemory(resources);
    default:
      return ({ role, policy, confirm, port: { mtu, remoteAddress } }) =>
        new TrpStream({
          role,
          policy,
          confirm,
          options: trp,
          random: systemRandom,
          mtu,
          family: remoteAddress.family === 'IPv6' ? 'IPv6' : 'IPv4',
        });
  }
}
