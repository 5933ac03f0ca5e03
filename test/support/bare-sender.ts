/**
 * A sender without stream, port or verbs around it: what it makes of a send queue, and which entries
 * complete.
 */
import { seededRandom } from '../../src/base/random.ts';
import { StagTable } from '../../src/ddp/stag-table.ts';
import { createFramer, type Framer } from '../../src/mpa/framer.ts';
import { noMessages } from '../../src/rdmap/counters.ts';
import { Requests } from '../../src/rdmap/reads.ts';
import { Sender } from '../../src/rdmap/sender.ts';
import { SendQueue, type SendWqe } from '../../src/queues/work.ts';

interface BareSender {
  readonly sender: Sender;
  readonly sq: SendQueue;
  readonly stags: StagTable;
  readonly requests: Requests;
  /** `wrId`s of the entries that have completed. */
  readonly completed: (number | bigint)[];
}

/** Without a framer of the test's own there are neither markers nor CRC. */
export function bareSender(mulpdu: number, framer: Framer = createFramer(null, null)): BareSender {
  const sq = new SendQueue(16);
  const stags = new StagTable(seededRandom(1), 10);
  const requests = new Requests(4, null);
  const completed: (number | bigint)[] = [];
  const sendCompleted = (wqe: SendWqe): void => {
    completed.push(wqe.wrId);
    sq.complete(true);
  };
  const owner = { sendCompleted, receiveCompleted: () => undefined, receiveTaken: () => undefined };
  const endpoint = { stags, pdHandle: 1, number: 1, sq, owner };
  const sender = new Sender({
    llp: { writer: framer, mulpdu },
    version: 1,
    ord: 4,
    interleave: true,
    endpoint,
    requests,
    messages: noMessages(),
    firstMsn: 1,
  });
  sender.mayTransmit = true;
  return { sender, sq, stags, requests, completed };
}
