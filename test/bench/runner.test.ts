/** What the processes of a pair are asked, in order, and what their answers become. */
import { beforeEach, expect, it, vi } from 'vitest';
import { custom } from '../../bench/experiments.ts';
import { parseBench } from '../../bench/options.ts';
import { runExperiment } from '../../bench/runner.ts';
import type { Mark } from '../../bench/types.ts';

const { asked } = vi.hoisted(() => ({ asked: [] as string[] }));

vi.mock('../../bench/peer-process.ts', () => ({
  /** A server receives nothing; to a client 640 octets have come at each mark. */
  PeerProcess: class {
    #side = '';
    #bytes = 0;
    #us = 0;

    ask(command: { readonly do: string }): Promise<unknown> {
      if (command.do === 'serve' || command.do === 'connect') this.#side = command.do;
      asked.push(`${this.#side} ${command.do}`);
      if (command.do === 'mark' && this.#side === 'connect') this.#bytes += 640;
      this.#us += 1000;
      const mark: Mark = { bytes: this.#bytes, now: this.#us * 1000, cpu: this.#us, gc: 0, posts: 0, postMs: 0, active: 0 };
      const latency = { count: 1, p50: 10, sum: 10, sumSquares: 100, min: 10, max: 10, buckets: [0, 1] };
      return Promise.resolve({ place: { port: 1 }, mark, health: { rss: 1, loopP99: 0 }, latency });
    }

    end(): void {
      asked.push(`${this.#side} end`);
    }
  },
}));

beforeEach(() => void asked.splice(0));

const METHOD = { rounds: 1, windows: 1, windowMs: 1, latencyMs: 1 };
const measure = async (...args: string[]): ReturnType<typeof runExperiment> =>
  await runExperiment(custom(parseBench(['--against', '', '--size', '64', ...args]).wish!), METHOD, () => undefined);

it('round trips of the time for coming up to speed do not count', async () => {
  await measure('--test', 'lat', '--verb', 'send');
  const slice = asked.slice(asked.lastIndexOf('connect start'));
  expect(slice).toEqual([
    'connect start', 'connect fresh', 'serve mark', 'connect mark', 'serve mark', 'connect mark', 'connect stop', 'serve stop', 'serve end', 'connect end',
  ]);
});

it.each(['bw', 'lat'])('Reads bring their octets to the client, and cost by them: %s', async (test) => {
  const { cases } = await measure('--test', test, '--verb', 'read');
  expect(cases).toHaveLength(1);
  expect(cases[0]!.cost).toMatchObject({ clientPerByte: expect.closeTo(1000 / 640 * 1000, 5) as number });
});
