/** Tickets that end, and typed views of the peer's memory. */
import { describe, expect, it } from 'vitest';
import { RemoteView } from '../../src/index.ts';
import { pair, pattern, registered, WORLDS } from './support.ts';

/** More than one FPDU, and more than one write to the socket. */
const LARGE = 600_000;

describe.each(WORLDS)('a loan, %s', (world) => {
  it('gives access to its part until it is revoked, and leaves the region as it is', async () => {
    const { client, server } = await pair(world);
    const region = server.allocate(64, 'none');
    region.bytes.fill(7);
    const loan = server.lend(region, 'read', { offset: 16, length: 8 });
    expect([...(await client.read(loan.ticket))]).toEqual(Array.from({ length: 8 }, () => 7));
    await loan.revoke();
    await loan.revoke();
    expect([loan.active, region.valid]).toEqual([false, true]);
    await expect(client.read(loan.ticket)).rejects.toMatchObject({ status: 'remote-access-error' });
  });

  it('ends after its time, and by an invalidation of the peer', async () => {
    const { client, server } = await pair(world);
    const region = server.allocate(64, 'none');
    const short = server.lend(region, 'write', { expires: 400 });
    await client.write(Uint8Array.of(1), short.ticket);
    const once = server.lend(region, 'write');
    await client.write(Uint8Array.of(2), once.ticket.slice(1));
    await client.send('done', { invalidate: once.ticket.rkey });
    (await server.receive())!.release();
    await expect.poll(() => once.active).toBe(false);
    expect([...region.bytes.subarray(0, 2)]).toEqual([1, 2]);
    await expect.poll(() => short.active, { timeout: 3000 }).toBe(false);
    expect(() => server.lend(region, 'read', { offset: 60, length: 8 })).toThrow(/pass the region/);
  });
});

describe.each(WORLDS)('a loan for one use, %s', (world) => {
  it('takes one Write of many segments, and says when; the next use is refused at both ends', async () => {
    const { client, server } = await pair(world);
    const region = server.allocate(LARGE, 'none');
    const loan = server.lend(region, 'read-write', { uses: 1 });
    const data = registered(client, pattern(LARGE));
    await client.write({ mr: data }, loan.ticket);
    expect(await loan.ended).toBe('used');
    expect(loan.active).toBe(false);
    expect(Buffer.compare(region.bytes, data.bytes)).toBe(0);
    expect([region.valid, server.state]).toEqual([true, 'open']);
    const second = client.write(Uint8Array.of(1), loan.ticket);
    await second.catch(() => undefined); // it may have left before the answer comes
    const refusal = { layer: 1, type: 1, code: 0 };
    expect(await client.closed).toMatchObject({
      cause: 'terminated',
      error: { code: 'ERR_TERMINATED' },
      terminate: { origin: 'remote', ...refusal },
    });
    expect((await server.closed).terminate).toMatchObject({ origin: 'local', ...refusal });
    expect(region.bytes[0]).toBe(data.bytes[0]);
  });

  it('takes one Read of many segments; the next is refused with a typed error', async () => {
    const { client, server } = await pair(world);
    const region = registered(server, pattern(LARGE), 'none');
    const loan = server.lend(region, 'read', { uses: 1, offset: 8 });
    const sink = client.allocate(LARGE - 8, 'none');
    await client.read(loan.ticket, { mr: sink });
    expect(Buffer.compare(sink.bytes, region.bytes.subarray(8))).toBe(0);
    expect(await loan.ended).toBe('used');
    const refusal = { layer: 0, type: 1, code: 0 };
    await expect(client.read(loan.ticket.slice(0, 8))).rejects.toMatchObject({
      code: 'ERR_WORK_COMPLETION',
      status: 'remote-access-error',
      terminate: { origin: 'remote', ...refusal },
    });
    expect((await server.closed).terminate).toMatchObject({ origin: 'local', ...refusal });
  });

  it('of two Reads at once the first has its bytes', async () => {
    const { client, server } = await pair(world);
    const region = registered(server, pattern(LARGE), 'none');
    const loan = server.lend(region, 'read', { uses: 1 });
    const [first, second] = await Promise.allSettled([
      client.read(loan.ticket),
      client.read(loan.ticket.slice(0, 8)),
    ]);
    expect(first).toMatchObject({ status: 'fulfilled' });
    expect(second).toMatchObject({ status: 'rejected', reason: { status: 'remote-access-error' } });
    expect(await loan.ended).toBe('used');
  });

  it('is over before the message after it, and leaves nothing registered', async () => {
    const { client, server, rnic } = await pair(world);
    const region = server.allocate(64, 'none');
    // Registrations for single operations are kept for the next ones.
    const remote = (): number => [...rnic.device.objects.mr].filter((mr) => mr.remote).length;
    let before = 0;
    for (let i = 0; i < 40; i++) {
      if (i === 20) before = remote();
      const loan = server.lend(region, 'write', { uses: 1 });
      await client.write(Uint8Array.of(i + 1), loan.ticket);
      await client.send('done');
      (await server.receive())!.release();
      expect([loan.active, region.bytes[0]]).toEqual([false, i + 1]);
      expect(await loan.ended).toBe('used');
    }
    expect(remote()).toBe(before);
  });

  it('expires unused, ends with its connection, and is only for the peer of this connection', async () => {
    const { client, server } = await pair(world);
    const region = server.allocate(64, 'none');
    const short = server.lend(region, 'read', { uses: 1, expires: 20 });
    expect(await short.ended).toBe('expired');
    const revoked = server.lend(region, 'read', { uses: 1 });
    await revoked.revoke();
    expect(await revoked.ended).toBe('revoked');
    const kept = server.lend(region, 'read', { uses: 1, expires: 60_000 });
    const plain = server.lend(region, 'read');
    const invalidated = server.lend(region, 'read');
    await client.send('done', { invalidate: invalidated.ticket.rkey });
    expect(await invalidated.ended).toBe('used');
    await expect(client.read(short.ticket)).rejects.toMatchObject({ status: 'remote-access-error' });
    expect([await kept.ended, await plain.ended]).toEqual(['closed', 'closed']);
    expect(() => server.lend(region, 'read', { uses: 2 as never })).toThrow();
  });
});

