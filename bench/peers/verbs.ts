/**
 * This package's stack, through verbs and the connection manager, as perftest uses them: every request names
 * the same memory, a completion asks for the next requests, receives are posted far ahead.
 */
import type { Rnic } from '../../src/api/environment.ts';
import { ACCESS } from '../../src/ddp/stag-table.ts';
import { createWorkCompletion, type CompletionQueue, type WorkCompletion } from '../../src/verbs/cq.ts';
import type { MemoryRegion } from '../../src/verbs/memory.ts';
import type { ProtectionDomain } from '../../src/verbs/pd.ts';
import type { ReceiveWorkRequest, SendWorkRequest } from '../../src/verbs/post.ts';
import type { QueuePair } from '../../src/verbs/qp.ts';
import type { CaseSpec } from '../types.ts';
import { HOST, PingPong, type Place, type Side, type Tally } from './peer.ts';
import { open, policy } from './stack.ts';

const ALL_ACCESS = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE;
/** One read of 64 KiB holds at most some 2,400 messages; receives are posted again before the next. */
const RECEIVES = 4096;
/**
 * As perftest has it for its latency tests: every message takes the next entry, and thousands do not stay in
 * the cache.
 */
const RECEIVES_OF_LATENCY = 512;
/**
 * A worker places messages while the main thread, which gives receives back, may be a slice of the scheduler
 * behind.
 */
const RECEIVES_OF_WORKER = 65_536;
const RECEIVE_BATCH = 64;
const POLL = 64;
const LISTEN_BACKLOG = 1024;
const MIN_SEND_DEPTH = 16;
const CONNECT_BATCH = 50;

const nothing = (): void => undefined;

/**
 * Completions asked for: one in this many requests. perftest's default is one in 100; with few under way each
 * matters.
 */
function completionEvery(spec: CaseSpec): number {
  if (spec.cqMod > 0) return spec.cqMod;
  return Math.min(64, Math.max(1, Math.floor(spec.inFlight / spec.connections / 8)));
}

/** A Write or Read test of latency needs to know when octets have come. */
const watches = (spec: CaseSpec): boolean => spec.test === 'lat' && spec.verb === 'write';

/** The depth of a send queue: at least as many requests as one connection has under way. */
function sendDepth(spec: CaseSpec): number {
  return spec.queue > 0 ? spec.queue : Math.max(MIN_SEND_DEPTH, Math.ceil(spec.inFlight / spec.connections));
}

/** One process's end: any number of queue pairs on one completion queue. */
class End {
  readonly spec: CaseSpec;
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly memory: MemoryRegion;
  readonly qps: QueuePair[] = [];
  readonly #out: WorkCompletion[] = Array.from({ length: POLL }, createWorkCompletion);
  readonly #receives: readonly ReceiveWorkRequest[];
  #owed = 0;
  /** Gets the number of each queue pair whose request has completed. */
  onSent: (qp: number) => void = nothing;
  onReceived: (qp: number) => void = nothing;
  /** After the completions that were there. */
  onPolled: () => void = nothing;

