/**
 * UDP as a lower layer of DDP: one ULPDU is one datagram. The set-up frames are here, the ULPDUs on their way
 * into the window, and those that have come before their turn. The window itself is the channel's, and what
 * datagram comes when is the stream's.
 *
 * Segments reach the layer above in the order in which the peer sent them. Before its turn a segment can be
 * placed (`placeEarly`); its header is kept and handled in its turn. So what a stream makes of the segments
 * does not depend on the order of their arrival.
 */
import { copyOf, NO_BYTES, type Octets } from '../base/copy.ts';
import { FINE } from '../base/terminate-codes.ts';
import {
  EARLY,
  type LowerLayer,
  type LowerLayerUser,
  type TransmitBuffer,
  type Transmission,
  type UlpduWriter,
} from '../llp/lower-layer.ts';
import type { DepthRequest, Negotiated, Role, StartupVerdict } from '../llp/startup.ts';
import { Channel } from './channel.ts';
import { acquirePacket, releasePacket, type Packet } from './packet.ts';
import type { TrpProfile, TrpReceiverName, TrpSizes } from './profile.ts';
import { fromUrdma, toUrdma } from './urdma.ts';
import { decodeTrpSetup, encodeTrpSetup, TRP_HEADER_OCTETS, TRP_OPCODE, type TrpSetup } from './wire.ts';

/** ULPDUs of one transmission: the work in them completes together. */
const STAGE = 16;
/** Bytes that an ordered receiver keeps; others come again. A default window has a tenth of it. */
const MOST_HELD = 1 << 22;
/** Packets of which an empty stage keeps the references. */
const MOST_KEPT = 4;
/** The device maximum of the old code; deeper ones are answered with this. */
const MAX_DEPTH = 128;
/** How long a client waits for its answer, and a server for a request and its own program, ms. */
const ACCEPT_TIMEOUT = 5_000;
const REQUEST_TIMEOUT = 10_000;

const NOTHING_OUT: Transmission = { chunks: [], count: 0 };
const NOWHERE: Octets = { bytes: NO_BYTES, view: new DataView(new ArrayBuffer(0)) };

/** ULPDUs that are being collected. */
class Stage implements TransmitBuffer {
  /** The first `count`; those behind are of earlier stages. */
  readonly packets: Packet[] = [];
  count = 0;
  octets = 0;

  /** Payloads are copied: out of the copy they are sent again. */
  pin(): void {}
}

class StageWriter implements UlpduWriter {
  readonly at: number = TRP_HEADER_OCTETS;
  readonly zeroCopy = false;
  readonly #layer: TrpLowerLayer;
  #packet: Packet | null = null;

  constructor(layer: TrpLowerLayer) {
    this.#layer = layer;
  }

  get target(): Octets {
    return this.#packet ?? NOWHERE;
  }

  fits({ count }: Stage, _ulpduLength: number): boolean {
    return count < STAGE && count < this.#layer.room;
  }

  fitsZeroCopy(stage: Stage, _header: number, _payload: number): boolean {
    return this.fits(stage, 0);
  }

  begin(_stage: Stage, ulpduLength: number): void {
    this.#packet = acquirePacket(TRP_HEADER_OCTETS + ulpduLength);
  }

  finish(stage: Stage, ulpduLength: number): void {
    const packet = this.#packet!;
    this.#packet = null;
    packet.length = TRP_HEADER_OCTETS + ulpduLength;
    stage.packets[stage.count++] = packet;
    stage.octets += ulpduLength;
  }

  finishZeroCopy(stage: Stage, header: number, bytes: Uint8Array, from: number, payload: number): void {
    this.#packet!.bytes.set(bytes.subarray(from, from + payload), this.at + header);
    this.finish(stage, header + payload);
  }

  finishGathered(stage: Stage, header: number, pieces: readonly Uint8Array[]): void {
    let length = header;
    for (const piece of pieces) {
      this.#packet!.bytes.set(piece, this.at + length);
      length += piece.length;
    }
    this.finish(stage, length);
  }
}

