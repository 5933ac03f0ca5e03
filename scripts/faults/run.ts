/** One run of the fault matrix: a program under way, a fault, and an account of every call. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { seededRandom, type RandomU32 } from '../../src/base/random.ts';
import { FAULTS, Path, type Break, type Fault } from './path.ts';
import { loaderFor } from '../loader.ts';
import { freePort } from '../ports.ts';
import { clientOf, HEAD_OCTETS, LIMIT, type App, type Subject } from './subjects.ts';

/** What a run did and how long it took; milliseconds. */
export interface Outcome {
  readonly subject: Subject;
  readonly scenario: string;
  readonly seed: number;
  /** Operations begun. */
  readonly calls: number;
  readonly succeeded: number;
  /** Operations that ended, later than they may. */
  readonly late: number;
  /** Parts of the program in which an operation was late. */
  readonly lateParts: readonly string[];
  /** Operations that never ended, or succeeded and were never carried out. */
  readonly lost: number;
  /** Requests carried out twice. */
  readonly doubled: number;
  /** Replies with other bytes than the request had. */
  readonly wrong: number;
  /** The longest operation, without the time for which this process had no processor. */
  readonly longest: number;
  /** For how long this process waited for one, during the operations. */
  readonly heldUp: number;
  /** From the end of the fault until every part of the program had success again; null if never. */
  readonly again: number | null;
  /** The close of the client. */
  readonly close: number;
}

/** Beyond its limit an operation may take this, in time for which this process had a processor. */
const SLACK = 250;
/** A program that has not come back after this will not. */
const PATIENCE = 10_000;
const HOST = '127.0.0.1';
const SMALL_LOOPS = 4;
const LARGE_OCTETS = 100_000;
/** Of the main thread: nanoseconds at work, nanoseconds in the line for a processor. */
const SCHEDULING = '/proc/self/schedstat';
const SERVER = fileURLToPath(new URL('server.ts', import.meta.url));

/** A server in a separate process. */
interface ServerProcess {
  readonly child: ChildProcess;
  readonly port: number;
}

/**
 * With `port` 0 at one that no other socket gets while it is dead; `around` is a program that starts it, and
 * `file` the server's, which may be plain JavaScript.
 */
