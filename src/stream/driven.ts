/**
 * A stream as an engine drives it: `RdmaStream`, or the stream of another wire. One input, then drain the
 * outputs until quiet, then the next input.
 */
import type { DepthRequest } from '../llp/startup.ts';
import type { Transmission } from '../llp/lower-layer.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import type { PortAction, StreamCounters, StreamEvent } from './types.ts';

/** One stream without I/O. The inputs and outputs are explained at `RdmaStream`. */
export interface DrivenStream {
  /** `deciding` while a request waits for the program's answer. */
  readonly state: string;
  ord: number;
  counters(): StreamCounters;

  start(now: number, endpoint: StreamEndpoint | null, privateData: Uint8Array, wishes: DepthRequest): void;
  accept(now: number, endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthRequest): void;
  reject(now: number, privateData: Uint8Array): void;
  confirm(now: number): void;
  close(now: number): void;
  terminate(now: number, code: number): void;
  abort(now: number): void;
  /** A connection that has not sent its whole request makes room for a newer one. */
  displace(now: number): void;
  kick(now: number): void;
  /** Optional: the stream probes a silent peer itself, after `delay` ms. Else the port does. */
  setKeepAlive?(on: boolean, delay: number, now: number): void;
  handleBytes(bytes: Uint8Array, start: number, end: number, now: number): void;
  readTarget(): Uint8Array | undefined;
  handleEnd(now: number): void;
  handleTaken(): void;
  handleTransmitted(ok: boolean, now: number): void;
  handleClose(error: Error | undefined, now: number): void;
  handleTimeout(now: number): void;

  pollTransmit(): Transmission | null;
  pollClose(): PortAction;
  pollEvent(): StreamEvent | null;
  pollTimeout(): number;
}

/** Requests of a stream to its driver outside an input. */
export interface StreamHost {
  /** Drain the stream soon. */
  wake(): void;
  /** Ask the stream for its read target again, at once: the one that the port has is not valid now. */
  retarget(): void;
}
