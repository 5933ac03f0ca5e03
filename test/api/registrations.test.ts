/** How long memory is registered that a program has registered through a connection. */
import { describe, expect, it } from 'vitest';
import { ACCESS, connect, createServer, RemoteBuffer, type Connection } from '../../src/index.ts';
import { pairOf, pattern, rnicOf } from './support.ts';

const NOTHING = { pd: 0, cq: 0, qp: 0, datagramQp: 0, srq: 0, mw: 0, mr: 0 };
const gone: Error = expect.objectContaining({ code: 'ERR_INVALID_REGION' });

describe('memory that was registered through a connection', () => {
  it.each<[string, (client: Connection, server: Connection) => unknown]>([
    ['closed', (client) => client.close()],
    ['destroyed', (_client, server) => server.destroy()],
    ['terminated', (client) => client.read(new RemoteBuffer(0x1234_5678, 0n, 8)).catch(() => undefined)],
  ])('is registered no longer once that is %s, and nothing is left on the device', async (_how, end) => {
    const { rnic, client, server, close } = await pairOf('memory');
    const regions = [
      server.allocate(4096),
      server.register(rnic.device.allocateMemory(64), 'read'),
      client.allocate(8, 'write'),
    ];
    await client.write(pattern(4096), server.share(regions[0]!));
    await end(client, server);
    await Promise.all([client.closed, server.closed]);
    expect(regions.map((region) => region.deregistered)).toEqual([true, true, true]);
    expect(rnic.device.query().inUse).toEqual(NOTHING);
    await close();
    rnic.device.close();
  });

  it('can still be seen, and a program that has not heard may deregister once', async () => {
    const { rnic, client, server, close } = await pairOf('memory');
    const region = server.allocate(4096);
    await client.write(pattern(4096), server.share(region));
    await close();
    await server.closed;
    expect(Buffer.compare(region.bytes, pattern(4096))).toBe(0);
    expect([region.length, region.valid]).toEqual([4096, false]);
    expect(() => region.query()).toThrow(gone);
    region.deregister();
    expect([region.length, region.deregistered]).toEqual([0, true]);
    expect(() => region.deregister()).toThrow(gone);
    expect(rnic.device.query().inUse).toEqual(NOTHING);
    rnic.device.close();
  });

  it("in a shared domain ends with its own connection; the domain's own registrations stay", async () => {
    const rnic = rnicOf('memory');
    const pd = rnic.device.allocatePd();
    const arrived: Connection[] = [];
    const server = await createServer({ rnic, pd }, (connection) => void arrived.push(connection)).listen({
      port: 0,
    });
    const target = { rnic, host: '127.0.0.1', port: server.address().port };
    const [first, second] = [await connect(target), await connect(target)];
    await expect.poll(() => arrived.length).toBe(2);
    const passing = arrived[0]!.allocate(64);
    const lasting = pd.registerMemory(
      rnic.device.allocateMemory(64),
      ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ,
    );
    const [ofPassing, ofLasting] = [RemoteBuffer.of(passing), RemoteBuffer.of(lasting)];
    expect((await second.read(ofPassing)).length).toBe(64);
    await first.close();
    await arrived[0]!.closed;
    expect([passing.deregistered, lasting.deregistered]).toEqual([true, false]);
    expect((await second.read(ofLasting)).length).toBe(64);
    await expect(second.read(ofPassing)).rejects.toThrow();
    await server.close();
    lasting.deregister();
    pd.deallocate();
    await second.closed;
    expect(rnic.device.query().inUse).toEqual(NOTHING);
    rnic.device.close();
  });

  it('can be shared in parts to its end, also one that is longer than a ticket', async () => {
    const { client, server, close } = await pairOf('memory');
    const OCTETS = 2 ** 32; // of which the system gives touched pages only
    const region = server.register(new Uint8Array(new SharedArrayBuffer(OCTETS)));
    await client.write(pattern(100), server.share(region, OCTETS - 100));
    expect(await client.read(server.share(region, OCTETS - 60, 50))).toEqual(
      Buffer.from(pattern(100).subarray(40, 90)),
    );
    expect(server.share(region).length).toBe(OCTETS - 1);
    expect(() => server.share(region, OCTETS - 100, 101)).toThrow(
      expect.objectContaining({ code: 'ERR_OUT_OF_RANGE' }),
    );
    await close();
  });

  it('stays while others have windows on it, until the program deregisters it', async () => {
    const rnic = rnicOf('memory');
    const pd = rnic.device.allocatePd();
    const server = await createServer({ rnic }, () => undefined).listen({ port: 0 });
    const target = { rnic, pd, host: '127.0.0.1', port: server.address().port };
    const [first, second] = [await connect(target), await connect(target)];
    const region = first.allocate(256, ACCESS.LOCAL_WRITE | ACCESS.MW_BIND, { iova: 0x1000n });
    const window = pd.allocateMw();
    second.queuePair.postSend({
      opcode: 'bind-mw',
      mw: window,
      mr: region,
      length: 32,
      access: ACCESS.REMOTE_READ,
    });
    await second.queuePair.drainSend();
    await first.close();
    expect([region.deregistered, window.deallocated]).toEqual([false, false]);
    await second.close();
    expect(window.deallocated).toBe(true);
    region.deregister();
    pd.deallocate();
    await server.close();
    expect(rnic.device.query().inUse).toEqual(NOTHING);
    rnic.device.close();
  });

  it('may be deregistered, or moved to another domain, before', async () => {
    const { rnic, client, server, close } = await pairOf('memory');
    const other = rnic.device.allocatePd();
    const [early, moved] = [client.allocate(64), client.allocate(64)];
    early.deregister();
    expect(() => early.deregister()).toThrow(gone);
    moved.reregister({ pd: other });
    await close();
    await Promise.all([client.closed, server.closed]);
    expect(moved.deregistered).toBe(false);
    moved.deregister();
    other.deallocate();
    expect(rnic.device.query().inUse).toEqual(NOTHING);
    rnic.device.close();
  });
});