export async function startServer(
  subject: Subject,
  host: string,
  port: number,
  ledger: string,
  around: readonly string[] = [],
  file: string = SERVER,
): Promise<ServerProcess> {
  const [command, ...args] = [
    ...around,
    process.execPath,
    ...loaderFor(file),
    file,
    subject,
    host,
    String(port || (await freePort())),
    ledger,
  ];
  const child = spawn(command!, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  return { child, port: Number(/\d+/.exec(String(line))![0]) };
}

/**
 * Milliseconds for which the main thread of this process has waited for a processor so far. A machine that is
 * busy may take it away for seconds: then every timer is late, and that says nothing about the operations
 * that are measured. Time that the thread spends at work itself is not in it. 0 where the system is no Linux.
 */
function waitedForProcessor(): number {
  if (!existsSync(SCHEDULING)) return 0;
  return Number(readFileSync(SCHEDULING, 'latin1').split(' ')[1]) / 1e6;
}

/** Milliseconds, without the time for which this process had no processor. */
const ownTime = (): number => performance.now() - waitedForProcessor();

/** The operations of a program, each timed, and by which parts it is made. */
export class Program {
  readonly #app: App;
  readonly #random: RandomU32;
  readonly #prefix: string;
  #number = 0;
  #running = true;
  readonly #open = new Set<Promise<void>>();
  /** When the latest operation began that each part has had success with. */
  readonly #success = new Map<string, number>();
  readonly #loops: Promise<void>[] = [];
  readonly succeededIds: Set<string> = new Set();
  calls = 0;
  succeeded = 0;
  /** Parts of the program in which an operation was late. */
  readonly #lateParts: Set<string> = new Set();
  late = 0;
  wrong = 0;
  longest = 0;
  /** Milliseconds without a processor; known when it has been stopped. */
  heldUp = 0;

  constructor(app: App, random: RandomU32, prefix: string) {
    this.#app = app;
    this.#random = random;
    this.#prefix = prefix;
  }

  start(): void {
    this.heldUp = -waitedForProcessor();
    for (let i = 0; i < SMALL_LOOPS; i++)
      this.#loop(`small ${i}`, () => this.#request(1 + (this.#random() % 1000), i % 2 === 0));
    this.#loop('large', () => this.#request(LARGE_OCTETS, true));
    for (const [name, work] of Object.entries(this.#app.others)) this.#loop(name, work);
  }

  #loop(name: string, work: () => Promise<unknown>): void {
    this.#success.set(name, -1);
    const loop = async (): Promise<void> => {
      while (this.#running) {
        const began = performance.now();
        if (await this.#timed(name, work)) this.#success.set(name, began);
        await pause(2 + (this.#random() % 8));
      }
    };
    this.#loops.push(loop());
  }

  /** True if it succeeded. It is never waited for longer than it may take. */
  async #timed(name: string, work: () => Promise<unknown>): Promise<boolean> {
    const began = ownTime();
    this.calls++;
    let ok = false;
    const call = work().then(
      () => void (ok = true),
      () => undefined,
    );
    this.#open.add(call);
    void call.then(() => this.#open.delete(call));
    let took = 0;
    do {
      await Promise.race([call, pause(LIMIT + SLACK - took, undefined, { ref: false })]);
      took = ownTime() - began;
    } while (this.#open.has(call) && took < LIMIT + SLACK);
    this.longest = Math.max(this.longest, took);
    if (took >= LIMIT + SLACK) {
      this.late++;
      this.#lateParts.add(name);
    }
    if (ok) this.succeeded++;
    return ok;
  }

  async #request(octets: number, repeat: boolean): Promise<void> {
    const id = `${this.#prefix}-${this.#number++}-${repeat ? 'r' : 'o'}`;
    const body = Buffer.alloc(HEAD_OCTETS + octets, this.#number & 0xff);
    body.write(id.padEnd(HEAD_OCTETS), 'latin1');
    const reply = await this.#app.call(body, repeat);
    this.succeededIds.add(id);
    if (Buffer.compare(reply, body) !== 0) this.wrong++;
  }

  /**
   * Milliseconds until each part has succeeded with an operation begun since `from`; null if never. Time in
   * which this process waits for a processor does not count for the patience: the program waits as well.
   */
  async again(from: number): Promise<number | null> {
    const end = ownTime() + PATIENCE;
    while (ownTime() < end) {
      if ([...this.#success.values()].every((began) => began >= from)) return performance.now() - from;
      await pause(5);
    }
    return null;
  }

  get lateParts(): string[] {
    return [...this.#lateParts];
  }

  /** Begin no more operations; resolves with the number of those that never ended. */
  async stop(): Promise<number> {
    this.#running = false;
    await Promise.all(this.#loops);
    await Promise.race([Promise.all(this.#open), pause(2000, undefined, { ref: false })]);
    this.heldUp += waitedForProcessor();
    return this.#open.size;
  }
}

/** A run's parts, as its scenario uses them. */
interface Stage {
  readonly subject: Subject;
  readonly ledger: string;
  readonly random: RandomU32;
  /** The server's program. */
  readonly file: string;
  server: ServerProcess;
  readonly path: Path;
  program: Program;
  app: App;
}

/** Break things; resolves with the time at which they are whole again. */
type Scenario = (stage: Stage) => Promise<number>;

const between = (random: RandomU32, least: number, most: number): number =>
  least + (random() % (most - least));

function breakAt(stage: Stage, fault: Fault, least: number, most: number): Promise<void> {
  const at: Break = {
    fault,
    from: stage.random() % 2 === 0 ? 'client' : 'server',
    after: between(stage.random, least, most),
  };
  return stage.path.break(at);
}

/** Bytes into a connection, or into what follows, where a phase begins and ends. */
const PHASES: Readonly<Record<string, (stage: Stage, fault: Fault) => Promise<void>>> = {
  'start-up': async (stage, fault) => {
    const broken = breakAt(stage, fault, 0, 40);
    begin(stage);
    await broken;
  },
  'first exchange': async (stage, fault) => {
    const broken = breakAt(stage, fault, 40, 500);
    begin(stage);
    await broken;
  },
  'requests under way': async (stage, fault) => {
    begin(stage);
    await stage.program.again(performance.now());
    await breakAt(stage, fault, 1, 300_000);
  },
  idle: async (stage, fault) => {
    stage.app = clientOf(stage.subject, HOST, stage.path.port);
    await pause(between(stage.random, 100, 300));
    await breakAt(stage, fault, 0, 1);
    stage.program = programOf(stage);
    stage.program.start();
  },
  close: async (stage, fault) => {
    begin(stage);
    await stage.program.again(performance.now());
    const broken = breakAt(stage, fault, 0, 60);
    const closing = stage.app.close();
    await Promise.race([broken, closing]);
    await closing;
    await stage.program.stop();
    begin(stage);
  },
};

let programs = 0;
const programOf = (stage: Stage): Program => new Program(stage.app, stage.random, `${programs++}`);

function begin(stage: Stage): void {
  stage.app = clientOf(stage.subject, HOST, stage.path.port);
  stage.program = programOf(stage);
  stage.program.start();
}

const ofPath = Object.keys(PHASES).flatMap((phase) =>
  FAULTS.map((fault): [string, Scenario] => [
    `${fault}, ${phase}`,
    async (stage) => {
      await PHASES[phase]!(stage, fault);
      return performance.now();
    },
  ]),
);

/** Faults by name, in the order of the table. A dead path is in `dead-path.ts`: it needs namespaces. */
export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  ...Object.fromEntries(ofPath),
  SIGSTOP: async (stage) => {
    begin(stage);
    await stage.program.again(performance.now());
    stage.server.child.kill('SIGSTOP');
    await pause(between(stage.random, 300, 2500));
    stage.server.child.kill('SIGCONT');
    return performance.now();
  },
  'kill -9': async (stage) => {
    begin(stage);
    await stage.program.again(performance.now());
    const { child, port } = stage.server;
    child.kill('SIGKILL');
    await once(child, 'exit');
    await pause(between(stage.random, 0, 1000));
    stage.server = await startServer(stage.subject, HOST, port, stage.ledger, [], stage.file);
    return performance.now();
  },
};

/** Requests that were carried out more than once, and successes that were never carried out. */
function account(
  ledger: string,
  succeeded: ReadonlySet<string>,
): { readonly doubled: number; readonly missing: number } {
  const times = new Map<string, number>();
  // There is no ledger where nothing has been carried out.
  const done = existsSync(ledger) ? readFileSync(ledger, 'latin1') : '';
  for (const id of done.split('\n')) times.set(id, (times.get(id) ?? 0) + 1);
  times.delete('');
  return {
    doubled: [...times.values()].filter((count) => count > 1).length,
    missing: [...succeeded].filter((id) => !times.has(id)).length,
  };
}

/** Stop the program, close its client, and sum up. */
export async function conclude(
  { program, app }: { readonly program: Program; readonly app: App },
  ledger: string,
  about: Pick<Outcome, 'subject' | 'scenario' | 'seed' | 'again'>,
): Promise<Outcome> {
  const unended = await program.stop();
  const began = performance.now();
  await app.close();
  const close = performance.now() - began;
  const { doubled, missing } = account(ledger, program.succeededIds);
  const { calls, succeeded, late, lateParts, wrong, longest, heldUp } = program;
  return {
    ...about,
    calls,
    succeeded,
    late,
    lateParts,
    lost: unended + missing,
    doubled,
    wrong,
    longest,
    heldUp,
    close,
  };
}

/** A folder for the ledger of a run; call `remove` at the end. */
export function ledgerFile(): { readonly ledger: string; readonly remove: () => void } {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-faults-'));
  return { ledger: join(folder, 'ledger'), remove: () => rmSync(folder, { recursive: true, force: true }) };
}

export async function run(
  subject: Subject,
  scenario: string,
  seed: number,
  file: string = SERVER,
): Promise<Outcome> {
  const random = seededRandom(seed);
  const { ledger, remove } = ledgerFile();
  const server = await startServer(subject, HOST, 0, ledger, [], file);
  const path = await new Path(server.port, HOST).listen(HOST);
  const stage = { subject, ledger, random, server, path, file } as Stage;
  try {
    const whole = await SCENARIOS[scenario]!(stage);
    const again = await stage.program.again(whole);
    return await conclude(stage, ledger, { subject, scenario, seed, again });
  } finally {
    path.close();
    stage.server.child.kill('SIGKILL');
    remove();
  }
}
