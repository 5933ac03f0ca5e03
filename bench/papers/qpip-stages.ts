/**
 * The stages of a message, tables 2 and 3 of the paper "Queue-Pair IP". Both ends of a connection live in
 * this thread, so that its profile holds every stage of a message, from the post at one
 * end to the completion at the other. Each sample of the profiler counts for the innermost function of its
 * stack that belongs to a stage.
 */
// cspell:ignore onwrite ompleted omplete
import type { Profiler } from 'node:inspector';
import { Session } from 'node:inspector/promises';
import { openRnic } from '../../src/api/environment.ts';
import type { WireName } from '../../src/base/wires.ts';
import { ACCESS, createWorkCompletion, type CompletionQueue, type QueuePair } from '../../src/verbs/index.ts';

const SAMPLE_US = 100;
/** Sends under way. */
const DEPTH = 16;
/** Receives, some of which have been filled and not been posted again. */
const RECEIVES = 64;

/**
 * The stages, in a message's order. `rest` is the event loop, the calls of the system with which it reads,
 * and the program of this file.
 */
const STAGES = ['post', 'segment', 'frame', 'CRC', 'write', 'read', 'parse', 'place', 'complete'] as const;
/** The rows of the tables. */
export const STAGE_NAMES: readonly Stage[] = [...STAGES, 'garbage', 'rest'];
type Stage = (typeof STAGES)[number] | 'idle' | 'rest' | 'garbage';

/**
 * By function and file: the first row that fits. A frame that fits none belongs to its caller, such as
 * copying and what Node's own functions do.
 */
const ATTRIBUTION: readonly (readonly [stage: Stage, file: RegExp, name?: RegExp])[] = [
  ['idle', /^$/, /^\(idle\)$/],
  ['garbage', /^$/, /^\(garbage collector\)$/],
  ['write', /^$|^node:/, /^write|^req\.write|afterWrite|onwrite|WriteWrap/i],
  ['read', /^node:/, /^onStreamRead$|^onread/i],
  ['CRC', /src\/crc32c\/|^wasm:/],
  ['place', /src\/ddp\/(placement|placing-receiver|stag-table)|src\/rdmap\/placed-reads/],
  ['place', /src\/qpip\/receiver/, /^#?place|^scatter|readTarget|takeBack/],
  ['parse', /src\/mpa\/deframer|src\/(ddp|rdmap|qpip)\/receiver|src\/ddp\/wire|src\/stream\//],
  ['frame', /src\/mpa\/|src\/llp\//],
  ['complete', /src\/verbs\/(cq|completion-channel|receive-slots)|src\/queues\/completion/],
  ['complete', /src\/rdmap\/send-completions/],
  [
    'complete',
    /src\/(verbs|rdmap|qpip)\//,
    /[cC]ompleted?$|[cC]ompleteThrough|handleTransmitted|handleTaken/,
  ],
  ['post', /src\/(verbs\/|queues\/work\.)/],
  ['segment', /src\/(ddp\/segmenter|rdmap\/|queues\/|qpip\/sender)/],
  ['write', /src\/(transport|engine|qpip)\//, /write|send|transmit|flush|pump/i],
  ['read', /src\/(transport|engine|qpip)\//],
  ['rest', /bench\//],
];

function stageOf({ functionName, url }: Profiler.ProfileNode['callFrame']): Stage | null {
  // As it was built the same files stand in another folder.
  const path = url.replace('/dist/', '/src/');
  const row = ATTRIBUTION.find(
    ([, file, name]) => file.test(path) && (name === undefined || name.test(functionName)),
  );
  return row?.[0] ?? null;
}

/** Samples of each stage. */
function sharesOf({ nodes }: Profiler.Profile): Map<Stage, number> {
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id])));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const shares = new Map<Stage, number>();
  for (const { id, hitCount = 0 } of nodes) {
    let stage: Stage | null = null;
    for (let at: number | undefined = id; at !== undefined && stage === null; at = parents.get(at)) {
      stage = stageOf(byId.get(at)!.callFrame);
    }
    shares.set(stage ?? 'rest', (shares.get(stage ?? 'rest') ?? 0) + hitCount);
  }
  return shares;
}

interface End {
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
}

/** A connection whose ends are both here, and a function that moves `messages` Sends of `octets`. */
async function pairOf(
  wire: WireName,
  octets: number,
): Promise<{ run: (messages: number) => Promise<void>; close: () => void }> {
  const { device, cm } = openRnic({ wire, engine: 'thread' });
  const pd = device.allocatePd();
  const mr = pd.registerMemory(device.allocateMemory((RECEIVES + 1) * octets), ACCESS.LOCAL_WRITE);
  const make = (): End => {
    const cq = device.createCq(4 * RECEIVES);
    return { cq, qp: pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: RECEIVES, maxSendWr: RECEIVES }) };
  };
  const [sender, receiver] = [make(), make()];
  const receive = (slot: number): void => {
    receiver.qp.postRecv({ wrId: slot, sges: [{ mr, offset: (slot + 1) * octets, length: octets }] });
  };
  for (let slot = 0; slot < RECEIVES; slot++) receive(slot);
  const policy = { framing: 'length' } as const;
  const listener = await cm.listen({ host: '127.0.0.1', port: 0, policy }, (request) => {
    request.setHandler(() => undefined);
    request.accept(receiver.qp);
  });
  const connection = cm.connect(sender.qp, { host: '127.0.0.1', port: listener.address.port, policy });
  await new Promise<void>((resolve) =>
    connection.setHandler(({ type }) => type === 'established' && resolve()),
  );
  let left = 0;
  let arriving = 0;
  let done = (): void => undefined;
  const send = (): void => {
    if (left-- > 0) sender.qp.postSend({ opcode: 'send', sges: [{ mr, length: octets }] });
  };
  onCompletion(sender.cq, () => undefined);
  // The next one when one has arrived: iWARP has no pause for a message without a receive.
  onCompletion(receiver.cq, (wrId) => {
    receive(wrId);
    if (--arriving === 0) done();
    else send();
  });
  const run = async (messages: number): Promise<void> => {
    left = arriving = messages;
    const finished = new Promise<void>((resolve) => (done = resolve));
    for (let i = 0; i < DEPTH; i++) send();
    await finished;
  };
  const close = (): void => {
    listener.close();
    for (const { qp, cq } of [sender, receiver]) {
      qp.destroy();
      cq.destroy();
    }
    mr.deregister();
    pd.deallocate();
  };
  return { run, close };
}

