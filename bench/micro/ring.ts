/**
 * Measures the cost of handing work to another thread: the rings of src/engine with their doorbells against
 * one `postMessage` a request, with 1 to 2,048 requests outstanding. The other thread answers each request; a
 * request counts when its answer is back.
 *
 * Called by probes/handover.ts; alone it prints: `node dist/bench/micro/ring.js [rounds]`. Every round
 * measures both ways at every depth, one after the other; the ratio is taken inside a round. Printed is the
 * median over the rounds.
 */
import { MessageChannel, parentPort, Worker, workerData, type MessagePort } from 'node:worker_threads';
import { createRing, RingReader, RingWriter } from '../../src/engine/channel/ring.ts';
import { BusyPoll, resolveBusyPoll } from '../../src/transport/busy-poll.ts';
import { median, ratios } from '../stats.ts';

const DEPTHS = [1, 16, 256, 2048] as const;
const SLICE_MS = 80;
const RING_WORDS = 65_536;
/** A plain request of one element is this long in the engine's ring. */
export const REQUEST_WORDS = 11;
export const ANSWER_WORDS = 4;
const REQUEST = 1;

/** Millions of requests a second by round. */
interface RingResult {
  readonly depth: number;
  readonly ring: readonly number[];
  readonly messages: readonly number[];
}

interface Start {
  readonly submissions: Int32Array;
  readonly completions: Int32Array;
  readonly doorbell: MessagePort;
}

/** The other thread: it answers each request the way it came. */
function answer({ submissions, completions, doorbell }: Start): void {
  const reader = new RingReader(submissions);
  const writer = new RingWriter(completions);
  const poll = new BusyPoll(resolveBusyPoll());
  const turn = (): boolean => {
    for (let took = false; ; took = true) {
      const at = reader.peek();
      if (at < 0) {
        reader.release();
        if (writer.publish()) doorbell.postMessage(0);
        if ((took ? poll.arrived() : poll.awake) || reader.sleep()) return took;
        continue;
      }
      const to = writer.begin(REQUEST, ANSWER_WORDS);
      writer.words[to + 1] = reader.words[at + 1]!;
      reader.next(at);
    }
  };
  poll.watch({ look: turn, rest: turn });
  doorbell.on('message', turn);
  parentPort!.on('message', (request: unknown) => parentPort!.postMessage(request));
  reader.sleep();
  parentPort!.postMessage('up');
}

class Bench {
  readonly #worker: Worker;
  readonly #doorbell: MessagePort;
  readonly #writer: RingWriter;
  readonly #reader: RingReader;
  readonly #poll = new BusyPoll(resolveBusyPoll());
  #answered: () => void = () => undefined;

  constructor() {
    const submissions = createRing(RING_WORDS);
    const completions = createRing(RING_WORDS);
    const { port1, port2 } = new MessageChannel();
    this.#doorbell = port1;
    this.#writer = new RingWriter(submissions);
    this.#reader = new RingReader(completions);
    const start: Start = { submissions, completions, doorbell: port2 };
    this.#worker = new Worker(new URL(import.meta.url), { workerData: start, transferList: [port2] });
  }

  async ready(): Promise<void> {
    await new Promise((resolve) => this.#worker.once('message', resolve));
    this.#worker.on('message', () => this.#answered());
    this.#doorbell.on('message', () => this.#turn());
    this.#poll.watch({ look: () => this.#turn(), rest: () => this.#turn() });
    this.#reader.sleep();
  }

  stop(): Promise<number> {
    this.#doorbell.close();
    return this.#worker.terminate();
  }

  #turn(): boolean {
    const reader = this.#reader;
    let took = false;
    for (;;) {
      const at = reader.peek();
      if (at >= 0) {
        reader.next(at);
        this.#answered();
        took = true;
        continue;
      }
      reader.release();
      if ((took ? this.#poll.arrived() : this.#poll.awake) || reader.sleep()) break;
    }
    if (this.#writer.publish()) this.#doorbell.postMessage(0);
    return took;
  }

  #postRing(): void {
    const at = this.#writer.begin(REQUEST, REQUEST_WORDS);
    for (let i = 1; i < REQUEST_WORDS; i++) this.#writer.words[at + i] = i;
  }

  /** Requests a second with `depth` outstanding. */
  rate(way: 'ring' | 'messages', depth: number): Promise<number> {
    const post =
      way === 'ring'
        ? () => this.#postRing()
        : () => this.#worker.postMessage({ opcode: 'send', wrId: 7, stag: 1, offset: 0, length: 64 });
    const start = performance.now();
    return new Promise((resolve) => {
      let answers = 0;
      let out = depth;
      let end = start + SLICE_MS;
      this.#answered = () => {
        answers++;
        out--;
        // The clock costs as much as an answer does.
        if ((answers & 63) === 0 || depth < 64) {
          const now = performance.now();
          if (now > end) end = 0;
        }
        if (end > 0) {
          post();
          out++;
        } else if (out === 0) {
          resolve((1000 * answers) / (performance.now() - start));
        }
      };
      for (let i = 0; i < depth; i++) post();
      if (this.#writer.publish()) this.#doorbell.postMessage(0);
    });
  }
}

/** Both ways at every depth, `rounds` times. */
export async function measureRing(rounds: number, progress: (text: string) => void): Promise<RingResult[]> {
  const bench = new Bench();
  try {
    await bench.ready();
    const results = DEPTHS.map((depth) => ({ depth, ring: [] as number[], messages: [] as number[] }));
    for (let round = -1; round < rounds; round++) {
      for (const { depth, ring, messages } of results) {
        progress(`round ${Math.max(1, round + 1)}/${rounds}  ${depth} under way`);
        const rates = [await bench.rate('ring', depth), await bench.rate('messages', depth)] as const;
        if (round < 0) continue; // warm up
        ring.push(rates[0] / 1e6);
        messages.push(rates[1] / 1e6);
      }
    }
    return results;
  } finally {
    await bench.stop();
  }
}

async function main(rounds: number): Promise<void> {
  console.log('outstanding    ring M/s    postMessage M/s    ratio');
  for (const { depth, ring, messages } of await measureRing(rounds, () => undefined)) {
    const m = (rates: readonly number[]): string => median(rates).toFixed(2);
    console.log(
      `${String(depth).padStart(11)}${m(ring).padStart(12)}${m(messages).padStart(19)}` +
        `${median(ratios(ring, messages)).toFixed(1).padStart(9)}`,
    );
  }
}

const isStart = (data: unknown): data is Start =>
  data !== null && typeof data === 'object' && 'submissions' in data;

if (isStart(workerData)) answer(workerData);
else if (process.argv[1] !== undefined && /ring\.[jt]s$/.test(process.argv[1]))
  await main(Number(process.argv[2] ?? 9));
