/**
 * A host without free memory is a limit, reported as one: the length in a ticket may be whatever an untrusted
 * peer has put there.
 */
import { expect, it, vi } from 'vitest';
import { RemoteBuffer } from '../../src/index.ts';
import { pair, WORLDS } from './support.ts';

const MOST = 1 << 20;

/** Call with a host that gives no piece of memory above MOST. */
function scarce<T>(call: () => T): T {
  for (const name of ['ArrayBuffer', 'SharedArrayBuffer', 'Uint8Array'] as const) {
    const refusing = new Proxy(globalThis[name], {
      construct(target, args: unknown[], self) {
        if (Number(args[0]) > MOST) throw new RangeError('Array buffer allocation failed');
        return Reflect.construct(target, args, self) as object;
      },
    });
    vi.stubGlobal(name, refusing);
  }
  try {
    return call();
  } finally {
    vi.unstubAllGlobals();
  }
}

const LIMIT = {
  name: 'IwarpError',
  code: 'ERR_LIMIT',
  message: `no memory for ${MOST + 1} bytes`,
  cause: expect.any(RangeError) as unknown,
};

it.each(WORLDS)(
  '%s: a Read of a ticket that is larger than what is left, and memory to register',
  async (world) => {
    const { client, rnic } = await pair(world);
    const refused = scarce(() => client.read(new RemoteBuffer(1, 0n, MOST + 1)));
    await expect(refused).rejects.toMatchObject(LIMIT);
    expect(() => scarce(() => client.allocate(MOST + 1))).toThrow(expect.objectContaining(LIMIT));
    expect(() => scarce(() => client.allocate(MOST + 1, 'read', { sharedMemory: true }))).toThrow(
      expect.objectContaining(LIMIT),
    );
    expect(() => scarce(() => rnic.device.allocateMemory(MOST + 1))).toThrow(expect.objectContaining(LIMIT));
    expect(client.state).toBe('open');
  },
);
