/**
 * MPA over a byte stream as a lower layer of DDP: RFC 5044, with the start-up of RFC 6581. The one place that
 * puts start-up, framer, deframer and transmit buffers together.
 */
import { FINE } from '../base/terminate-codes.ts';
import type { LowerLayer, LowerLayerUser, Transmission } from '../llp/lower-layer.ts';
import type { DepthRequest, Negotiated, Role, StartupVerdict } from '../llp/startup.ts';
import { createDeframer, type Deframer } from './deframer.ts';
import { createFramer, type Framer } from './framer.ts';
import type { ConnectionPolicy } from './policy.ts';
import type { MpaResources } from './resources.ts';
import { StartupExchange } from './startup-exchange.ts';
import { TransmitBuffer } from './transmit-buffer.ts';
import { mulpduFor } from './wire.ts';

/** The settings and resources of one MPA connection. */
export interface MpaConfig {
  readonly role: Role;
  readonly policy: ConnectionPolicy;
  /** TCP segment payload to fit FPDUs into, already resolved from the policy and the path. */
  readonly emss: number;
  readonly resources: MpaResources;
  /** The port is to get no payload in pieces. Default false. */
  readonly copies?: boolean;
}

/** Stands for a write whose memory the port has given back and which it has not confirmed. */
const TAKEN: Transmission = { chunks: [], count: 0 };

export class MpaLowerLayer implements LowerLayer {
  readonly #config: MpaConfig;
  /** Until full operation begins or the connection is given up: a frame is over half a KiB of memory. */
  #startup: StartupExchange | null = null;
  /** A start-up frame to be sent. */
  #frame: Uint8Array | null = null;
  #negotiated: Negotiated | null = null;
  #user: LowerLayerUser | null = null;
  #framer: Framer | null = null;
  #deframer: Deframer | null = null;
  // Writes handed out and not yet confirmed: two keep the port busy while one is being filled.
  #firstWrite: Transmission | null = null;
  #secondWrite: Transmission | null = null;
  /** Bytes of start-up frames handed out. */
  #frameOctets = 0;

  constructor(config: MpaConfig) {
    this.#config = config;
  }

  /** TCP delivers in order, and MPA keeps that order (MPA-072). */
  get inOrder(): boolean {
    return true;
  }

  get responderWaits(): boolean {
    return true;
  }

  get mulpdu(): number {
    return mulpduFor(this.#config.emss, this.#framer!.markers);
  }

  get writer(): Framer {
    return this.#framer!;
  }

  get octetsOut(): number {
    return this.#frameOctets + (this.#framer?.position ?? 0);
  }

  // ------------------------------------------------------------------------------------------------ start-up

  start(privateData: Uint8Array, depths: DepthRequest): number {
    const { role, policy } = this.#config;
    this.#startup = new StartupExchange(role, policy, privateData, depths);
    this.#frame = this.#startup.begin();
    return role === 'initiator' ? policy.replyTimeout : policy.requestTimeout; // MPA-008, MPA-007
  }

  handleStartup(bytes: Uint8Array, start: number, end: number): number {
    const startup = this.#startup!;
    const at = startup.handleBytes(bytes, start, end);
    if (startup.farewell !== null) this.#frame = startup.farewell;
    return at;
  }

  get verdict(): StartupVerdict | null {
    return this.#startup!.verdict;
  }

  get peerPrivateData(): Uint8Array {
    return this.#startup!.peerPrivateData;
  }

  accept(privateData: Uint8Array, depths: DepthRequest): Negotiated | null {
    const { reply, negotiated } = this.#startup!.accept(privateData, depths);
    this.#frame = reply;
    return negotiated;
  }

  reject(privateData: Uint8Array): void {
    this.#frame = this.#startup!.reject(privateData);
  }

  keepEarly(bytes: Uint8Array, start: number, end: number): boolean {
    return this.#startup!.keepEarly(bytes, start, end);
  }

  expire(): void {
    this.#startup!.expire();
  }

  lose(): void {
    this.#startup?.lose();
  }

  abandon(): void {
    this.#startup = null;
  }

  get frameWaits(): boolean {
    return this.#frame !== null;
  }

  // --------------------------------------------------------------------------------------------- established

  establish(negotiated: Negotiated): void {
    const { copies, resources } = this.#config;
    const { crc: engine } = resources;
    const { sendMarkers, crc } = negotiated;
    this.#negotiated = negotiated;
    this.#framer = createFramer(sendMarkers ? engine.runs : null, crc ? engine : null, copies);
  }

  deliverTo(user: LowerLayerUser): void {
    const { crc: engine, reassembly } = this.#config.resources;
    const { crc, receiveMarkers } = this.#negotiated!;
    this.#user = user;
    this.#deframer = createDeframer(
      receiveMarkers ? engine.runs : null,
      crc ? engine : null,
      user,
      reassembly,
    );
  }

  receiveEarly(): number {
    const early = this.#startup!.takeEarly();
    this.#startup = null;
    return early === null ? FINE : this.#deframer!.handleBytes(early, 0, early.length);
  }

  receive(bytes: Uint8Array, start: number, end: number): number {
    return this.#deframer!.handleBytes(bytes, start, end);
  }

  get betweenUlpdus(): boolean {
    return this.#deframer!.atBoundary;
  }

  readTarget(): Uint8Array | null {
    return this.#deframer === null ? null : this.#deframer.readTarget();
  }

  // -------------------------------------------------------------------------------------------- transmission

  pollFrame(): Transmission | null {
    const frame = this.#frame;
    if (frame === null) return null;
    this.#frame = null;
    this.#frameOctets += frame.length;
    return this.#enqueue({ chunks: [frame], count: 1 });
  }

  get busy(): boolean {
    return this.#secondWrite !== null;
  }

  acquire(): TransmitBuffer {
    return this.#config.resources.transmitBuffers.acquire();
  }

  release(buffer: TransmitBuffer): void {
    this.#config.resources.transmitBuffers.release(buffer);
  }

  handOut(buffer: TransmitBuffer): Transmission {
    buffer.seal();
    return this.#enqueue(buffer);
  }

  #enqueue(write: Transmission): Transmission {
    if (this.#firstWrite === null) this.#firstWrite = write;
    else this.#secondWrite = write;
    return write;
  }

  handleTaken(): void {
    const write = this.#secondWrite ?? this.#firstWrite;
    if (!(write instanceof TransmitBuffer)) return;
    if (this.#secondWrite === null) this.#firstWrite = TAKEN;
    else this.#secondWrite = TAKEN;
    this.release(write);
  }

  handleTransmitted(ok: boolean): void {
    const carriesUlpdus = this.#confirmWrite();
    if (ok && carriesUlpdus) this.#user!.transmissionDone();
  }

  /** The oldest write is over: true if it carries FPDUs, and no start-up frame. */
  #confirmWrite(): boolean {
    const write = this.#firstWrite;
    this.#firstWrite = this.#secondWrite;
    this.#secondWrite = null;
    if (!(write instanceof TransmitBuffer)) return write === TAKEN;
    this.release(write);
    return true;
  }

  dispose(): void {
    while (this.#firstWrite !== null) this.#confirmWrite();
    this.#startup = null;
    this.#deframer?.dispose();
  }
}
