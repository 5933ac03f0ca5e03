/**
 * The two walks of docs/architecture.md, compared with the calls that the stack makes over the network in
 * memory.
 */
import { describe, expect, it, vi } from 'vitest';
import { StagTable } from '../src/ddp/stag-table.ts';
import { createFramer } from '../src/mpa/framer.ts';
import { SgeList } from '../src/queues/work.ts';
import { Receiver } from '../src/rdmap/receiver.ts';
import { PassingPort } from '../src/transport/middleware.ts';
import { Pair } from './support/pair.ts';
import { textOf } from './support/modules.ts';

interface Step {
  readonly file: string;
  readonly entry: string;
}

/** The steps of the tables below a heading of the page. */
function walk(heading: string): Step[] {
  const [, section] = textOf('docs/architecture.md').split(`### ${heading}\n`);
  const rows = section!.split(/\n##/)[0]!.matchAll(/^\| \d+ \| `([^`]+)` \| `([^`]+)` \|/gm);
  return Array.from(rows, ([, file, entry]) => ({ file: file!, entry: entry! }));
}

/** Below a port stand parts of the test network, in the place of TCP. */
const isNetwork = (file: string): boolean => /^(simnet|transport)\//.test(file);

/** The calls that are under way: for each stay in a file of src the function that was entered first. */
function callsUnderWay(): Step[] {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 80;
  const { stack } = new Error('here');
  Error.stackTraceLimit = limit;
  const frames = stack!
    .split('\n')
    .flatMap((line) => /at (?:new )?(?:\S+\.)?(\S+) .*\/src\/([^:?]+)\.[jt]s/.exec(line)?.slice(1, 3) ?? [])
    .reduce<Step[]>((all, _, i, flat) => {
      if (i % 2 === 0) all.unshift({ entry: flat[i]!, file: `${flat[i + 1]!}.ts` });
      return all;
    }, [])
    .filter(({ file }) => !isNetwork(file));
  return frames.filter(({ file }, i) => i === 0 || frames[i - 1]!.file !== file);
}

/** The calls under way when `method` of `owner` is called for the first time. */
function spyOn<T extends object>(owner: T, method: keyof T & string): () => Step[] {
  let calls: Step[] | null = null;
  const original = owner[method] as (...args: unknown[]) => unknown;
  const spy = vi
    .spyOn(owner as Record<string, (...args: unknown[]) => unknown>, method)
    .mockImplementation(function (this: unknown, ...args: unknown[]): unknown {
      calls ??= callsUnderWay();
      return original.apply(this, args);
    });
  return () => {
    spy.mockRestore();
    return calls!;
  };
}

describe('the walks of docs/architecture.md', () => {
  let writing: Step[] = [];
  class WatchedPort extends PassingPort {
    override write(...args: Parameters<PassingPort['write']>): boolean {
      writing = callsUnderWay();
      return super.write(...args);
    }
  }

  /** A Write is posted: what happens in the call, and then what runs until nothing is left. */
  async function posted(): Promise<{ pair: Pair; post: () => void }> {
    const policy = { silentPeerNudge: 0 };
    const pair = await new Pair({
      client: { policy },
      server: { policy },
      middleware: () => [(port) => new WatchedPort(port)],
    }).connect();
    const [mr, sink] = [pair.client.register(64), pair.server.register(64)];
    const post = (): void =>
      void pair.client.qp.postSend({ opcode: 'rdma-write', sges: [{ mr }], rkey: sink.rkey, remoteAddr: 0 });
    return { pair, post };
  }

  it('a chunk: from the port to the check, file by file', async () => {
    const steps = walk('A chunk from the network to its place');
    const at = (file: string): number => steps.findIndex((step) => step.file === file);
    const { pair, post } = await posted();
    const classify = spyOn(Receiver.prototype, 'classify');
    const check = spyOn(StagTable.prototype, 'check');
    post();
    pair.run();
    expect(pair.client.sent()[0]!.status).toBe('success');
    const upcall = at('rdmap/receiver.ts');
    // From the driver on; RDMAP has answered before DDP places.
    expect(classify()).toEqual(steps.slice(1, upcall));
    expect(check()).toEqual([...steps.slice(1, upcall), steps[at('ddp/placement.ts')]]);
    expect(steps.map(({ file }) => file).slice(-2)).toEqual(['ddp/stag-table.ts', 'base/copy.ts']);
    expect(new Set(steps.map(({ file }) => file)).size).toBe(steps.length);
  });

  it('a posted Write: in the call, at the end of the turn, and to the port', async () => {
    const steps = walk('A posted Write to the socket');
    const { pair, post } = await posted();
    const add = spyOn(SgeList.prototype, 'add');
    const kick = spyOn(pair.client.connection!.link!, 'kick');
    const begin = spyOn(Object.getPrototypeOf(createFramer(null, null)) as { begin(): void }, 'begin');
    post();
    const [elements, kicked] = [add(), kick()];
    pair.run();
    const turn = steps.findIndex(({ entry }) => entry === '#flushNow');
    expect(elements).toEqual(steps.slice(0, 5));
    expect(kicked).toEqual([steps[0], steps[6]]);
    expect(steps.slice(5, turn).map(({ entry }) => entry)).toEqual(['add', 'kick', 'kick']);
    const framing = begin();
    expect(framing.map(({ file }) => file)).toEqual(steps.slice(turn, -2).map(({ file }) => file));
    expect(writing.map(({ file }) => file)).toEqual([steps[turn]!.file]);
    expect(steps.at(-1)).toEqual({ file: 'transport/tcp-port.ts', entry: 'write' });
  });
});