  constructor(spec: CaseSpec, arrived: (() => void) | null) {
    this.spec = spec;
    this.rnic = open(spec, arrived);
    this.pd = this.rnic.device.allocatePd();
    this.cq = this.rnic.device.createCq(1 << 20);
    // Send from the first half, receive into the second.
    const octets = 2 * spec.size;
    // Workers reach only shared memory.
    this.memory = this.pd.registerMemory(
      new Uint8Array(spec.engine === 'worker' ? new SharedArrayBuffer(octets) : new ArrayBuffer(octets)),
      ALL_ACCESS,
    );
    const receive: ReceiveWorkRequest = {
      wrId: -1 >>> 0,
      sges: [{ mr: this.memory, offset: spec.size, length: spec.size }],
    };
    this.#receives = Array.from({ length: RECEIVE_BATCH }, () => receive);
    this.cq.setHandler(() => this.#poll());
    this.cq.requestNotify();
  }

  /** A queue pair with its receives posted. */
  addQp(): QueuePair {
    const { spec, cq } = this;
    const takes = spec.verb === 'send' && (spec.test === 'lat' || this.takesSends);
    const receives =
      spec.test === 'lat'
        ? RECEIVES_OF_LATENCY
        : spec.engine === 'worker' && spec.connections === 1
          ? RECEIVES_OF_WORKER
          : RECEIVES;
    const qp = this.pd.createQp({
      sendCq: cq,
      recvCq: cq,
      maxSendWr: sendDepth(spec),
      maxRecvWr: takes ? receives : 1,
    });
    this.qps.push(qp);
    if (takes) for (let n = 0; n < receives; n += RECEIVE_BATCH) qp.postRecv(this.#receives);
    return qp;
  }

  /** Whether bulk Sends come in here. */
  takesSends = false;

  payloadIn(): number {
    let octets = 0;
    for (const qp of this.qps) octets += qp.counters()?.payloadIn ?? 0;
    return octets;
  }

  close(): void {
    for (const qp of this.qps) if (qp.state === 'rts') qp.modify({ state: 'error' });
  }

  #poll(): void {
    const out = this.#out;
    for (;;) {
      const n = this.cq.poll(out);
      for (let i = 0; i < n; i++) this.#completed(out[i]!);
      if (n > 0) continue;
      this.cq.requestNotify();
      if (this.cq.length === 0) break;
    }
    this.onPolled();
  }

  #completed(wc: WorkCompletion): void {
    if (wc.status === 'flushed') return; // the end
    if (wc.status !== 'success') throw new Error(`${wc.opcode} ended with ${wc.status}`);
    if (wc.wrId !== -1 >>> 0) {
      this.onSent(wc.wrId as number);
      return;
    }
    const at = this.qps.length === 1 ? 0 : this.qps.findIndex((qp) => qp.number === wc.qpNumber);
    this.#repost(this.qps[at]!);
    this.onReceived(at);
  }

