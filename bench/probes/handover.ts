/** Handing requests to another thread and getting answers: by a ring in shared memory, as the worker engine does, and by a message each. */
import { setTimeout as sleep } from 'node:timers/promises';
import { MessageChannel, Worker, type MessagePort } from 'node:worker_threads';
import { createRing, RingReader, RingWriter } from '../../src/engine/ring.ts';
import { SETTLE_MS, type Method } from '../method.ts';
import { ANSWER_WORDS, REQUEST_WORDS, RING_WORDS, type Shared } from '../micro/handover-worker.ts';
import { median } from '../stats.ts';
import type { ProbeResult } from '../types.ts';
import { cell, ratioOf, watchSteal, type Probe, type Progress } from './probe.ts';

const PROGRAM = new URL(import.meta.url.endsWith('.ts') ? '../micro/handover-worker.ts' : '../micro/handover-worker.js', import.meta.url);
const OUTSTANDING = [1, 16, 256] as const;

/** Keeps `outstanding` requests at the other thread; `answered` counts. */
interface Sender {
  start(outstanding: number): void;
  stop(): void;
  readonly answered: () => number;
}

function overRing({ requests, answers }: Shared, bell: MessagePort): Sender {
  const writer = new RingWriter(requests);
  const reader = new RingReader(answers);
  let running = false;
  let done = 0;
  const post = (count: number): void => {
    for (let i = 0; i < count; i++) {
      const at = writer.begin(1, REQUEST_WORDS);
      if (at < 0) throw new Error('the requests do not fit');
      writer.words[at + 1] = i;
    }
    if (writer.publish()) bell.postMessage(0);
  };
  const take = (): void => {
    do {
      let n = 0;
      for (let at = reader.peek(); at >= 0; at = reader.peek(), n++) reader.next(at);
      reader.release();
      done += n;
      if (running && n > 0) post(n);
    } while (!reader.sleep());
  };
  bell.on('message', take);
  // Both sides begin asleep: the first of anything rings.
  reader.sleep();
  return {
    start: (outstanding) => {
      running = true;
      post(outstanding);
    },
    stop: () => (running = false),
    answered: () => done,
  };
}

/** A message is what a program would send: an object with the fields of a request. */
function byMessage(port: MessagePort): Sender {
  let running = false;
  let done = 0;
  const request = { opcode: 1, wrId: 7, rkey: 9, remoteAddr: 4096, offset: 0, length: 4096 };
  port.on('message', () => {
    done++;
    if (running) port.postMessage(request);
  });
  return {
    start: (outstanding) => {
      running = true;
      for (let i = 0; i < outstanding; i++) port.postMessage(request);
    },
    stop: () => (running = false),
    answered: () => done,
  };
}

/** Millions of answers a second. */
async function rate(sender: Sender, outstanding: number, ms: number): Promise<number> {
  sender.start(outstanding);
  await sleep(SETTLE_MS);
  const from = sender.answered();
  const began = performance.now();
  await sleep(ms);
  const took = performance.now() - began;
  const answered = sender.answered() - from;
  sender.stop();
  await sleep(SETTLE_MS / 2);
  return answered / took / 1000;
}

async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const [bell, post] = [new MessageChannel(), new MessageChannel()];
  const shared: Shared = { requests: createRing(RING_WORDS), answers: createRing(RING_WORDS), bell: bell.port2, post: post.port2 };
  const worker = new Worker(PROGRAM, { workerData: shared, transferList: [bell.port2, post.port2] });
  const failed = new Promise<never>((_resolve, reject) => worker.once('error', reject));
  failed.catch(() => undefined);
  const [ring, message] = [overRing(shared, bell.port1), byMessage(post.port1)];
  const rings = OUTSTANDING.map(() => [] as number[]);
  const messages = OUTSTANDING.map(() => [] as number[]);
  const rounds = async (): Promise<void> => {
    await rate(ring, 256, method.windowMs);
    await rate(message, 256, method.windowMs);
    for (let round = 0; round < method.rounds; round++) {
      for (const [i, outstanding] of OUTSTANDING.entries()) {
        progress(`round ${round + 1}/${method.rounds}  ${outstanding} under way`);
        rings[i]!.push(await rate(ring, outstanding, method.windowMs));
        messages[i]!.push(await rate(message, outstanding, method.windowMs));
      }
    }
  };
  try {
    await Promise.race([rounds(), failed]);
  } finally {
    bell.port1.close();
    post.port1.close();
    await worker.terminate();
  }
  const ratio = (i: number): number[] => rings[i]!.map((value, round) => value / messages[i]![round]!);
  return {
    id: 'handover', title: 'Handing requests to another thread',
    about: `How many requests a second reach a worker thread and are answered: by records of ${REQUEST_WORDS} words in a ring of shared memory with a doorbell when the other
side sleeps (answers of ${ANSWER_WORDS} words come the same way), and by a message for each.`,
    columns: ['ring, million/s', 'a message each, million/s', 'ratio'],
    rows: OUTSTANDING.map((outstanding, i) => ({
      label: `${outstanding} under way`, cells: [cell(median(rings[i]!), 3), cell(median(messages[i]!), 3), cell(median(ratio(i)), 1)],
    })),
    charts: [{
      caption: 'How many times as many requests the ring hands over', unit: 'times', log: false,
      bars: OUTSTANDING.map((outstanding, i) => ({ label: `${outstanding} under way`, value: cell(median(ratio(i)), 1), ours: true })),
    }],
    ratios: OUTSTANDING.map((outstanding, i) => ratioOf(`handover/ring, ${outstanding} under way : a message each`, 'more', ratio(i))),
    missing: [], disturbed: stolen(),
  };
}

export const handover: Probe = { id: 'handover', title: 'Handing requests to another thread', run };