/** A segment that has come before its turn. */
interface Kept {
  /** All of it; or its header, and the payload is in its place. */
  readonly bytes: Uint8Array;
  /** Bytes of payload that are in their place; -1 if `bytes` has all. */
  readonly placed: number;
  readonly delivered: boolean;
  readonly arrivedAt: number;
}

/** Counters of the receiving side, to compare ways of receiving. */
export interface PlacementCounters {
  /** Segments placed before their turn. */
  placedEarly: number;
  /** Segments kept whole until their turn. */
  keptWhole: number;
  /** Segments that could neither be placed nor kept: they come again. */
  refused: number;
  /** Bytes kept at present, and at most. */
  heldOctets: number;
  mostHeld: number;
  /** Milliseconds from arrival to placement, and from arrival to its turn, of all segments together. */
  placementDelay: number;
  turnDelay: number;
}

/** The settings of one connection. */
interface TrpLayerConfig {
  readonly role: Role;
  readonly profile: TrpProfile;
  readonly receiver: TrpReceiverName;
  readonly sizes: TrpSizes;
  readonly ird: number;
  readonly ord: number;
  /** First PSN of this end, u32. */
  readonly firstPsn: number;
}

export class TrpLowerLayer implements LowerLayer {
  readonly #config: TrpLayerConfig;
  readonly inOrder: boolean;
  readonly responderWaits = false;
  readonly writer: StageWriter;
  verdict: StartupVerdict | null = null;
  peerPrivateData: Uint8Array = NO_BYTES;
  /** The set-up datagram to be sent, and sent again. */
  frame: Uint8Array | null = null;
  /** Once the peer's first PSN is known. */
  channel: Channel | null = null;
  user: LowerLayerUser | null = null;
  octetsOut = 0;
  readonly placement: PlacementCounters = {
    placedEarly: 0,
    keptWhole: 0,
    refused: 0,
    heldOctets: 0,
    mostHeld: 0,
    placementDelay: 0,
    turnDelay: 0,
  };
  /** The peer makes some segments otherwise than the RFCs. */
  readonly #old: boolean;
  /** A stage that is not in use: one serves, since what it has collected goes into the window at once. */
  #free: Stage | null = null;
  #request: TrpSetup | null = null;
  #depths: DepthRequest = {};
  readonly #kept = new Map<number, Kept>();
  readonly #mostHeld: number;
  /** The next segment that the layer above gets. */
  #turn = 0;
  #now = 0;
  /** Sequence numbers after the last ULPDU of each transmission that is under way. */
  readonly #underWay: number[] = [];

  constructor(config: TrpLayerConfig) {
    this.#config = config;
    this.inOrder = config.receiver === 'ordered';
    const { window, octets, mulpdu } = config.sizes;
    // A window that was asked for may be longer.
    this.#mostHeld = Math.max(MOST_HELD, octets === Number.POSITIVE_INFINITY ? window * mulpdu : 0);
    this.#old = config.profile.name === 'urdma';
    this.writer = new StageWriter(this);
  }

  get mulpdu(): number {
    const { mulpdu, narrow } = this.#config.sizes;
    return this.channel?.path === 'narrow' ? narrow : mulpdu;
  }

  get payloadLimit(): number {
    return this.#config.sizes.payloadLimit;
  }

  // ------------------------------------------------------------------------------------------------ start-up

