/** Latency histograms on demand. Nothing is measured, and nothing costs time, until a program asks. */
import { createHistogram, type Histogram, type RecordableHistogram } from 'node:perf_hooks';
import type { WcOpcode } from '../queues/work.ts';

/** Kinds of operation that have a histogram. */
export type LatencyKind = 'send' | 'rdma-write' | 'rdma-read' | 'atomic' | 'immediate';

/** The largest latency with a bucket; longer ones count as this. */
const HIGHEST_NS = 60_000_000_000;

/** The histograms that operations record into. */
export class LatencyRecorder {
  readonly histograms: Readonly<Record<LatencyKind, RecordableHistogram>> = {
    send: make(),
    'rdma-write': make(),
    'rdma-read': make(),
    atomic: make(),
    immediate: make(),
  };

  record(opcode: WcOpcode, milliseconds: number): void {
    const kind = kindOf(opcode);
    if (kind !== null)
      this.histograms[kind].record(Math.min(HIGHEST_NS, Math.max(1, Math.round(milliseconds * 1e6))));
  }
}

/**
 * Time from posting to completion, in nanoseconds, with one histogram for each kind of operation. A Send or
 * Write completes when its bytes have been handed to TCP, a Read or atomic when its response has arrived.
 */
export interface Latency {
  /** One `node:perf_hooks` histogram for each kind, from 1 ns to 60 s. Longer times count as 60 s. */
  readonly histograms: Readonly<Record<LatencyKind, Histogram>>;
  /** Stop recording. The histograms can still be read. */
  stop(): void;
}

function make(): RecordableHistogram {
  return createHistogram({ lowest: 1, highest: HIGHEST_NS, figures: 3 });
}

function kindOf(opcode: WcOpcode): LatencyKind | null {
  switch (opcode) {
    case 'atomic-fetch-add':
    case 'atomic-cmp-swap':
      return 'atomic';
    case 'send':
    case 'rdma-write':
    case 'rdma-read':
    case 'immediate':
      return opcode;
    default:
      return null;
  }
}
