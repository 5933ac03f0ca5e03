/**
 * One SDP connection on a queue pair, as a `ByteChannel`: its set-up by private data, its life, and what
 * arrives. source.ts decides which message is sent, sink.ts works on those that arrive, transmit.ts sends.
 */
import { inThisContext, type AsyncContext } from '../base/async-context.ts';
import type { Rnic } from '../api/environment.ts';
import { attemptError, closeError } from '../api/errors.ts';
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { IwarpError } from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import type {
  ByteChannel,
  ChannelHandler,
  ChannelState,
  OwnedMemory,
  OwnedWrite,
} from '../sockets/byte-channel.ts';
import type { Pieces } from '../sockets/pieces.ts';
import type { PortAddress } from '../transport/port.ts';
import { createWorkCompletion, type WorkCompletion } from '../verbs/cq.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { Arrivals } from './arrivals.ts';
import { FIRST_BUFFERS, slotOf } from './buffers.ts';
import { ahead } from './credits.ts';
import { sdpSettings, type SdpOptions, type SdpSettings } from './options.ts';
import { Sink } from './sink.ts';
import { blockOf, Source, type Block } from './source.ts';
import { SDP_TABLE, type SdpInput, type SdpState } from './states.ts';
import { Calls, waitForPeer } from './touch-sync.ts';
import { Transmitter, type TransmitterOwner } from './transmit.ts';
import {
  decodeHelloAck,
  encodeHello,
  encodeHelloAck,
  FLAG,
  MID,
  VERSION,
  type Hello,
  type HelloAck,
} from './wire.ts';

const MAX_PROBE_DELAY = 0x7fff_ffff;
/** How long an AbortConn may take to leave, and how long the other side of the end may. */
const ABORT_MS = 1000;
/** How long the connection waits for the peer's DisConn: a minute, as for the FIN of a TCP peer. */
const LINGER_MS = 60_000;
/** An address in a Hello, where it is informative only. */
const UNKNOWN = new Uint8Array(16);

/** The Sockets Direct Protocol as a channel of byte streams. */
export class SdpChannel implements ByteChannel, OwnedMemory, TransmitterOwner {
  readonly #handler: ChannelHandler;
  readonly #scheduler: Scheduler;
  readonly #settings: SdpSettings;
  readonly #out: Transmitter;
  readonly #wc = [createWorkCompletion()];
  readonly #source: Source;
  readonly #sink: Sink;
  readonly #arrivals: Arrivals;
  readonly #onNotify = (): void => this.#poll();
  #connection: CmConnection | null = null;
  #peer: Hello | HelloAck | null = null;
  #state: SdpState = SDP_TABLE.initial;
  #failure: IwarpError | null = null;
  /** The peer has aborted the connection, or that has refused a request. */
  #broken: IwarpError | null = null;
  /**
   * At the end of the connection: the peer had ended its direction, and of ours at most our own end had still
   * to go. A peer may leave without that: nothing is lost, and it is no error, as in node:net.
   */
  #quiet = false;
  #aborted = false;
  /** AbortConn waits for a credit. */
  #abortWaits = false;
  #left = false;
  #over = false;
  #opened = false;
  #news = false;
  #ended = false;
  #interrupted = false;
  /** MPA-028: a responder sends nothing before the initiator's first FPDU. */
  #mayTalk = false;
  #disconn: { mseq: number | null; done: boolean } | null = null;
  #ending = false;
  #onDisconn: (() => void)[] = [];
  readonly #early: Parameters<Arrivals['message']>[] = [];
  readonly #alarm: Alarm;
  readonly #calls = new Calls();
  /** We announce copy-on-write: in front of MPA nothing may stand behind Hello. */
  readonly #copies: boolean;

  constructor(rnic: Rnic, options: SdpOptions, handler: ChannelHandler) {
    this.#handler = handler;
    this.#scheduler = rnic.scheduler;
    this.#alarm = new Alarm(rnic.scheduler);
    this.#settings = sdpSettings(options);
    this.#copies = options.placement !== 'streaming';
    this.#out = new Transmitter(rnic, this.#settings, this);
    this.#source = new Source(this.#out);
    this.#sink = new Sink(this.#out, () => (this.#news = true));
    const { size } = this.#settings.privateBuffers;
    this.#arrivals = new Arrivals(this, this.#out, this.#source, this.#sink, size);
    this.#out.cq.handleIn(null, this.#onNotify);
    this.#out.cq.requestNotify();
  }

