/** The waits between attempts: doubled up to a limit, and spread by chance. */
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { waitAfter } from '../../src/client/backoff.ts';
import { createClient, createServer, openRnic, type Client, type ClientStatus } from '../../src/index.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';

const HOST = '127.0.0.1';
/** The largest that `Math.random` gives. */
const MOST_CHANCE = 1 - 2 ** -53;

describe('waitAfter', () => {
  const backoff = { first: 50, most: 30_000, attempts: 10 };

  it('doubles with each failure in a row, up to the limit', () => {
    const waits = Array.from({ length: 12 }, (_, i) => waitAfter(backoff, i + 1, 0.5));
    expect(waits).toEqual([50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    for (const failures of [42, 1_000, 1e9]) expect(waitAfter(backoff, failures, 0.5)).toBe(30_000);
    expect(waitAfter({ ...backoff, first: 1, most: 0x7fff_ffff }, 1_000, 0.5)).toBe(0x7fff_ffff);
  });

  it('does not pass a limit below the first wait', () => {
    expect(waitAfter({ ...backoff, most: 20 }, 1, 0.5)).toBe(20);
  });

  it('is spread evenly from a half to one and a half, at the limit too', () => {
    for (const [failures, plain] of [
      [1, 50],
      [3, 200],
      [20, 30_000],
    ] as const) {
      expect(waitAfter(backoff, failures, 0)).toBe(plain / 2);
      expect(waitAfter(backoff, failures, 0.25)).toBe(0.75 * plain);
      expect(waitAfter(backoff, failures, MOST_CHANCE)).toBeLessThanOrEqual(1.5 * plain);
      expect(waitAfter(backoff, failures, MOST_CHANCE)).toBeGreaterThan(1.499 * plain);
    }
  });
});

describe('a client', () => {
  afterEach(() => void vi.restoreAllMocks());
  const rnic = openRnic({ transport: new MemoryTransport(realScheduler) });
  const reconnect = { first: 8, most: 32, attempts: 7 };

  type Report = ClientStatus & { readonly at: number };
  /** Reports as they come. */
  function reportsOf(client: Client): { readonly reports: Report[]; readonly over: Promise<void> } {
    const reports: Report[] = [];
    const over = (async () => {
      for await (const report of client.status()) reports.push({ ...report, at: performance.now() });
    })();
    return { reports, over };
  }
  const waitsOf = (reports: readonly Report[], wanted: ClientStatus['type']): (number | undefined)[] =>
    reports.filter(({ type }) => type === wanted).map(({ wait }) => wait);

  it.each([0, 0.5, MOST_CHANCE])('that finds no server waits so, with a chance of %d', async (chance) => {
    vi.spyOn(Math, 'random').mockReturnValue(chance);
    const client = createClient({ rnic, host: HOST, port: 9, reconnect });
    const { reports, over } = reportsOf(client);
    await over;
    const plain = [8, 16, 32, 32, 32, 32];
    expect(waitsOf(reports, 'failed')).toEqual(plain.map((wait) => wait * (0.5 + chance)));
    expect(reports.map(({ failures }) => failures)).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(reports.at(-1)).toMatchObject({ type: 'closed', wait: undefined });
    // And no attempt comes before its time.
    for (let i = 1; i < reports.length; i++)
      expect(reports[i]!.at - reports[i - 1]!.at).toBeGreaterThan(reports[i - 1]!.wait! - 2);
  });

  it('draws for each wait anew', async () => {
    let draws = 0;
    vi.spyOn(Math, 'random').mockImplementation(() => (draws++ % 10) / 10);
    const client = createClient({ rnic, host: HOST, port: 9, reconnect: { first: 1, most: 1, attempts: 9 } });
    const { reports, over } = reportsOf(client);
    await over;
    expect(new Set(waitsOf(reports, 'failed')).size).toBe(8);
  });

  it('that has lost its connection waits up to the first wait, and then from the beginning', async () => {
    const random = vi.spyOn(Math, 'random');
    const server = await createServer({ rnic }, () => undefined).listen({ host: HOST, port: 0 });
    const { port } = server.address();
    const client = createClient({ rnic, host: HOST, port, reconnect: { first: 8, most: 32 } });
    onTestFinished(() => client.destroy());
    const { reports, over } = reportsOf(client);
    const chances = [0, 0.25, MOST_CHANCE];
    for (const [i, chance] of chances.entries()) {
      random.mockReturnValue(chance);
      (await client.ready()).destroy();
      await expect.poll(() => waitsOf(reports, 'lost').length).toBe(i + 1);
    }
    await client.ready();
    expect(waitsOf(reports, 'lost')).toEqual(chances.map((chance) => chance * reconnect.first));
    expect(waitsOf(reports, 'failed')).toEqual([]);
    // Failures in a row are counted from the last success on.
    random.mockReturnValue(0.5);
    let running = server;
    for (let round = 1; round <= 2; round++) {
      const before = waitsOf(reports, 'failed').length;
      await running.close({ timeout: 500 });
      await expect.poll(() => waitsOf(reports, 'failed').length - before).toBeGreaterThan(2);
      expect(waitsOf(reports, 'failed').slice(before, before + 3)).toEqual([8, 16, 32]);
      running = await createServer({ rnic }, () => undefined).listen({ host: HOST, port });
      await client.ready();
    }
    client.destroy();
    await Promise.all([over, running.close({ timeout: 500 })]);
  });
});
