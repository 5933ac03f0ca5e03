/**
 * Two command lines, ours and a stock one, that must both end with status 0 and show what they should: in
 * either role.
 */
import { check, pause, within, type Bench, type InteropCase, type Topic } from './bench.ts';

/** The side that is ours. */
export type Role = 'client' | 'server';
export const ROLES: readonly Role[] = ['client', 'server'];

/** A pair of command lines that must both end with status 0. */
export interface Pair {
  readonly tool: string;
  readonly topic: Topic;
  readonly name: string;
  /** Port on which a stock server listens. */
  readonly port: number;
  /** Our arguments and the stock command, as server on a port and as client of a host and port. */
  readonly ours: { server(port: number): string[]; client(host: string, port: number): string[] };
  readonly stock: { server(port: number): string; client(host: string, port: number): string };
  /** The output that both sides must show, or the client alone if the server shows something else. */
  readonly says: RegExp;
  readonly serverSays?: RegExp;
}

interface Outputs {
  readonly ours: string;
  readonly stock: string;
}

const LAST_WORDS_MS = 5_000;

async function runPair(bench: Bench, pair: Pair, ours: Role): Promise<Outputs> {
  if (ours === 'client') {
    const peer = await bench.listening(pair.stock.server(pair.port), pair.port);
    const { host, port } = bench.peer.reach(pair.port);
    const result = await bench.iwarp(...pair.ours.client(host, port), '--pcap', bench.capture);
    const text = `${result.stdout}${result.stderr}`;
    // A stock server that gave up first has the reason: let it come to its end.
    if (result.status !== 0) await Promise.race([peer.ended, pause(LAST_WORDS_MS)]);
    check(
      result.status === 0,
      `our client: status ${result.status}: ${text.slice(-400)}; stock server: ${peer.output.slice(-400)}`,
    );
    const { status, output } = await within(
      peer.ended,
      bench.patience,
      () => `the stock server goes on: ${peer.output.slice(-400)}`,
    );
    check(status === 0, `stock server: status ${status}: ${output.slice(-400)}`);
    return { ours: text, stock: output };
  }
  const port = await bench.freePort();
  const tool = await bench.startListening([...pair.ours.server(port), '--pcap', bench.capture], port);
  const { status, output } = await bench.stock(pair.stock.client(bench.peer.hostAddress, port));
  check(
    status === 0,
    `stock client: status ${status}: ${output.slice(-400)}; our server: ` +
      `${tool.stdout.slice(-200)}${tool.stderr}`,
  );
  const result = await within(
    tool.ended,
    bench.patience,
    () => `our server goes on: ${tool.stdout.slice(-300)}${tool.stderr}`,
  );
  const text = `${result.stdout}${result.stderr}`;
  check(result.status === 0, `our server: status ${result.status}: ${text.slice(-400)}`);
  return { ours: text, stock: output };
}

/**
 * perftest measures its processor's clock against that of the day before it prints, and has no figures when
 * the two do not fit: under emulation on a busy machine they now and then do not. It says so, has nothing to
 * do with the wire, and is the one thing that is tried again.
 */
const CLOCK_FAULT = /Correlation coefficient r\^2: \S+ < 0\.9|Can't produce a report/;
/** A run over all sizes measures forty times. */
const CLOCK_TRIES = 5;

async function runMeasured(bench: Bench, pair: Pair, ours: Role): Promise<{ shown: Outputs; again: string }> {
  for (let faults = 0; ; ) {
    try {
      const shown = await runPair(bench, pair, ours);
      // A test by time ends with status 0 all the same, and its figures are inf.
      const fault = CLOCK_FAULT.exec(shown.stock);
      check(fault === null, `the stock side: ${fault?.[0]}`);
      return {
        shown,
        again: faults === 0 ? '' : ` (the stock side could not measure its clock ${faults} times before)`,
      };
    } catch (error) {
      if (!CLOCK_FAULT.test((error as Error).message) || ++faults === CLOCK_TRIES) throw error;
      await bench.finish(true);
    }
  }
}

/** A case for each role. */
export function pairCases(pair: Pair): InteropCase[] {
  return ROLES.map((ours) => ({
    driver: 'stock',
    tool: pair.tool,
    name: pair.name,
    ours,
    topic: pair.topic,
    run: async (bench) => {
      const { shown, again } = await runMeasured(bench, pair, ours);
      const serverSays = pair.serverSays ?? pair.says;
      const [oursSays, stockSays] = ours === 'server' ? [serverSays, pair.says] : [pair.says, serverSays];
      check(oursSays.test(shown.ours), `our side does not show ${oursSays}: ${shown.ours.slice(-300)}`);
      check(
        stockSays.test(shown.stock),
        `the stock side does not show ${stockSays}: ${shown.stock.slice(-300)}`,
      );
      const client = ours === 'server' ? shown.stock : shown.ours;
      const line =
        client
          .split('\n')
          .filter((each) => pair.says.test(each))
          .at(-1) ?? '';
      return `${line.trim().replaceAll(/\s+/g, ' ')}${again}`;
    },
  }));
}