  /** Receives are given back in lists. With several queue pairs singly, since the count is one for all. */
  #repost(qp: QueuePair): void {
    if (qp.state !== 'rts') return;
    if (this.qps.length > 1) qp.postRecv(this.#receives[0]!);
    else if (++this.#owed === RECEIVE_BATCH) {
      this.#owed = 0;
      qp.postRecv(this.#receives);
    }
  }
}

// ---------------------------------------------------------------------------------------------------- server

export async function serve(spec: CaseSpec, tally: Tally): Promise<{ place: Place; side: Side }> {
  const watch = { look: nothing };
  const end = new End(spec, watches(spec) ? () => watch.look() : null);
  end.takesSends = true;
  tally.bytes = () => end.payloadIn();
  if (spec.test === 'lat' && spec.verb === 'send') {
    const answer: SendWorkRequest = {
      opcode: 'send',
      wrId: 0,
      sges: [{ mr: end.memory, offset: 0, length: spec.size }],
    };
    end.onReceived = (at) => void end.qps[at]!.postSend(answer);
  }
  const listener = await end.rnic.cm.listen(
    { host: HOST, port: 0, backlog: LISTEN_BACKLOG, policy: policy(spec) },
    (request) => {
      const rkey = new DataView(request.parameters!.privateData.slice().buffer).getUint32(0);
      request.setHandler(nothing);
      const qp = end.addQp();
      if (watches(spec)) watch.look = whenWritten(end, () => postWrite(end, qp, rkey));
      request.accept(qp);
    },
  );
  const close = (): void => {
    end.close();
    listener.close();
  };
  return {
    place: { port: listener.address.port, rkey: end.memory.rkey },
    side: { start: nothing, stop: nothing, close },
  };
}

/** Latency of Writes: the last octet of the receive half shows the peer's Write, as in perftest. */
function whenWritten(end: End, then: () => void): () => void {
  const { bytes } = end.memory;
  let seen = 0;
  return () => {
    const now = bytes[bytes.length - 1]!;
    if (now === seen) return;
    seen = now;
    then();
  };
}

/** One Write into the peer's receive half, its last octet different from that of the one before. */
function postWrite(end: End, qp: QueuePair, rkey: number): void {
  const { memory, spec } = end;
  memory.bytes[spec.size - 1] = (memory.bytes[spec.size - 1]! + 1) & 0xff;
  qp.postSend({
    opcode: 'rdma-write',
    wrId: 0,
    sges: [{ mr: memory, offset: 0, length: spec.size }],
    rkey,
    remoteAddr: memory.addr + BigInt(spec.size),
  });
}

// ---------------------------------------------------------------------------------------------------- client

export async function connect(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  const watch = { look: nothing };
  const end = new End(spec, watches(spec) ? () => watch.look() : null);
  tally.bytes = () => end.payloadIn();
  const about = new Uint8Array(4);
  new DataView(about.buffer).setUint32(0, end.memory.rkey);
  // A few at a time: a thousand start-ups at once take longer than the first of them may.
  for (let left = spec.connections; left > 0; left -= CONNECT_BATCH) {
    await Promise.all(
      Array.from({ length: Math.min(left, CONNECT_BATCH) }, () => connectOne(end, place, about)),
    );
  }
  if (spec.test === 'bw') return bandwidth(end, place, tally);
  const qp = end.qps[0]!;
  const pingPong = new PingPong(latencyStep(end, qp, place));
  if (spec.verb === 'write') watch.look = whenWritten(end, () => pingPong.answered());
  else if (spec.verb === 'send') end.onReceived = () => pingPong.answered();
  else end.onSent = () => pingPong.answered();
  return {
    start: () => pingPong.start(),
    stop: () => pingPong.stop(),
    takeLatency: () => pingPong.take(),
    close: () => end.close(),
  };
}

function connectOne(end: End, place: Place, privateData: Uint8Array): Promise<void> {
  const connection = end.rnic.cm.connect(end.addQp(), {
    host: HOST,
    port: place.port,
    policy: policy(end.spec),
    privateData,
  });
  return new Promise((resolve, reject) => {
    connection.setHandler((event) => {
      if (event.type === 'established') resolve();
      else if (event.type !== 'closing' && event.type !== 'disconnected')
        reject(new Error(`the connection ended with ${event.type}`));
    });
  });
}

function latencyStep(end: End, qp: QueuePair, place: Place): () => void {
  const { spec, memory } = end;
  if (spec.verb === 'write') return () => postWrite(end, qp, place.rkey!);
  const request = bulkRequest(spec, memory, place, 0, true);
  return () => void qp.postSend(request);
}

function bulkRequest(
  spec: CaseSpec,
  mr: MemoryRegion,
  place: Place,
  wrId: number,
  signaled: boolean,
): SendWorkRequest {
  const near = { mr, offset: 0, length: spec.size };
  const far = { rkey: place.rkey!, remoteAddr: mr.addr + BigInt(spec.size) };
  if (spec.verb === 'send') return { opcode: 'send', wrId, signaled, sges: [near] };
  if (spec.verb === 'write') return { opcode: 'rdma-write', wrId, signaled, sges: [near], ...far };
  return {
    opcode: 'rdma-read',
    wrId,
    signaled,
    sges: [{ ...near, offset: spec.size }],
    rkey: place.rkey!,
    remoteAddr: mr.addr,
  };
}

/** Keep the queue pairs filled: for each completion, the next list of requests. */
function bandwidth(end: End, place: Place, tally: Tally): Side {
  const { spec, memory, qps } = end;
  const every = completionEvery(spec);
  const lists = Math.max(1, Math.floor(spec.inFlight / spec.connections / every));
  const batches = qps.map((_qp, wrId) =>
    Array.from({ length: every }, (_, i) => bulkRequest(spec, memory, place, wrId, i === every - 1)),
  );
  const free = qps.map(() => lists);
  let running = false;
  const post = (qp: QueuePair, batch: readonly SendWorkRequest[]): void => {
    if (spec.single) for (const request of batch) qp.postSend(request);
    else qp.postSend(batch);
  };
  const pump = (): void => {
    if (!running) return;
    const began = performance.now();
    for (let at = 0; at < qps.length; at++) {
      for (; free[at]! > 0; free[at]!--) {
        post(qps[at]!, batches[at]!);
        tally.posts += every;
      }
    }
    tally.postMs += performance.now() - began;
  };
  // a message sent once counts as under way for ever
  end.onSent = (at) => void (spec.once ? 0 : free[at]!++);
  end.onPolled = pump;
  return {
    start: () => {
      running = true;
      pump();
    },
    stop: () => (running = false),
    close: () => {
      running = false;
      end.close();
    },
  };
}
