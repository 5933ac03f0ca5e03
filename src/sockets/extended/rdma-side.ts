/**
 * The RDMA half of an extended socket: a queue pair with its memory, posts and completions. It is made with
 * the first call that needs it, which may come before the switch: receives that the peer's first messages
 * take, and memory whose ticket crosses as plain bytes.
 */
import { attemptError, closeError } from '../../api/errors.ts';
import { rightsOf, type PeerAccess } from '../../api/local-memory.ts';
import { checkRemote, RemoteBuffer } from '../../api/remote-buffer.ts';
import { registrarFor, type Local, type TransientRegistrar } from '../../api/transient-registrar.ts';
import { isShared, putBytes } from '../../base/copy.ts';
import { checkBytes, checkInteger, IwarpError, show } from '../../base/errors.ts';
import type { CmConnection, CmEvent } from '../../cm/index.ts';
import {
  ACCESS,
  createWorkCompletion,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type SendWorkRequest,
  type WorkCompletion,
} from '../../verbs/index.ts';
import { Completions, type ExtendedCompletion, type ExtendedOperation } from './completions.ts';
import type { RdmaModePlan } from './options.ts';

/** Reads that a connection may have outstanding in each direction. */
const READ_DEPTH = 16;
/** Completions that one look at the queue takes. */
const BATCH = 64;
/** Number of the empty Write by which an initiator makes itself heard; it belongs to no post. */
const FIRST_WORD = 0;
/** Pieces of one post. */
const MOST_PIECES = 16;
/**
 * Messages up to this size go into the queue entry: below, the registration of each piece costs more than the
 * copy (`4 x 64` of bench/extended.ts).
 */
const INLINE_OCTETS = 512;

/** A post under way. */
interface Post {
  /** Null: a promise is settled, and nothing is reported. */
  readonly id: number | null;
  readonly operation: ExtendedOperation;
  readonly length: number;
  readonly locals: readonly Local[];
  readonly settle: ((status: WorkCompletion['status']) => void) | null;
}

/** The calls that the RDMA half makes. */
interface RdmaSideHandler {
  established(privateData: Uint8Array): void;
  /** The connection has ended, with an error unless it was closed in order. All posts have completed. */
  ended(error: IwarpError | undefined): void;
}

export class RdmaSide {
  readonly plan: RdmaModePlan;
  readonly completions: Completions = new Completions();
  readonly #handler: RdmaSideHandler;
  readonly #pd: ProtectionDomain;
  readonly #cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly #registrar: TransientRegistrar;
  /** Where the pieces of a short message are put together. */
  readonly #inline: Uint8Array;
  readonly #regions = new Map<number, MemoryRegion>();
  readonly #posts = new Map<number, Post>();
  readonly #out: WorkCompletion[] = Array.from({ length: BATCH }, createWorkCompletion);
  /** Promises of posts that failed: their errors name the end of the connection as the cause. */
  readonly #failed: ((cause: IwarpError) => void)[] = [];
  #connection: CmConnection | null = null;
  #next = FIRST_WORD + 1;
  #sends = 0;
  #receives = 0;
  #error: IwarpError | undefined;
  #over = false;

