/**
 * Torn reads: `npx tsx test/kv/torn.ts [READS] [CLIENTS]`. Clients read values that prove themselves while
 * another process, the owner, rewrites, moves and evicts them. Any octet of another round, any value of
 * another key, and any value older than one that a client had read before the call began ends the run.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { connect } from '../../src/kv/index.ts';
import { KEYS, roundOf } from './torn-values.ts';

const OWNER = fileURLToPath(new URL('torn-owner.ts', import.meta.url));
/** Gets of a client under way at a time. */
const AT_ONCE = 16;

interface TornResult {
  /** RDMA Reads posted. */
  reads: number;
  /** Gets that gave a value; each was whole and not stale. */
  found: number;
  /** Keys that had been evicted. */
  gone: number;
  /** Octets that were not whole, and were thrown away. */
  torn: number;
  /** Gets that the owner had to answer. */
  asked: number;
  /** Values that the owner has stored meanwhile. */
  rounds: number;
}

/** Run until that number of RDMA Reads has been posted. */
export async function readWhileWritten(reads: number, clients: number): Promise<TornResult> {
  const owner = spawn(process.execPath, ['--import', 'tsx', OWNER], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: owner.stdout })[Symbol.asyncIterator]();
  try {
    const port = Number((await lines.next()).value);
    const all = await Promise.all(Array.from({ length: clients }, () => connect({ port })));
    const posted = (): number => all.reduce((sum, kv) => sum + kv.stats().reads, 0);
    // The newest round of each key that any client has read.
    const newest = new Float64Array(KEYS);
    const result: TornResult = { reads: 0, found: 0, gone: 0, torn: 0, asked: 0, rounds: 0 };
    const loop = async (kv: (typeof all)[number]): Promise<void> => {
      for (let i = 0; (i & 63) !== 0 || posted() < reads; i++) {
        const key = Math.floor(Math.random() * KEYS);
        const floor = newest[key]!;
        const bytes = await kv.get(`key ${key}`);
        if (bytes === null) {
          result.gone++;
          continue;
        }
        const round = roundOf(key, bytes);
        if (round < floor) throw new Error(`key ${key}: round ${round} after round ${floor} had been read`);
        newest[key] = Math.max(newest[key]!, round);
        result.found++;
      }
    };
    await Promise.all(all.flatMap((kv) => Array.from({ length: AT_ONCE }, () => loop(kv))));
    for (const kv of all) {
      const { torn, asked } = kv.stats();
      result.torn += torn;
      result.asked += asked;
      await kv.close();
    }
    result.reads = all.reduce((sum, kv) => sum + kv.stats().reads, 0);
    owner.kill('SIGTERM');
    result.rounds = Number((await lines.next()).value);
    return result;
  } finally {
    owner.kill('SIGKILL');
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [reads = '10000000', clients = '4'] = process.argv.slice(2);
  console.log(await readWhileWritten(Number(reads), Number(clients)));
}