  get qp(): QueuePair {
    return this.#out.qp;
  }

  // --------------------------------------------------------------------------------------------- the set-up

  get depth(): number {
    const { maxQpRdAtom, maxQpInitRdAtom } = this.qp.pd.device.limits;
    return Math.min(this.#settings.maxAdverts, maxQpRdAtom, maxQpInitRdAtom);
  }

  /** Private data: Hello of the side that connects, HelloAck of the side that is connected to. */
  get connectionData(): Uint8Array {
    const { maxAdverts, privateBuffers } = this.#settings;
    const { size: localSize } = this.#out.buffers;
    const [bufs, copyOnWrite] = [FIRST_BUFFERS, this.#copies];
    if (this.#peer !== null) {
      const { version } = this.#peer;
      return encodeHelloAck({
        version,
        family: 4,
        invalidates: true,
        maxAdverts,
        localSize,
        bufs,
        copyOnWrite,
      });
    }
    return encodeHello({
      version: VERSION,
      family: 4,
      invalidates: true,
      maxAdverts,
      desiredSize: privateBuffers.size,
      localSize,
      port: 0,
      source: UNKNOWN,
      destination: UNKNOWN,
      bufs,
      copyOnWrite,
    });
  }

  /** HelloAck for a Hello that has come in front of the MPA Request. */
  answer(hello: Hello): Uint8Array {
    this.#peer = hello;
    return this.connectionData;
  }

  /** Use this connection; `peer` is known on the accepting side, and where Hello came in front of MPA. */
  use(connection: CmConnection, peer: Hello | HelloAck | null): void {
    this.#connection = connection;
    this.#peer = peer;
    this.#out.cq.handleIn(connection.asyncContext, this.#onNotify);
    connection.setHandler((event) => this.#handleEvent(event));
  }

  #established(privateData: Uint8Array, rtr: boolean): void {
    if (this.#state !== 'opening' || this.#aborted) return;
    const peer = this.#peer ?? decodeHelloAck(privateData, VERSION >> 4);
    if (typeof peer === 'string') {
      this.abort(new IwarpError('ERR_NOT_SUPPORTED', `the peer does not speak SDP: ${peer}`));
      return;
    }
    const active = this.#connection!.role === 'active';
    this.#peer = peer;
    this.#out.begin(peer, this.#copies);
    this.#step('hello-ack');
    this.#mayTalk = active || rtr;
    // A11: the first FPDU that lets the other side speak.
    if (active && !rtr) this.#out.update();
    this.#opened = true;
    this.#poll();
  }

  #step(input: SdpInput): void {
    this.#state = nextState(SDP_TABLE, this.#state, input, this);
  }

  // ------------------------------------------------------------------------------------------ ByteChannel

  get state(): ChannelState {
    if (this.#state === 'opening' || this.#state === 'closed') return this.#state;
    return this.#left ? 'closing' : 'open';
  }

  get localAddress(): PortAddress | undefined {
    return this.#connection?.localAddress;
  }

  get remoteAddress(): PortAddress | undefined {
    return this.#connection?.remoteAddress;
  }

  get asyncContext(): AsyncContext | undefined {
    return this.#connection?.asyncContext;
  }

  get tls(): ByteChannel['tls'] {
    return this.#connection?.tls;
  }

  get drained(): boolean {
    return (this.#ended || this.#state === 'closed') && !this.#sink.readable;
  }

  get refused(): boolean {
    return this.#state === 'closed' || this.#aborted;
  }

  get readable(): boolean {
    return this.#sink.readable;
  }

  read(max: number): Buffer | null {
    return this.#sink.read(max);
  }

  readInto(place: Uint8Array): number {
    return this.#sink.readInto(place);
  }

  write(pieces: Pieces): number {
    if (this.state !== 'open' || this.#disconn !== null) return 0;
    this.#arrivals.askSize(pieces.left);
    return this.#source.write(pieces);
  }

  finish(_how: 'shutdown' | 'disconnect', done: () => void): void {
    if (this.state !== 'open' || this.#disconn?.done === true) {
      done();
      return;
    }
    this.#onDisconn.push(done);
    if (this.#disconn !== null) return;
    this.#disconn = { mseq: null, done: false };
    this.#step('end');
    this.#tryEnd();
  }

  /** DisConn leaves behind everything that was written, and when no SrcAvail is unanswered (A47). */
  #tryEnd(): void {
    const disconn = this.#disconn;
    if (disconn === null || disconn.mseq !== null || !this.#source.idle || this.#ending) return;
    this.#ending = true;
    this.#out.control(
      MID.DISCONN,
      undefined,
      (mseq) => (disconn.mseq = mseq),
      () => {
        disconn.done = true;
        for (const done of this.#onDisconn.splice(0)) done();
        this.#checkOver();
      },
    );
    this.#source.end(false);
  }

  /** The peer has acted on our DisConn. */
  get #isHeard(): boolean {
    const mseq = this.#disconn?.mseq ?? null;
    return mseq !== null && ahead(this.#out.acked, mseq) >= 0;
  }

  /** Both sides have said their last: the one whose DisConn has been acted on ends the connection. */
  #checkOver(): void {
    if (this.#state !== 'closing' || this.#disconn?.done !== true || this.#left) return;
    const { role } = this.#connection!;
    if (this.#isHeard) this.#leave();
    else if (!this.#alarm.isSet || role === 'active')
      this.#alarm.set(role === 'active' ? ABORT_MS : LINGER_MS, () => this.#leave());
  }

  #leave(): void {
    if (this.#state === 'closed' || this.#left) return;
    this.#left = true;
    this.#alarm.stop();
    if (this.#connection === null) this.#closed();
    else this.#connection.disconnect();
  }

  probe(enable: boolean, delay: number): boolean {
    return this.#connection?.setKeepAlive(enable, Math.min(Math.floor(delay), MAX_PROBE_DELAY)) === true;
  }

  keepAlive(): void {
    if (this.state === 'open') this.#out.probe();
  }

  setRef(on: boolean): void {
    if (on) this.#connection?.ref();
    else this.#connection?.unref();
  }

  close(): void {
    // An abort has its own time limit, which a stream that is destroyed behind it does not lengthen.
    if (this.#state === 'closed' || this.#left || this.#aborted) return;
    if (this.#state === 'opening') {
      this.abort();
      return;
    }
    this.#arrivals.drop();
    this.finish('disconnect', () => undefined);
    if (!this.#left) this.#alarm.set(LINGER_MS, () => this.#leave());
  }

  abort(error?: IwarpError): void {
    if (this.#state === 'closed' || this.#aborted) return;
    this.#aborted = true;
    if (error !== undefined) this.#failure ??= error;
    if (this.#connection === null) {
      this.#scheduler.defer(inThisContext(() => this.#closed()));
      return;
    }
    const connection = this.#connection;
    if (this.#state === 'opening' || this.#left || !this.#out.hasRoom(1)) {
      connection.abort();
      return;
    }
    this.#alarm.set(ABORT_MS, () => connection.abort());
    this.#abortWaits = true;
    this.#sayAbort();
  }

  /** A19: AbortConn waits for a credit, a second at most; without it the transport is reset alone. */
  #sayAbort(): void {
    if (this.#out.credits.available < 1) return;
    this.#abortWaits = false;
    this.#out.sendHeader(MID.ABORT_CONN, undefined, () => this.#connection!.abort());
  }

  // ------------------------------------------------------------------------------------------- OwnedMemory

  get owned(): OwnedMemory | undefined {
    return this.#state === 'opening' ? undefined : this;
  }

  get threshold(): number {
    const { mode, zeroCopyFrom } = this.#settings;
    return mode === 'source' || mode === 'auto' ? zeroCopyFrom : Number.POSITIVE_INFINITY;
  }

  get takesPlaces(): boolean {
    return this.#settings.mode !== 'buffered';
  }

  get crowded(): boolean {
    return this.#source.depth >= 2 * this.#out.peerMaxAdverts;
  }

  give(bytes: Uint8Array, done: (moved: boolean) => void): Block {
    const block = blockOf(bytes, (moved) => this.#calls.call(() => done(moved)));
    const refused = this.state !== 'open' || this.#disconn !== null;
    if (refused || bytes.length === 0) {
      // The caller looks at the state: one that says queued would wait for ever.
      block.state = 'done';
      done(!refused);
    } else {
      this.#arrivals.askSize(bytes.length < this.threshold ? bytes.length : 0);
      this.#source.give(block);
    }
    return block;
  }

  copy(write: OwnedWrite, done: (copied: boolean) => void): void {
    this.#source.copy(write as Block, done);
  }

  touchSync(write: OwnedWrite, copy: boolean, ms: number): boolean {
    if (!this.#out.offloaded)
      throw new IwarpError(
        'ERR_NOT_SUPPORTED',
        "touchSync needs a device with engine: 'worker': in one thread the peer can go on only in the " +
          'event loop, so await touch()',
      );
    const connection = {
      isEnded: () => this.#aborted || this.#left || this.#state === 'closed' || this.qp.state !== 'rts',
      poll: () => this.#pollAll(),
    };
    this.#scheduler.defer(() => this.#poll());
    return this.#calls.without(() =>
      waitForPeer(this.#out, this.#source, write as Block, copy, ms, connection),
    );
  }

  post(place: Uint8Array, done: (octets: number) => void): () => void {
    return this.#sink.post(place, (octets) => this.#calls.call(() => done(octets)));
  }

  // ------------------------------------------------------------------------------------- TransmitterOwner

  get talks(): boolean {
    return this.#mayTalk && !this.#aborted && !this.#left && this.#state !== 'closed';
  }

  get closed(): boolean {
    return this.#state === 'closed';
  }

  get bothEnded(): boolean {
    return this.#ended && this.#disconn?.done === true;
  }

  get peerEnded(): boolean {
    return this.#ended;
  }

  get flags(): number {
    return this.#sink.asks ? FLAG.REQ_PIPE : 0;
  }

  fail(what: string): void {
    this.abort(
      new IwarpError('ERR_CONNECTION_RESET', `the peer breaks the Sockets Direct Protocol: ${what}`),
    );
  }

  lost(): void {
    this.abort(
      new IwarpError(
        'ERR_INVALID_REGION',
        'memory has been transferred away or resized while the stream used it',
      ),
    );
  }

  broken(cause: unknown): void {
    this.#aborted = true;
    this.#broken ??= new IwarpError('ERR_CONNECTION_RESET', 'the connection takes no more work', { cause });
    this.#connection?.abort();
  }

  // --------------------------------------------------------------------------------------------- completions

  /** The program may throw out of its listeners, and all goes on in another turn, as over rsocket. */
  #poll(last?: () => void): void {
    let through = false;
    try {
      this.#pollAll();
      last?.();
      through = true;
    } finally {
      if (!through) {
        this.#interrupted = true;
        this.#scheduler.defer(() => this.#poll(last));
      }
    }
  }

  #pollAll(): void {
    this.#calls.run();
    if (this.#out.cq.destroyed) return;
    if (this.#opened) {
      this.#opened = false;
      this.#calls.call(() => this.#handler.onOpen());
    }
    if (this.#interrupted) {
      this.#interrupted = false;
      this.#news = true;
    }
    if (this.#state !== 'opening')
      for (let early = this.#early.shift(); early !== undefined; early = this.#early.shift())
        this.#arrived(...early);
    for (;;) {
      if (this.#out.cq.destroyed) return;
      if (this.#out.cq.poll(this.#wc, 1) === 1) {
        this.#complete(this.#wc[0]!);
        continue;
      }
      if (this.#state !== 'opening') this.#goOn();
      if (this.#out.cq.destroyed) return;
      this.#out.cq.requestNotify();
      if (this.#out.cq.length === 0) return;
    }
  }

  /** All completions have been looked at: send what can be sent now, and let the program read and write. */
  #goOn(): void {
    if (!this.#aborted) {
      this.#out.flush();
      this.#source.pump();
      this.#sink.pump();
      this.#tryEnd();
      this.#checkOver();
    }
    if (this.#news) {
      this.#news = false;
      this.#calls.call(this.#onReadable);
    }
    if (this.#state !== 'closed') this.#calls.call(this.#onWritable);
  }

  readonly #onReadable = (): void => this.#handler.onReadable();
  readonly #onWritable = (): void => this.#handler.onWritable();

  #complete(wc: WorkCompletion): void {
    const id = wc.wrId as number;
    const slot = slotOf(id);
    if (slot >= 0) {
      if (wc.status === 'success') this.#arrived(slot, wc.byteLength, wc.invalidatedStag);
      return;
    }
    this.#out.complete(id, wc.status === 'success');
  }

  #arrived(slot: number, octets: number, invalidated: number | undefined): void {
    if (this.#aborted) {
      if (this.#abortWaits && this.#arrivals.numbers(slot, octets)) this.#sayAbort();
      return;
    }
    if (this.#state === 'opening') {
      this.#early.push([slot, octets, invalidated]);
      return;
    }
    this.#mayTalk = true;
    this.#arrivals.message(slot, octets, invalidated);
  }

  abortArrived(): void {
    this.#aborted = true;
    this.#broken ??= new IwarpError('ERR_CONNECTION_RESET', 'the peer has aborted the connection');
    this.#connection!.abort();
  }

  disconnArrived(): void {
    this.#sink.end();
    if (this.#aborted) return;
    this.#step('disconn');
    this.#ended = true;
    // A DisConn that has crossed ours does not say that ours has been acted on, and ours says as little.
    if (this.#state === 'closing' && !this.#isHeard) this.#out.update();
    if (this.#news) {
      this.#news = false;
      this.#calls.call(this.#onReadable);
    }
    this.#calls.call(() => this.#handler.onEnd());
  }

  // ---------------------------------------------------------------------------------------------- connection

  #handleEvent(event: CmEvent): void {
    switch (event.type) {
      case 'established':
        this.#established(event.parameters.privateData, event.negotiated.rtr !== null);
        break;
      case 'rejected':
      case 'connect-error':
      case 'unreachable':
      case 'address-error':
        this.#failure ??= attemptError(event);
        break;
      case 'closing':
        if (event.by === 'peer') this.#poll(() => this.#transportEnded());
        break;
      case 'disconnected': {
        const { cause, error, terminate } = event;
        // A Terminate of ours says that the peer, which had everything, left before our last update had gone;
        // in front of our end, that it sends what it must not.
        const lawful =
          terminate === undefined || (terminate.origin === 'local' && this.#disconn?.done === true);
        this.#closed(() =>
          lawful && this.#quiet ? undefined : (this.#broken ?? closeError(cause, error, terminate)),
        );
        break;
      }
      default:
    }
  }

  /** The peer's transport has ended: in order only behind its DisConn. */
  #transportEnded(): void {
    if (this.#aborted || this.#state === 'closed') return;
    if (this.#ended) this.#leave();
    else
      this.abort(new IwarpError('ERR_CONNECTION_RESET', 'the peer has ended the connection without DisConn'));
  }

  /** `why` is asked after the last completions, where this side has not failed the connection. */
  #closed(why?: () => IwarpError | undefined): void {
    this.#poll(() => this.#end(why));
  }

  #end(why?: () => IwarpError | undefined): void {
    if (this.#state !== 'closed') {
      this.#step('gone');
      this.#alarm.stop();
      this.#sink.keep();
      this.#sink.close();
      const { idle } = this.#source;
      this.#source.end(true);
      this.#out.end();
      this.#quiet = this.#ended && idle && !this.#out.dataLost;
      this.#out.giveBack((this.#connection?.counters().fpdusIn ?? 0) === 0);
    }
    for (const done of this.#onDisconn.splice(0)) done();
    if (this.#over) return;
    const error = this.#failure ?? why?.();
    this.#calls.call(() => this.#handler.onClosed(error));
    this.#over = true;
  }
}