const NUMBERS = [
  ...[-2, 254, -30_000, 60_000, -2_000_000_000, 4_000_000_000],
  ...[-(2n ** 63n), 2n ** 64n - 2n, 1.5, Math.PI],
];

describe.each(WORLDS)('a view, %s', (world) => {
  it('reads numbers and structures by offset, in either byte order', async () => {
    const { client, server } = await pair(world);
    const region = server.allocate(64, 'read-write');
    const memory = new DataView(region.bytes.buffer, region.bytes.byteOffset, 64);
    memory.setUint32(4, 0xdead_beef, true);
    memory.setBigInt64(16, -5n, true);
    memory.setFloat64(24, 1.5, true);
    server.publish('status', region);
    const remote = await client.lookup('status');
    const view = new RemoteView(client, remote);
    expect(await view.readUint32(4)).toBe(0xdead_beef);
    expect(await view.readStruct({ a: ['u32', 4], b: ['i64', 16], c: ['f64', 24], d: ['u8', 4] })).toEqual({
      a: 0xdead_beef,
      b: -5n,
      c: 1.5,
      d: 0xef,
    });
    await new RemoteView(client, remote, { endian: 'big' }).writeUint32(0, 1);
    await client.rtt();
    expect(memory.getUint32(0)).toBe(1);
    expect(await view.readBigUint64(0)).toBe(0xdead_beef_0100_0000n);
    await expect(view.readUint32(62)).rejects.toMatchObject({ code: 'ERR_OUT_OF_RANGE' });
    await expect(view.readStruct({ a: ['u128' as never, 0] })).rejects.toMatchObject({
      code: 'ERR_INVALID_ARGUMENT',
    });
  });

  it.each(['little', 'big'] as const)('writes and reads every kind of number, %s endian', async (endian) => {
    const { client, server } = await pair(world);
    const region = server.allocate(64, 'read-write');
    const memory = new DataView(region.bytes.buffer, region.bytes.byteOffset, 64);
    const view = new RemoteView(client, server.share(region), { endian });
    const little = endian === 'little';
    await Promise.all([
      view.writeInt8(1, -2),
      view.writeUint8(2, 254),
      view.writeInt16(3, -30_000),
      view.writeUint16(5, 60_000),
      view.writeInt32(7, -2_000_000_000),
      view.writeUint32(11, 4_000_000_000),
      view.writeBigInt64(15, -(2n ** 63n)),
      view.writeBigUint64(23, 2n ** 64n - 2n),
      view.writeFloat32(31, 1.5),
      view.writeFloat64(35, Math.PI),
    ]);
    await client.rtt();
    expect([
      memory.getInt8(1),
      memory.getUint8(2),
      memory.getInt16(3, little),
      memory.getUint16(5, little),
      memory.getInt32(7, little),
      memory.getUint32(11, little),
      memory.getBigInt64(15, little),
      memory.getBigUint64(23, little),
      memory.getFloat32(31, little),
      memory.getFloat64(35, little),
    ]).toEqual(NUMBERS);
    expect(
      await Promise.all([
        view.readInt8(1),
        view.readUint8(2),
        view.readInt16(3),
        view.readUint16(5),
        view.readInt32(7),
        view.readUint32(11),
        view.readBigInt64(15),
        view.readBigUint64(23),
        view.readFloat32(31),
        view.readFloat64(35),
      ]),
    ).toEqual(NUMBERS);
    const { a, b, c } = await view.readStruct({ a: ['i8', 1], b: ['i16', 3], c: ['f32', 31] });
    expect([a, b, c]).toEqual([-2, -30_000, 1.5]);
    expect([memory.getUint8(0), memory.getUint8(43)]).toEqual([0, 0]);
  });

  it.each(['little', 'big'] as const)('reads and writes typed arrays, %s endian', async (endian) => {
    const { client, server } = await pair(world);
    const region = server.allocate(200, 'read-write');
    const memory = new DataView(region.bytes.buffer, region.bytes.byteOffset, 200);
    const view = new RemoteView(client, server.share(region), { endian });
    const little = endian === 'little';
    const words = Uint32Array.of(9, 1, 0xdead_beef, 3).subarray(1);
    const doubles = Float64Array.of(-1.5, Math.E);
    await view.writeArray(3, words);
    await view.writeArray(40, doubles);
    await view.writeArray(60, Uint8Array.of(7, 8));
    await client.rtt();
    expect([3, 7, 11].map((at) => memory.getUint32(at, little))).toEqual([1, 0xdead_beef, 3]);
    expect([40, 48].map((at) => memory.getFloat64(at, little))).toEqual([-1.5, Math.E]);
    expect([...words]).toEqual([1, 0xdead_beef, 3]);
    const read: Uint32Array = await view.readArray(Uint32Array, 3, 3);
    expect(read).toEqual(words.slice());
    expect(await view.readArray(Float64Array, 40, 2)).toEqual(doubles);
    expect(await view.readArray(Uint8Array, 60, 2)).toEqual(Uint8Array.of(7, 8));
    memory.setBigInt64(100, -5n, little);
    memory.setInt16(108, -300, little);
    expect(await view.readArray(BigInt64Array, 100, 1)).toEqual(BigInt64Array.of(-5n));
    expect(await view.readArray(Int16Array, 108, 1)).toEqual(Int16Array.of(-300));
    expect(await view.readArray(Float32Array, 0, 0)).toEqual(new Float32Array(0));
  });

  it('refuses what does not fit', async () => {
    const { client, server } = await pair(world);
    const view = new RemoteView(client, server.share(server.allocate(16, 'read-write')));
    const invalid = { code: 'ERR_INVALID_ARGUMENT' };
    for (const wrong of [
      () => view.writeInt8(0, 128),
      () => view.writeUint8(0, -1),
      () => view.writeInt16(0, -32_769),
      () => view.writeUint16(0, 1.5),
      () => view.writeInt32(0, 2 ** 31),
      () => view.writeUint32(0, 2 ** 32),
      () => view.writeBigInt64(0, 2n ** 63n),
      () => view.writeBigUint64(0, -1n),
      () => view.writeBigUint64(0, 1 as never),
      () => view.writeFloat32(0, '1' as never),
      () => view.writeFloat64(0, 1n as never),
      () => view.readInt16(-1),
      () => view.readArray(DataView as never, 0, 1),
      () => view.readArray(Uint8Array, 0, -1),
      () => view.writeArray(0, [1] as never),
      () => view.writeArray(0, new DataView(new ArrayBuffer(4)) as never),
    ])
      await expect(wrong()).rejects.toMatchObject(invalid);
    for (const beyond of [
      () => view.readFloat64(9),
      () => view.writeUint16(15, 1),
      () => view.readArray(Uint32Array, 4, 4),
      () => view.writeArray(8, new Float64Array(2)),
    ])
      await expect(beyond()).rejects.toMatchObject({ code: 'ERR_OUT_OF_RANGE' });
  });
});