  start(privateData: Uint8Array, depths: DepthRequest): number {
    this.#depths = depths;
    if (this.#config.role === 'responder') return REQUEST_TIMEOUT;
    const { ird, ord } = this.#wanted(depths);
    this.frame = this.#encode(TRP_OPCODE.REQUEST, ird, ord, privateData, 0);
    return ACCEPT_TIMEOUT;
  }

  #wanted({ ird, ord, maxIrd = MAX_DEPTH, maxOrd = MAX_DEPTH }: DepthRequest): { ird: number; ord: number } {
    return {
      ird: Math.min(ird ?? this.#config.ird, maxIrd, MAX_DEPTH),
      ord: Math.min(ord ?? this.#config.ord, maxOrd, MAX_DEPTH),
    };
  }

  #encode(opcode: number, ird: number, ord: number, privateData: Uint8Array, ack: number): Uint8Array {
    return encodeTrpSetup({ opcode, psn: this.#config.firstPsn, ack, ird, ord, privateData });
  }

  /** One whole datagram of set-up, which the stream has found to be one for this side. */
  handleStartup(bytes: Uint8Array, start: number, end: number): number {
    const setup = decodeTrpSetup(bytes, start, end);
    if (setup === null) return end;
    const { opcode, privateData, ird: peerIrd, ord: peerOrd } = setup;
    this.peerPrivateData = privateData;
    const named = { revision: 0, privateData, peerIrd, peerOrd };
    if (opcode === TRP_OPCODE.REJECT) {
      this.verdict = { kind: 'rejected', rejection: { ...named, markersAsked: false } };
      return end;
    }
    const { profile, firstPsn, sizes } = this.#config;
    this.channel = new Channel(profile, firstPsn, setup.psn, sizes);
    if (opcode === TRP_OPCODE.REQUEST) {
      this.#request = setup;
      this.verdict = { kind: 'request', request: named };
    } else {
      const { ird, ord } = this.#wanted(this.#depths);
      const negotiated = this.#negotiated(Math.max(peerOrd, ird), Math.min(peerIrd, ord), setup);
      this.verdict = { kind: 'accepted', negotiated, privateData, terminate: FINE };
    }
    return end;
  }

  #negotiated(ird: number, ord: number, { ird: peerIrd, ord: peerOrd }: TrpSetup): Negotiated {
    return {
      role: this.#config.role,
      revision: 0,
      enhanced: false,
      crc: false,
      sendMarkers: false,
      receiveMarkers: false,
      ird: Math.min(ird, MAX_DEPTH),
      ord: Math.min(ord, MAX_DEPTH),
      autoOrd: false,
      peerIrd,
      peerOrd,
      rtr: null,
      ddpVersion: 1,
    };
  }

  accept(privateData: Uint8Array, depths: DepthRequest): Negotiated {
    const request = this.#request!;
    const limits = this.#wanted(depths);
    const ird = Math.min(request.ord, depths.ird ?? MAX_DEPTH, limits.ird);
    const ord = Math.min(request.ird, depths.ord ?? MAX_DEPTH, limits.ord);
    this.frame = this.#encode(TRP_OPCODE.ACCEPT, ird, ord, privateData, request.psn);
    return this.#negotiated(ird, ord, request);
  }

  reject(privateData: Uint8Array): void {
    this.frame = this.#encode(TRP_OPCODE.REJECT, 0, 0, privateData, this.#request!.psn);
  }

  /** The stream takes no data before the layer above does. */
  keepEarly(): boolean {
    return true;
  }

  expire(): void {
    this.verdict = { kind: 'failed', reason: 'timeout' };
  }

  lose(): void {
    this.verdict ??= { kind: 'failed', reason: 'truncated' };
  }

  abandon(): void {
    // Nothing is kept for it.
  }

  get frameWaits(): boolean {
    return false;
  }

  // --------------------------------------------------------------------------------------------- established

  establish(_negotiated: Negotiated): void {
    // The channel is there, and nothing else depends on the depths.
  }

  deliverTo(user: LowerLayerUser): void {
    this.user = user;
  }

  receiveEarly(): number {
    return FINE;
  }

  /** The segment whose turn it is, and then those that have waited for it. */
  receive(bytes: Uint8Array, start: number, end: number): number {
    const user = this.user!;
    this.#turn++;
    const changed = this.#old ? fromUrdma(bytes, start, end) : null;
    let verdict =
      changed === null
        ? user.handleUlpdu(bytes, start, end - start)
        : user.handleUlpdu(changed, 0, changed.length);
    while (verdict === FINE && this.#kept.size > 0) {
      const kept = this.#kept.get(this.#turn);
      if (kept === undefined) break;
      this.#kept.delete(this.#turn++);
      this.#hold(-kept.bytes.length);
      this.placement.turnDelay += this.#now - kept.arrivedAt;
      if (kept.placed >= 0) {
        verdict = user.handlePlaced!(kept.bytes, kept.placed, kept.delivered);
      } else {
        this.placement.placementDelay += this.#now - kept.arrivedAt;
        verdict = user.handleUlpdu(kept.bytes, 0, kept.bytes.length);
      }
    }
    return verdict;
  }

  /** When the datagram came that is being handled. */
  set now(now: number) {
    this.#now = now;
  }

  /** A segment above a hole: place or keep it. False if neither can be done: it is as if it were lost. */
  takeEarly(sequence: number, bytes: Uint8Array, start: number, end: number): boolean {
    const changed = this.#old ? fromUrdma(bytes, start, end) : null;
    return changed === null
      ? this.#takeEarly(sequence, bytes, start, end)
      : this.#takeEarly(sequence, changed, 0, changed.length);
  }

  #takeEarly(sequence: number, bytes: Uint8Array, start: number, end: number): boolean {
    const { placement } = this;
    const length = end - start;
    const early = this.inOrder ? this.#keepAll(length) : this.user!.placeEarly!(bytes, start, length);
    if (early === EARLY.REFUSED) {
      placement.refused++;
      return false;
    }
    const delivered = (early & EARLY.DELIVERED) !== 0;
    const keep = early & EARLY.OCTETS;
    const whole = keep === length && !delivered;
    if (whole) placement.keptWhole++;
    else placement.placedEarly++;
    this.#kept.set(sequence, {
      bytes: copyOf(bytes, start, start + keep),
      placed: whole ? -1 : length - keep,
      delivered,
      arrivedAt: this.#now,
    });
    this.#hold(keep);
    return true;
  }

  #keepAll(length: number): number {
    return this.placement.heldOctets + length > this.#mostHeld ? EARLY.REFUSED : length;
  }

  #hold(octets: number): void {
    const { placement } = this;
    placement.heldOctets += octets;
    placement.mostHeld = Math.max(placement.mostHeld, placement.heldOctets);
  }

  /** A datagram is whole or not there. */
  get betweenUlpdus(): boolean {
    return true;
  }

  readTarget(): null {
    return null;
  }

  // -------------------------------------------------------------------------------------------- transmission

  /** Set-up datagrams are sent by the stream. */
  pollFrame(): null {
    return null;
  }

  /** ULPDUs that may still be added to the window. */
  get room(): number {
    return this.channel!.window.room;
  }

  get busy(): boolean {
    return this.room <= 0;
  }

  acquire(): Stage {
    const stage = this.#free ?? new Stage();
    this.#free = null;
    return stage;
  }

  release(stage: Stage): void {
    for (let i = 0; i < stage.count; i++) releasePacket(stage.packets[i]!);
    this.#empty(stage);
  }

  #empty(stage: Stage): void {
    // To shorten a list takes longer than all else here; a long one would keep the memory of its packets.
    if (stage.packets.length > MOST_KEPT) stage.packets.length = 0;
    stage.count = stage.octets = 0;
    this.#free = stage;
  }

  handOut(stage: Stage): Transmission {
    const { window } = this.channel!;
    for (let i = 0; i < stage.count; i++) {
      const packet = stage.packets[i]!;
      packet.view.setUint32(0, window.wire(window.tail));
      packet.view.setUint16(8, TRP_OPCODE.DATA);
      if (this.#old) toUrdma(packet.view, TRP_HEADER_OCTETS, packet.length - TRP_HEADER_OCTETS);
      this.octetsOut += packet.length;
      window.add(packet);
    }
    this.#underWay.push(window.tail);
    this.#empty(stage);
    return NOTHING_OUT;
  }

  /** True if the oldest transmission has been acknowledged: `handleTransmitted` has to follow. */
  get acknowledged(): boolean {
    return this.#underWay.length > 0 && this.#underWay[0]! <= this.channel!.window.una;
  }

  handleTaken(): void {
    // The window keeps what it may have to send again.
  }

  handleTransmitted(ok: boolean): void {
    this.#underWay.shift();
    if (ok) this.user!.transmissionDone();
  }

  dispose(): void {
    this.#underWay.length = 0;
    this.#kept.clear();
    this.channel?.window.dispose();
  }
}
