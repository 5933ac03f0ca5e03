/** What the processes of a pair are asked, in order, and what their answers become. */
import { beforeEach, expect, it, vi } from 'vitest';
import { DistanceWatch } from '../../bench/distance.ts';
import { custom } from '../../bench/experiments.ts';
import { parseBench } from '../../bench/options.ts';
import { runExperiment } from '../../bench/runner.ts';
import type { Mark } from '../../bench/types.ts';

const { asked, state } = vi.hoisted(() => ({ asked: [] as string[], state: { stopped: 0, busyLooks: 0 } }));

// Nothing happens in the pauses of a slice, since the processes are not there.
vi.mock('node:timers/promises', () => ({ setTimeout: () => Promise.resolve() }));

vi.mock('../../bench/peer-process.ts', () => ({
  /** A server receives nothing; to a client 640 octets have come at each mark. */
  PeerProcess: class {
    constructor(_nodeArgs: readonly string[], build?: string) {
      if (build !== undefined) asked.push(`started from ${build}`);
    }

    #side = '';
    #bytes = 0;
    #us = 0;

    ask(command: { readonly do: string }): Promise<unknown> {
      if (command.do === 'serve' || command.do === 'connect') this.#side = command.do;
      asked.push(`${this.#side} ${command.do}`);
      if (command.do === 'mark' && this.#side === 'connect') this.#bytes += 640;
      this.#us += 1000;
      if (command.do === 'stop') state.stopped++;
      // What a sender still has to do after it has been stopped.
      if (state.stopped > 0 && command.do === 'fresh' && state.busyLooks-- > 0) this.#us += 20_000;
      const mark: Mark = {
        bytes: this.#bytes,
        now: this.#us * 1000,
        cpu: this.#us,
        gc: 0,
        posts: 0,
        postMs: 0,
        active: 0,
      };
      const latency = { count: 1, p50: 10, sum: 10, sumSquares: 100, min: 10, max: 10, buckets: [0, 1] };
      return Promise.resolve({ place: { port: 1 }, mark, health: { rss: 1, loopP99: 0 }, latency });
    }

    end(): void {
      asked.push(`${this.#side} end`);
    }
  },
}));

beforeEach(() => {
  // As on a machine of one processor: how far two are apart is looked at by distance.test.
  vi.spyOn(DistanceWatch, 'open').mockResolvedValue(null);
  asked.splice(0);
  Object.assign(state, { stopped: 0, busyLooks: 0 });
});

const METHOD = { rounds: 1, windows: 1, windowMs: 1, latencyMs: 1 };
const measure = async (...args: string[]): ReturnType<typeof runExperiment> =>
  await runExperiment(
    custom(parseBench(['--against', '', '--size', '64', ...args]).wish!),
    METHOD,
    () => undefined,
  );

it('round trips of the time for coming up to speed do not count', async () => {
  await measure('--test', 'lat', '--verb', 'send');
  const slice = asked.slice(asked.lastIndexOf('connect start'));
  expect(slice).toEqual([
    'connect start',
    'connect fresh',
    'serve mark',
    'connect mark',
    'serve mark',
    'connect mark',
    'connect stop',
    'serve stop',
    'serve end',
    'connect end',
  ]);
});

it.each(['bw', 'lat'])('Reads bring their octets to the client, and cost by them: %s', async (test) => {
  const { cases } = await measure('--test', test, '--verb', 'read');
  expect(cases).toHaveLength(1);
  expect(cases[0]!.cost).toMatchObject({ clientPerByte: expect.closeTo((1000 / 640) * 1000, 5) as number });
});

it('nobody else is measured while what ws and grpc-js had taken goes on', async () => {
  const experiment = custom(parseBench(['--test', 'bw', '--against', 'ws']).wish!);
  const cases = experiment.groups[0]!.cases.filter(({ series }) => series === 'ws');
  state.busyLooks = 5;
  await runExperiment({ ...experiment, groups: [{ cases, bases: [] }] }, METHOD, () => undefined);
  const after = asked.slice(asked.indexOf('serve stop') + 1);
  // Looks at both: three while one of them works, one that finds them at rest; where they rest at once, two.
  const look = ['serve fresh', 'connect fresh'];
  expect(after.slice(0, after.indexOf('connect start'))).toEqual([...look, ...look, ...look, ...look]);
  expect(after.slice(after.lastIndexOf('serve stop') + 1)).toEqual([
    ...look,
    ...look,
    'serve end',
    'connect end',
  ]);
});

it('both sides of a case of another build are processes of that build', async () => {
  const experiment = custom(parseBench(['--test', 'bw', '--against', 'tcp-onread']).wish!);
  const cases = experiment.groups[0]!.cases.map((one) =>
    one.spec.peer === 'verbs' ? { ...one, build: '/another' } : one,
  );
  await runExperiment({ ...experiment, groups: [{ cases, bases: [] }] }, METHOD, () => undefined);
  expect(asked.filter((one) => one.startsWith('started'))).toEqual([
    'started from /another',
    'started from /another',
  ]);
});

it('bare TCP and the stack rest at once', async () => {
  await measure('--test', 'bw', '--against', 'tcp-onread');
  expect(asked.filter((one) => one.endsWith('fresh'))).toEqual([]);
});