  constructor(plan: RdmaModePlan, handler: RdmaSideHandler) {
    const { depth, rnic } = plan;
    const { device } = rnic;
    const { maxInline, maxSge } = device.limits;
    const pieces = Math.min(MOST_PIECES, maxSge);
    this.#inline = new Uint8Array(Math.min(INLINE_OCTETS, maxInline));
    this.plan = plan;
    this.#handler = handler;
    this.#pd = device.allocatePd();
    let cq: CompletionQueue | null = null;
    try {
      this.#cq = cq = device.createCq(2 * depth + 2);
      this.qp = this.#pd.createQp({
        sendCq: this.#cq,
        recvCq: this.#cq,
        maxSendWr: depth + 1,
        maxRecvWr: depth,
        maxSendSge: pieces,
        maxRecvSge: pieces,
        maxInline: this.#inline.length,
        ird: Math.min(READ_DEPTH, device.limits.maxQpRdAtom),
        ord: Math.min(READ_DEPTH, device.limits.maxQpInitRdAtom),
      });
    } catch (error) {
      cq?.destroy();
      this.#pd.deallocate();
      throw error;
    }
    this.#registrar = registrarFor(this.#pd);
    this.#cq.setHandler(() => this.#look());
    this.#cq.requestNotify('next');
  }

  /** The error that the connection ended with. */
  get error(): IwarpError | undefined {
    return this.#error;
  }

  /** Posts that have not completed. */
  get pending(): number {
    return this.#posts.size;
  }

  // -------------------------------------------------------------------------------------------------- memory

  register(memory: ArrayBufferView, access: PeerAccess): RemoteBuffer {
    const region = this.#pd.registerMemory(memory, rightsOf(access), { queuePair: this.qp });
    this.#regions.set(region.rkey, region);
    return RemoteBuffer.of(region);
  }

  deregister(ticket: RemoteBuffer): void {
    const { rkey } = checkRemote('ticket', ticket);
    const region = this.#regions.get(rkey);
    if (region === undefined)
      throw new IwarpError('ERR_INVALID_REGION', 'ticket: no memory of this socket is registered under it');
    this.#regions.delete(rkey);
    region.deregister();
  }

  // --------------------------------------------------------------------------------------------------- posts

  receive(views: readonly Uint8Array[], id: number): void {
    const { depth } = this.plan;
    if (this.#receives + this.completions.unreported >= depth) this.#full('receives', depth);
    const locals = this.#lend(views, ACCESS.LOCAL_WRITE);
    const wrId = this.#next++;
    try {
      this.qp.postRecv({ wrId, sges: locals.map(({ sge }) => sge) });
    } catch (error) {
      giveBack(locals);
      throw error;
    }
    this.#receives++;
    this.#add(wrId, { id, operation: 'receive', length: 0, locals, settle: null });
  }

  send(views: readonly Uint8Array[], id: number): void {
    this.#post({ opcode: 'send' }, views, 0, { id, operation: 'send', settle: null });
  }

  /** Write `views` to the start of the peer's memory; without `id`, `settle` gets the status. */
  put(views: readonly Uint8Array[], remote: RemoteBuffer, how: Pick<Post, 'id' | 'settle'>): void {
    checkLength(views, checkRemote('remote', remote));
    const { rkey, at } = remote;
    this.#post({ opcode: 'rdma-write', rkey, remoteAddr: at }, views, 0, { ...how, operation: 'put' });
  }

  /** Read into `view` from the start of the peer's memory. */
  get(view: Uint8Array, remote: RemoteBuffer, how: Pick<Post, 'id' | 'settle'>): void {
    checkLength([view], checkRemote('remote', remote));
    const request = { opcode: 'rdma-read' as const, rkey: remote.rkey, remoteAddr: remote.at };
    this.#post(request, [view], ACCESS.LOCAL_WRITE, { ...how, operation: 'get' });
  }

  /** A promise of one post. */
  promised(
    begin: (settle: NonNullable<Post['settle']>) => void,
    operation: ExtendedOperation,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      begin((status) => {
        if (status === 'success') resolve();
        else
          this.#failed.push((cause) =>
            reject(
              new IwarpError('ERR_WORK_COMPLETION', `${operation} ended with status ${status}`, { cause }),
            ),
          );
      });
    });
  }

  #post(
    request: SendWorkRequest,
    views: readonly Uint8Array[],
    access: number,
    post: Pick<Post, 'id' | 'operation' | 'settle'>,
  ): void {
    const { depth } = this.plan;
    if (this.#sends + this.completions.unreported >= depth) this.#full('posts', depth);
    const length = octetsOf(views);
    const wrId = this.#next++;
    const isShort = length <= this.#inline.length && request.opcode !== 'rdma-read';
    const locals = isShort ? [] : this.#lend(views, access);
    const payload = isShort ? { inline: this.#together(views) } : { sges: locals.map(({ sge }) => sge) };
    try {
      this.qp.postSend({ ...request, wrId, ...payload } as SendWorkRequest);
    } catch (error) {
      giveBack(locals);
      throw error;
    }
    this.#sends++;
    this.#add(wrId, { ...post, length, locals });
  }

  #together(views: readonly Uint8Array[]): Uint8Array {
    let end = 0;
    for (const view of views) {
      putBytes(view, this.#inline, end);
      end += view.length;
    }
    return this.#inline.subarray(0, end);
  }

  #add(wrId: number, post: Post): void {
    this.#posts.set(wrId, post);
    if (post.id !== null) this.completions.posted(post.id);
  }

  #full(what: string, depth: number): never {
    throw new IwarpError(
      'ERR_QUEUE_FULL',
      `${depth} ${what} wait to complete, to be polled or to be awaited: poll, or give a larger depth`,
    );
  }

  #lend(views: readonly Uint8Array[], access: number): Local[] {
    const locals: Local[] = [];
    try {
      for (const view of views) if (view.length > 0) locals.push(this.#registrar.lend(view, access));
    } catch (error) {
      giveBack(locals);
      throw error;
    }
    return locals;
  }

  // ---------------------------------------------------------------------------------------------- connection

  attach(connection: CmConnection): void {
    this.#connection = connection;
    connection.setHandler((event) => this.#handle(event));
  }

  get connection(): CmConnection | null {
    return this.#connection;
  }

  #handle(event: CmEvent): void {
    switch (event.type) {
      case 'established':
        this.#established(event.negotiated.rtr !== null);
        this.#handler.established(event.parameters.privateData);
        break;
      case 'rejected':
      case 'connect-error':
      case 'unreachable':
      case 'address-error':
        this.#error ??= attemptError(event);
        break;
      case 'disconnected':
        if (event.cause !== 'graceful') this.#error ??= closeError(event.cause, event.error, event.terminate);
        this.#end();
        break;
      default:
    }
  }

  #established(hasRtr: boolean): void {
    // MPA-028: the responder stays silent until the initiator's first FPDU.
    if (!hasRtr && this.#connection!.role === 'active')
      this.qp.postSend({ wrId: FIRST_WORD, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
  }

  #end(): void {
    if (this.#over) return;
    this.collect();
    this.release();
    this.#handler.ended(this.#error);
  }

  /** Give everything back. Posts that have not completed are reported as flushed. */
  release(): void {
    if (this.#over) return;
    this.#over = true;
    for (const wrId of [...this.#posts.keys()]) this.#complete(wrId, 'flushed', 0);
    const cause = this.#error ?? new IwarpError('ERR_CONNECTION_CLOSED', 'the connection has been closed');
    for (const reject of this.#failed.splice(0)) reject(cause);
    this.qp.destroy();
    this.#cq.destroy();
    this.#registrar.close();
    for (const region of this.#regions.values()) if (!region.deregistered) region.deregister();
    this.#regions.clear();
    this.#pd.abandon();
  }

  // --------------------------------------------------------------------------------------------- completions

  /** VERBS-118: collect until empty, arm, look again. */
  #look(): void {
    do {
      this.collect();
      if (this.#over || this.#cq.destroyed) return;
      this.#cq.requestNotify('next');
    } while (this.#cq.length > 0);
  }

  collect(): void {
    if (this.#over) return;
    for (;;) {
      const n = this.#cq.poll(this.#out, BATCH);
      for (let i = 0; i < n; i++) {
        const { wrId, status, byteLength } = this.#out[i]!;
        this.#complete(wrId as number, status, byteLength);
      }
      if (n < BATCH || this.#over) return;
    }
  }

  #complete(wrId: number, status: WorkCompletion['status'], octets: number): void {
    const post = this.#posts.get(wrId);
    if (post === undefined) return; // the first word
    this.#posts.delete(wrId);
    const { id, operation, locals, settle } = post;
    const isReceive = operation === 'receive';
    const ok = status === 'success';
    if (isReceive) this.#receives--;
    else this.#sends--;
    if (isReceive && ok) scatter(locals, octets, this.#registrar);
    for (const { cleanup } of locals) cleanup?.(ok && operation === 'get');
    if (settle !== null) settle(status);
    if (id === null) return;
    const length = isReceive ? (ok ? octets : 0) : post.length;
    this.completions.add({ id, operation, length, status } satisfies ExtendedCompletion);
  }
}

/** Memory that only this thread reaches gets the bytes that came, and keeps its others. */
function scatter(locals: readonly Local[], octets: number, { inThread }: TransientRegistrar): void {
  if (inThread) return;
  let left = octets;
  for (const { bytes, sge, length } of locals) {
    const count = Math.min(left, length);
    if (!isShared(bytes) && count > 0 && bytes.length >= count)
      putBytes(sge.mr.bytes.subarray(0, count), bytes, 0);
    left -= count;
  }
}

function giveBack(locals: readonly Local[]): void {
  for (const { cleanup } of locals) cleanup?.(false);
}

function octetsOf(views: readonly Uint8Array[]): number {
  let octets = 0;
  for (const { length } of views) octets += length;
  return octets;
}

function checkLength(views: readonly Uint8Array[], remote: RemoteBuffer): void {
  const octets = octetsOf(views);
  if (octets > remote.length)
    throw new IwarpError(
      'ERR_OUT_OF_RANGE',
      `${octets} bytes of local memory pass the peer's memory of ${remote.length} bytes`,
    );
}

/** Throws ERR_INVALID_ARGUMENT unless it is a view, or a list of views; returns the list. */
export function checkViews(name: string, views: unknown): readonly Uint8Array[] {
  if (ArrayBuffer.isView(views)) return [checkBytes(name, views)];
  if (!Array.isArray(views))
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name} must be an ArrayBufferView or an array of them, got ${show(views)}`,
    );
  if (views.length > MOST_PIECES)
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `${name} has ${views.length} pieces, above the limit of ${MOST_PIECES}`,
    );
  return views.map((view, i) => checkBytes(`${name}[${i}]`, view as ArrayBufferView));
}

/** Throws ERR_INVALID_ARGUMENT unless it is the number of a post. */
export function checkId(id: unknown): number {
  return checkInteger('id', id, 0, Number.MAX_SAFE_INTEGER);
}
