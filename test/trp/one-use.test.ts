/** STags for one use over UDP, where segments come in any order, twice or late. */
import { describe, expect, it } from 'vitest';
import { ACCESS } from '../../src/verbs/index.ts';
import type { TrpOptions } from '../../src/trp/profile.ts';
import { pattern } from '../rdmap/scripted.ts';
import { World } from './support.ts';

const OCTETS = 40_000;
const RIGHTS = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ;
const MODES: readonly [string, TrpOptions][] = [
  ['placing', {}],
  ['placing, Reads placed', { reads: 'placed' }],
  ['ordered', { receiver: 'ordered' }],
];

describe.each(MODES)('%s: an STag for one use', (_name, trp) => {
  it.each(['rdma-write', 'rdma-read'] as const)(
    'is used by the first %s, whole, and by no other',
    (opcode) => {
      for (let seed = 1; seed <= 6; seed++) {
        const network = { loss: 0.1, repetition: 0.2, reordering: 0.3, disorder: 10, latency: 2, seed };
        const { client, server, run } = bound(World.connected({ network, client: trp, server: trp }));
        const { qp, pd } = server;
        const once = pd.registerMemory(new Uint8Array(OCTETS), RIGHTS, { queuePair: qp, uses: 1 });
        const data = pattern(OCTETS, seed);
        const [source, sink] = opcode === 'rdma-write' ? [client.memory, once] : [once, client.memory];
        source.bytes.set(data);
        const rkey = once.rkey;
        const post = (wrId: number): unknown =>
          client.qp.postSend({
            opcode,
            wrId,
            sges: [{ mr: client.memory, length: OCTETS }],
            rkey,
            remoteAddr: 0,
          });
        post(1);
        run(); // a Terminate would flush a Write that is not acknowledged
        post(2);
        run();
        expect(once.valid).toBe(false);
        expect(Buffer.compare(sink.bytes.subarray(0, OCTETS), data)).toBe(0);
        expect(client.poll().find(({ wrId }) => wrId === 1)?.status).toBe('success');
        const refusal =
          opcode === 'rdma-write' ? { layer: 1, type: 1, code: 0 } : { layer: 0, type: 1, code: 0 };
        const said = server.events.find((event) => event.type === 'terminate');
        expect(said?.terminate).toMatchObject({ origin: 'local', ...refusal });
      }
    },
  );
});

const bound = (world: World): Pick<World, 'client' | 'server'> & { run: () => void } => ({
  client: world.client,
  server: world.server,
  run: () => void world.run(60_000),
});
