// Where the answer of a Read or atomic goes: any view, through a registration that is kept from one operation
// to the next.
import { describe, expect, it } from 'vitest';
import { ACCESS, RemoteBuffer, type Connection } from '../../src/index.ts';
import { pair, pattern, registered, threadRnicOf, THREAD_WORLDS, WORLDS, type World } from './support.ts';

const resizable = (memory: ArrayBuffer) => memory as ArrayBuffer & { resize(octets: number): void };

const regions = ({ pd }: Connection) => [...pd.device.objects.mr].filter((mr) => mr.pd === pd);

describe.each(WORLDS)('over %s', (world: World) => {
  it.each([0, 1, 64, 4096, 100_000])(
    'Reads of %i octets into views of every kind find their octets, side by side',
    async (octets) => {
      const { client, server } = await pair(world);
      const source = pattern(octets + 40, octets);
      const remote = server.share(registered(server, source, 'read'));
      const memory = new ArrayBuffer(octets + 8);
      const places = [
        undefined,
        new Uint8Array(octets),
        new DataView(memory, 4, octets),
        new Uint8Array(new SharedArrayBuffer(octets + 4), 4, octets),
        client.allocate(octets),
      ];
      const got = await Promise.all(
        Array.from({ length: 40 }, (_, i) =>
          client.read(remote.slice(i, octets), i < places.length ? places[i] : undefined),
        ),
      );
      for (const [i, bytes] of got.entries())
        expect(Buffer.compare(bytes, source.subarray(i, i + octets)), `read ${i}`).toBe(0);
      expect(Buffer.compare(new Uint8Array(memory, 4, octets), source.subarray(2, octets + 2))).toBe(0);
      expect([...new Uint8Array(memory, 0, 4), ...new Uint8Array(memory, octets + 4)]).toEqual(
        Array<number>(8).fill(0),
      );
    },
  );

  it('memory transferred or shrunk in a Read ends it or the connection; close does not wait', async () => {
    for (const lose of [
      (memory: ArrayBuffer) => void structuredClone(memory, { transfer: [memory] }),
      (memory: ArrayBuffer) => resizable(memory).resize(1000),
    ]) {
      const { client, server } = await pair(world);
      const remote = server.share(registered(server, pattern(5000)));
      const memory = new (ArrayBuffer as new (octets: number, options: object) => ArrayBuffer)(5000, {
        maxByteLength: 6000,
      });
      const reading = client
        .read(remote, new Uint8Array(memory))
        .catch((error: { code: string }) => error.code);
      lose(memory);
      // In this thread the region is gone when the octets come, which is fatal to a connection; in a worker
      // it is a copy that has nowhere to go.
      expect(await reading).toBe(world === 'worker' ? 'ERR_INVALID_REGION' : 'ERR_WORK_COMPLETION');
      if (world === 'worker') expect(await client.read(remote)).toEqual(Buffer.from(pattern(5000)));
      await client.close();
    }
  });

  it('Reads one after the other, and atomics, take one registration', async () => {
    const { client, server } = await pair(world);
    const remote = server.share(registered(server, pattern(64)));
    await client.read(remote);
    const { mr } = client.pd.device.query().inUse;
    for (let i = 0; i < 300; i++) expect(await client.read(remote, new Uint8Array(64))).toEqual(pattern(64));
    await client.fetchAdd(remote.slice(0, 8), 1n);
    expect(client.pd.device.query().inUse.mr).toBe(mr);
  });

  it('a thousand Reads at once leave only the registrations kept, and none at the end', async () => {
    const { client, server } = await pair(world, { sends: 1000 });
    const remote = server.share(registered(server, pattern(8)));
    const before = regions(client).length; // the receive buffers
    const got = await Promise.all(Array.from({ length: 1000 }, () => client.read(remote)));
    expect(got.every((bytes) => Buffer.compare(bytes, pattern(8)) === 0)).toBe(true);
    if (world !== 'worker') expect(regions(client).length).toBe(before + 256);
    await client.close();
    expect(regions(client)).toEqual([]);
  });
});

describe.each(THREAD_WORLDS)('over %s', (world) => {
  it('the STag of a Read is invalid once the Read is done, and the next one differs (SEC-007)', async () => {
    const rnic = threadRnicOf(world);
    const { client, server } = await pair(world, { rnic }, { rnic });
    const remote = server.share(registered(server, pattern(64)));
    const buffers = new Set(regions(client));
    const stagOf = async (read: () => Promise<Uint8Array>): Promise<{ stag: number; bytes: Uint8Array }> => {
      const reading = read();
      const [region] = regions(client).filter((mr) => !buffers.has(mr));
      const stag = region!.rkey;
      expect(region!.query()).toMatchObject({ state: 'valid', access: ACCESS.LOCAL_WRITE, length: 64 });
      const bytes = await reading;
      expect(region!.query()).toMatchObject({ state: 'invalid', length: 0 });
      return { stag, bytes };
    };
    const first = await stagOf(() => client.read(remote));
    const second = await stagOf(() => client.read(remote));
    expect(second.stag >>> 8).toBe(first.stag >>> 8);
    expect(second.stag).not.toBe(first.stag);
    await server.write(Uint8Array.of(1, 2, 3), new RemoteBuffer(second.stag, 0n, 64));
    // DDP-045
    expect((await server.closed).terminate).toMatchObject({ origin: 'remote', layer: 1, type: 1, code: 0 });
    expect([...first.bytes, ...second.bytes]).toEqual([...pattern(64), ...pattern(64)]);
  });
});