function onCompletion(cq: CompletionQueue, each: (wrId: number) => void): void {
  const out = Array.from({ length: 32 }, createWorkCompletion);
  cq.setHandler(() => {
    do {
      for (let n = cq.poll(out, 32); n > 0; n = cq.poll(out, 32))
        for (let i = 0; i < n; i++) {
          if (out[i]!.status !== 'success') throw new Error(`a request ended with ${out[i]!.status}`);
          each(Number(out[i]!.wrId));
        }
      cq.requestNotify();
    } while (cq.length > 0);
  });
  cq.requestNotify();
}

/** Microseconds that a message takes, and samples by stage. */
async function profiled(
  wire: WireName,
  octets: number,
  messages: number,
): Promise<{ micros: number; shares: Map<Stage, number> }> {
  const { run, close } = await pairOf(wire, octets);
  await run(messages); // warms
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: SAMPLE_US });
  await session.post('Profiler.start');
  const began = performance.now();
  await run(messages);
  const micros = ((performance.now() - began) * 1000) / messages;
  const { profile } = await session.post('Profiler.stop');
  session.disconnect();
  close();
  return { micros, shares: sharesOf(profile) };
}

/** Shares of a message's time in the thread, percent by stage; what the thread was idle is left out. */
export async function stageShares(
  wire: WireName,
  octets: number,
  messages: number,
): Promise<Readonly<Record<string, number>>> {
  const { micros, shares } = await profiled(wire, octets, messages);
  let whole = 0;
  for (const [stage, count] of shares) if (stage !== 'idle') whole += count;
  const percent = STAGE_NAMES.map((name) => [name, (100 * (shares.get(name) ?? 0)) / whole] as const);
  return { ...Object.fromEntries(percent), 'us a message': micros };
}
