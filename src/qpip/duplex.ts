/**
 * A queue pair over plain TCP as a Duplex, for protocols that are written for byte streams: written bytes
 * go out by Sends, and bytes that fill receives are read.
 */
import { Buffer } from 'node:buffer';
import { Duplex } from 'node:stream';
import type { Rnic } from '../api/environment.ts';
import { inThisContext } from '../base/async-context.ts';
import { putBytes } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import type { PassiveConnection } from '../cm/listener.ts';
import type { TargetOptions } from '../cm/target.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import {
  ACCESS,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type WorkCompletion,
} from '../verbs/index.ts';

/** Receives of a stream, and the bytes of each. */
const RECEIVES = 8;
const RECEIVE_BYTES = 65_536;
/** Sends under way: each is a slice of the region that writes are copied into. */
const SENDS = 4;
const SEND_BYTES = 262_144;
/** With a length in front each Send is a message, and the peer's receives are as long as ours. */
const MESSAGE_BYTES = RECEIVE_BYTES;

type Done = (error?: Error | null) => void;

/** One queue pair with its memory. Made by {@link connectDuplex} and {@link acceptDuplex}. */
class QpDuplex extends Duplex {
  readonly #pd: ProtectionDomain;
  readonly #cq: CompletionQueue;
  readonly #qp: QueuePair;
  readonly #inbox: MemoryRegion;
  readonly #outbox: MemoryRegion;
  readonly #out: WorkCompletion[] = [];
  /** Most bytes of one Send. */
  readonly #most: number;
  #connection: CmConnection | null = null;
  /** Slices of the outbox that are free. */
  readonly #slices: number[] = Array.from({ length: SENDS }, (_, i) => i);
  /** The bytes being written: the next piece waits for a slice. */
  #rest: { readonly pieces: Uint8Array[]; readonly done: Done } | null = null;
  /** Receives that the reader has not asked for, in order: they are not posted again before. */
  readonly #full: { readonly slot: number; readonly bytes: number }[] = [];
  #wanted = false;
  #ended = false;
  /** Whether a connection carries the bytes that are written. */
  #carried: 'not yet' | 'yes' | 'ended' = 'not yet';

