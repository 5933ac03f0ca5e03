/** Completions for the programs of this package that work with the verbs themselves. */
import type { CompletionQueue, WorkCompletion } from '../src/verbs/index.ts';

/** Call `each` for every completion of the queue, from now on. */
export function handleAll(cq: CompletionQueue, each: (wc: WorkCompletion) => void): void {
  const out: WorkCompletion[] = [];
  cq.setHandler(() => {
    do {
      for (let n = cq.poll(out, 64); n > 0; n = cq.poll(out, 64)) for (let i = 0; i < n; i++) each(out[i]!);
      cq.requestNotify();
    } while (cq.length > 0);
  });
  cq.requestNotify();
}
