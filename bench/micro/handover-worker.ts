/** The other thread of probes/handover.ts: answers each request, through a ring in shared memory or with a message of its own. */
import { workerData, type MessagePort } from 'node:worker_threads';
import { RingReader, RingWriter } from '../../src/engine/ring.ts';

/** What the thread gets. */
export interface Shared {
  readonly requests: Int32Array;
  readonly answers: Int32Array;
  /** Doorbells of the rings. */
  readonly bell: MessagePort;
  /** Requests and answers that are messages. */
  readonly post: MessagePort;
}

/** Words of a request, about those of a work request with one element, and of a completion. */
export const REQUEST_WORDS = 16;
export const ANSWER_WORDS = 4;
export const RING_WORDS: number = 1 << 15;

function serve({ requests, answers, bell, post }: Shared): void {
  const reader = new RingReader(requests);
  const writer = new RingWriter(answers);
  const work = (): void => {
    do {
      for (let at = reader.peek(); at >= 0; at = reader.peek()) {
        const to = writer.begin(1, ANSWER_WORDS);
        if (to < 0) throw new Error('the answers do not fit');
        writer.words[to + 1] = reader.words[at + 1]!;
        reader.next(at);
      }
      reader.release();
      if (writer.publish()) bell.postMessage(0);
    } while (!reader.sleep());
  };
  bell.on('message', work);
  // Whoever has not slept is not rung.
  work();
  post.on('message', (request: unknown) => post.postMessage(request));
}

if (workerData !== null) serve(workerData as Shared);