  /** @internal */
  constructor({ device }: Rnic, framing: ConnectionPolicy['framing'] = 'none') {
    super({ allowHalfOpen: true });
    this.#most = framing === 'none' ? SEND_BYTES : MESSAGE_BYTES;
    this.#pd = device.allocatePd();
    this.#cq = device.createCq(RECEIVES + SENDS);
    this.#qp = this.#pd.createQp({
      sendCq: this.#cq,
      recvCq: this.#cq,
      maxRecvWr: RECEIVES,
      maxSendWr: SENDS,
    });
    this.#inbox = this.#pd.registerMemory(
      device.allocateMemory(RECEIVES * RECEIVE_BYTES),
      ACCESS.LOCAL_WRITE,
    );
    this.#outbox = this.#pd.registerMemory(device.allocateMemory(SENDS * SEND_BYTES), 0);
    this.#cq.setHandler(() => this.#poll());
    this.#cq.requestNotify();
    for (let slot = 0; slot < RECEIVES; slot++) this.#postReceive(slot);
  }

  /** @internal */
  get qp(): QueuePair {
    return this.#qp;
  }

  /** @internal The connection that carries it. */
  carriedBy(connection: CmConnection): void {
    this.#connection = connection;
    connection.setHandler((event) => this.#handle(event));
  }

  #postReceive(slot: number): void {
    this.#qp.postRecv({
      wrId: slot,
      sges: [{ mr: this.#inbox, offset: slot * RECEIVE_BYTES, length: RECEIVE_BYTES }],
    });
  }

  #handle(event: CmEvent): void {
    switch (event.type) {
      case 'established':
        this.#carried = 'yes';
        this.emit('connect');
        this.#send();
        break;
      case 'closing':
        if (event.by !== 'peer') break;
        this.#poll();
        this.#ended = true;
        this.#deliver();
        break;
      case 'disconnected':
        this.#poll();
        this.#ended = true;
        if (event.cause === 'graceful') this.#disconnected();
        else
          this.destroy(
            new IwarpError('ERR_CONNECTION_RESET', `the connection has ended: ${event.cause}`, {
              cause: event.error,
            }),
          );
        break;
      default:
    }
  }

  /** Both directions have ended in order: bytes that the reader has not asked for are still to be read. */
  #disconnected(): void {
    this.#carried = 'ended';
    const rest = this.#rest;
    this.#rest = null;
    rest?.done(notCarried());
    if (this.readableEnded) this.destroy();
    else this.once('end', () => this.destroy());
    this.#deliver();
  }

  #poll(): void {
    if (this.#cq.destroyed) return;
    do {
      for (let n = this.#cq.poll(this.#out, RECEIVES); n > 0; n = this.#cq.poll(this.#out, RECEIVES))
        for (let i = 0; i < n; i++) this.#complete(this.#out[i]!);
      this.#cq.requestNotify();
    } while (this.#cq.length > 0);
    this.#deliver();
    this.#send();
  }

  #complete({ opcode, status, wrId, byteLength }: WorkCompletion): void {
    if (opcode === 'send') this.#slices.push(Number(wrId));
    else if (status === 'success') this.#full.push({ slot: Number(wrId), bytes: byteLength });
  }

  // ------------------------------------------------------------------------------------------------- reading

  override _read(): void {
    this.#wanted = true;
    this.#deliver();
  }

  /** The reader keeps what it is given, so that it gets a copy. */
  #deliver(): void {
    while (this.#wanted) {
      const full = this.#full.shift();
      if (full === undefined) break;
      const at = full.slot * RECEIVE_BYTES;
      const bytes = Buffer.allocUnsafe(full.bytes);
      putBytes(this.#inbox.bytes.subarray(at, at + full.bytes), bytes, 0);
      if (!this.#ended) this.#postReceive(full.slot);
      this.#wanted = this.push(bytes);
    }
    if (this.#ended && this.#full.length === 0 && !this.readableEnded && this.#wanted) {
      this.#wanted = false;
      this.push(null);
    }
  }

  // ------------------------------------------------------------------------------------------------- writing

  override _write(chunk: Uint8Array, _encoding: BufferEncoding, done: Done): void {
    this.#sendAll([chunk], done);
  }

  override _writev(chunks: { readonly chunk: unknown }[], done: Done): void {
    this.#sendAll(
      chunks.map(({ chunk }) => chunk as Uint8Array),
      done,
    );
  }

  #sendAll(pieces: Uint8Array[], done: Done): void {
    if (this.#carried === 'ended') return done(notCarried());
    const rest = { pieces, done };
    this.#rest = rest;
    this.#send();
    if (this.#rest === rest) rest.done = inThisContext(done);
  }

  /** Copy the bytes being written into free slices, as full as they get, and send them. */
  #send(): void {
    while (this.#rest !== null && this.#carried === 'yes' && this.#slices.length > 0) {
      const { pieces, done } = this.#rest;
      const slice = this.#slices.pop()!;
      const begin = slice * SEND_BYTES;
      let length = 0;
      while (pieces.length > 0 && length < this.#most) {
        const first = pieces[0]!;
        const part = first.subarray(0, this.#most - length);
        putBytes(part, this.#outbox.bytes, begin + length);
        length += part.length;
        if (part.length === first.length) pieces.shift();
        else pieces[0] = first.subarray(part.length);
      }
      this.#qp.postSend({ wrId: slice, opcode: 'send', sges: [{ mr: this.#outbox, offset: begin, length }] });
      if (pieces.length > 0) continue;
      this.#rest = null;
      done();
    }
  }

  override _final(done: Done): void {
    this.#connection?.disconnect();
    done();
  }

  override _destroy(error: Error | null, done: Done): void {
    const rest = this.#rest;
    this.#rest = null;
    this.#ended = true;
    this.#connection?.abort();
    this.#qp.destroy();
    this.#cq.destroy();
    this.#inbox.deregister();
    this.#outbox.deregister();
    this.#pd.abandon();
    rest?.done(error ?? new IwarpError('ERR_CONNECTION_CLOSED', 'the stream has been destroyed'));
    done(error);
  }
}

function notCarried(): IwarpError {
  return new IwarpError('ERR_CONNECTION_CLOSED', 'the connection has ended');
}

/** Connect a queue pair of a device with the wire `qpip`; resolves when it is connected. */
export function connectDuplex(
  rnic: Rnic,
  target: TargetOptions & { readonly host: string },
  policy: Partial<ConnectionPolicy> = {},
): Promise<QpDuplex> {
  const duplex = new QpDuplex(rnic, policy.framing);
  return new Promise((resolve, reject) => {
    duplex.once('error', reject).once('connect', () => {
      duplex.off('error', reject);
      resolve(duplex);
    });
    duplex.carriedBy(rnic.cm.connect(duplex.qp, { ...target, policy }));
  });
}

/** Accept a connection that has come to a listener of such a device. */
export function acceptDuplex(rnic: Rnic, request: PassiveConnection): QpDuplex {
  const duplex = new QpDuplex(rnic);
  duplex.carriedBy(request);
  request.accept(duplex.qp);
  return duplex;
}
