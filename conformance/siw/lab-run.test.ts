/** A guest that dies while a case runs: another takes its place, and a known fault is not held against us. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { InteropCase } from './bench.ts';
import type { OpenPeer } from './interop-types.ts';
import { LabRun } from './lab-run.ts';
import { isLost } from './peers.ts';

/** Faults that captures prove, one for each failure. */
const proofs: string[] = [];
vi.mock('./last-octet-first.ts', () => ({ lastOctetFirstIn: () => proofs.shift() ?? null }));

const K2 =
  'kernel BUG at drivers/infiniband/core/iwcm.c:969!\nRIP: 0010:cm_work_handler+0xa8f/0xe20 [iw_cm]\n';
const OTHER = 'BUG: kernel NULL pointer dereference, address: 0000000000000004\nRIP: 0010:tcp_ack+0x1/0x2\n';

/** Guests that die of these words, one after the other; the ones behind them live. */
function guests(words: readonly (string | null)[]): {
  readonly open: () => Promise<OpenPeer>;
  readonly closed: number[];
} {
  const closed: number[] = [];
  let count = 0;
  const open = (): Promise<OpenPeer> => {
    const number = count++;
    const peer: Partial<OpenPeer> = {
      description: `guest ${number}`,
      slowness: 1,
      dead: () => Promise.resolve(words[number] !== undefined),
      crash: () => Promise.resolve(words[number] ?? null),
      kernelLog: () => Promise.resolve(''),
      close: () => Promise.resolve(void closed.push(number)),
    };
    return Promise.resolve(peer as OpenPeer);
  };
  return { open, closed };
}

/** A case that fails as often as this, and then passes. */
const failing = (times: number): InteropCase => ({
  driver: 'stock',
  tool: 'made',
  name: 'of a lost guest',
  ours: 'client',
  topic: 'rping',
  run: () => (times-- > 0 ? Promise.reject(new Error('no answer')) : Promise.resolve('went well')),
});

// What it prints of cases that fail on purpose would be taken for failures of the tests.
beforeEach(() => vi.spyOn(process.stdout, 'write').mockReturnValue(true));
afterEach(() => vi.restoreAllMocks());

describe('a guest that dies while a case runs', () => {
  it('is replaced, and the case runs again where the fault is known', async () => {
    const { open, closed } = guests([K2]);
    const run = await LabRun.begin(open);
    const outcome = await run.run(failing(1), 0);
    expect(outcome).toMatchObject({ ok: true, detail: 'went well', before: ['no answer'] });
    expect(outcome.excused).toMatch(/^the guest died of K2 \(kernel BUG at /);
    expect(run.lost).toMatchObject([
      { title: 'made of a lost guest: our client, stock server', fault: 'K2' },
    ]);
    expect([run.peer.description, closed]).toEqual(['guest 1', [0]]);
  });

  it.each([
    ['is not known', OTHER],
    ['left no words', null],
  ])('is replaced, and the case has failed where the fault %s', async (_what, words) => {
    const { open } = guests([words]);
    const run = await LabRun.begin(open);
    expect(await run.run(failing(1), 0)).toMatchObject({ ok: false, before: [] });
    expect(run.lost.map(({ fault }) => fault)).toEqual([null]);
    expect(await run.run(failing(0), 0)).toMatchObject({ ok: true });
    expect(run.peer.description).toBe('guest 1');
  });

  it.each([
    ['has ended', { ended: true, words: null, status: 0 }, true],
    ['has fallen over, and answers', { ended: false, words: K2, status: 0 }, true],
    ['answers no command', { ended: false, words: null, status: -2 }, true],
    ['is well', { ended: false, words: null, status: 0 }, false],
  ])('is lost, or not, where it %s', async (_what, { ended, words, status }, lost) => {
    const run = (): Promise<{ status: number; output: string }> => Promise.resolve({ status, output: '' });
    expect(await isLost({ ended, crash: () => words, run })).toBe(lost);
  });

  it('excuses a case once', async () => {
    const { open, closed } = guests([K2, K2]);
    const run = await LabRun.begin(open);
    expect(await run.run(failing(2), 0)).toMatchObject({ ok: false, before: ['no answer'] });
    expect([run.lost.length, closed]).toEqual([2, [0, 1]]);
    await run.close();
    expect(closed).toEqual([0, 1, 2]);
  });

  it('is not looked for where the case passed, or the peer lives', async () => {
    const { open } = guests([]);
    const run = await LabRun.begin(open);
    expect(await run.run(failing(1), 1)).toMatchObject({ ok: true, before: ['no answer'] });
    expect(run.lost).toEqual([]);
  });
});

describe('a fault that the capture proves', () => {
  it.each([
    [3, ['first', 'second', 'third'], { ok: true, excused: 'first; then second; then third' }],
    [4, ['first', 'second', 'third', 'fourth'], { ok: false, excused: 'first; then second; then third' }],
    [2, ['first'], { ok: false, excused: 'first' }],
  ])('allows another try each time, three in all: %i failures, proofs %j', async (times, proved, ends) => {
    proofs.splice(0, Infinity, ...proved);
    const run = await LabRun.begin(guests([]).open);
    expect(await run.run(failing(times), 0)).toMatchObject(ends);
    await run.close();
  });
});

describe("a reset at the close, by the peer's own count", () => {
  const cut = new Error('our client: rstream: the peer ended the connection with 5 bytes to come');

  it.each([
    ['excuses a stream that lacks its end', 'streams', [7, 8, 8], { ok: true, detail: 'went well' }],
    ['of another case excuses none', 'streams', [8, 8], { ok: false, before: [] }],
    ['excuses nothing else', 'rping', [7, 8, 8], { ok: false, before: [] }],
    ['is not looked for on a machine with other connections', 'streams', [null], { ok: false }],
  ] as const)('%s', async (_what, topic, counts, ends) => {
    const counted: (number | null)[] = [...counts];
    const peer = await guests([]).open();
    peer.resetsAtClose = () => Promise.resolve(counted.length > 1 ? counted.shift()! : counted[0]!);
    const run = await LabRun.begin(() => Promise.resolve(peer));
    let times = 1;
    const testCase: InteropCase = {
      ...failing(0),
      topic,
      run: () => (times-- > 0 ? Promise.reject(cut) : Promise.resolve('went well')),
    };
    const outcome = await run.run(testCase, 0);
    expect(outcome).toMatchObject(ends);
    expect(outcome.excused?.includes('F6 of siw 6.1') ?? false).toBe(outcome.ok);
  });
});
