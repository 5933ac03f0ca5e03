/**
 * STags for one use (RFC 5042 6.2 wants an STag to live no longer than it is needed): what counts as the use,
 * and that nothing of the peer makes it two.
 */
import { describe, expect, it } from 'vitest';
import { ACCESS, type MemoryRegion } from '../../src/verbs/index.ts';
import { encodeAtomicRequest, untaggedUlpdu } from '../support/naive/encoder.ts';
import {
  expectTerminate,
  OP,
  pattern,
  readRequest,
  scripted,
  write,
  type Script,
} from '../rdmap/scripted.ts';

const OCTETS = 24;
const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = ACCESS;
const ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;

async function once(): Promise<{ script: Script; mr: MemoryRegion; stag: number }> {
  const script = await scripted();
  const { qp } = script.side;
  const mr = qp.pd.registerMemory(new Uint8Array(OCTETS), ALL, { queuePair: qp, uses: 1 });
  return { script, mr, stag: mr.rkey };
}

const atomic = (stag: number, msn: number): Uint8Array =>
  untaggedUlpdu(
    { opcode: OP.atomicRequest, qn: 1, msn },
    encodeAtomicRequest({
      reserved: 0,
      aopcode: 0,
      requestId: 1,
      remoteStag: stag,
      remoteTo: 0n,
      addOrSwap: 5n,
      addOrSwapMask: 0n,
      compare: 0n,
      compareMask: 0n,
    }),
  );

describe('an STag for one use', () => {
  it('takes one Write of several segments, and is invalid with the last', async () => {
    const { script, mr, stag } = await once();
    const data = pattern(OCTETS);
    script.send(write(stag, 0n, data.slice(0, 8), { last: false }));
    script.send(write(stag, 8n, data.slice(8, 16), { last: false })).settle();
    expect(mr.valid).toBe(true);
    script.send(write(stag, 16n, data.slice(16))).settle();
    expect([mr.valid, mr.bytes]).toEqual([false, data]);
    const blamed = write(stag, 0n, pattern(8, 9));
    script.send(blamed).settle();
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
    expect(mr.bytes).toEqual(data);
  });

  it('ends with a last segment that has no payload, and with no other empty one', async () => {
    const { script, mr, stag } = await once();
    script.send(write(stag, 0n)).settle(); // an empty Write uses nothing
    expect(mr.valid).toBe(true);
    script.send(write(stag, 0n, pattern(8), { last: false }), write(0x1234_5600, 0n)).settle();
    expect(mr.valid).toBe(true);
    script.send(write(stag, 8n)).settle();
    expect(mr.valid).toBe(false);
  });

  it.each([
    ['the same octets again', 0n],
    ['octets beyond a gap', 12n],
    ['octets across those that are there', 4n],
  ])('takes no segment of a message that writes %s', async (_name, to) => {
    const { script, mr, stag } = await once();
    const blamed = write(stag, to, pattern(8, 9), { last: false });
    script.send(write(stag, 0n, pattern(8), { last: false }), blamed).settle();
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
    expect([...mr.bytes.subarray(8)].every((octet) => octet === 0)).toBe(true);
    expect(mr.bytes.subarray(0, 8)).toEqual(pattern(8));
  });

  it('takes one Read; a second that comes before the response of the first is refused', async () => {
    const { script, mr, stag } = await once();
    const second = readRequest(2, { size: 4, sourceStag: stag });
    script.send(readRequest(1, { size: OCTETS, sourceStag: stag }), second).settle();
    expect(script.sent(OP.readResponse).length).toBe(1);
    expect(mr.valid).toBe(false);
    expectTerminate(script, { layer: 0, etype: 1, code: 0, blamed: second, readHeader: true });
  });

  it('takes one Read, after which it is invalid; an empty one uses nothing', async () => {
    const { script, mr, stag } = await once();
    script.send(readRequest(1, { size: 0, sourceStag: stag })).settle();
    expect(mr.valid).toBe(true);
    script.send(readRequest(2, { size: 8, sourceStag: stag })).settle();
    expect(mr.valid).toBe(false);
    const blamed = readRequest(3, { size: 8, sourceStag: stag });
    script.send(blamed).settle();
    expect(script.sent(OP.readResponse).length).toBe(2);
    expectTerminate(script, { layer: 0, etype: 1, code: 0, blamed, readHeader: true });
  });

  it('takes no Read while a Write is under way, and no Write after an atomic', async () => {
    const writing = await once();
    const read = readRequest(1, { size: 8, sourceStag: writing.stag });
    writing.script.send(write(writing.stag, 0n, pattern(8), { last: false }), read).settle();
    expectTerminate(writing.script, { layer: 0, etype: 1, code: 0, blamed: read, readHeader: true });

    const { script, mr, stag } = await once();
    script.send(atomic(stag, 1)).settle();
    expect([mr.valid, mr.bytes[7]! + mr.bytes[0]!]).toEqual([false, 5]);
    const blamed = write(stag, 0n, pattern(8));
    script.send(blamed).settle();
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
  });

  it('is of one queue pair, and not shared', async () => {
    const { script } = await once();
    const { qp } = script.side;
    const bad = { code: 'ERR_INVALID_ARGUMENT' };
    const register = (options: object) => () => qp.pd.registerMemory(new Uint8Array(8), ALL, options);
    expect(register({ uses: 1 })).toThrow(expect.objectContaining(bad));
    expect(register({ uses: 1, queuePair: qp, shared: true })).toThrow(expect.objectContaining(bad));
    for (const uses of [0, 2, '1', null, true])
      expect(register({ uses, queuePair: qp })).toThrow(expect.objectContaining(bad));
    expect(script.peer.ending).toBe('open');
  });

  it('registered again it is for one use again, in whatever way it has been used', async () => {
    const { script, mr, stag } = await once();
    script.send(write(stag, 0n, pattern(8), { last: false })).settle();
    await mr.reregister({ access: ALL });
    script.send(write(mr.rkey, 8n, pattern(8))).settle();
    expect(mr.valid).toBe(false);
  });
});
