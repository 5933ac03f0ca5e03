/**
 * The view of one proxied connection: its octets go to the decoder and the capture file, its events to the
 * screen and the live page.
 */
import type { CapturedConnection } from '../../src/inspect/decode/capture.ts';
import { ConnectionDecoder } from '../../src/inspect/decode/connection-decoder.ts';
import type { OctetBudget } from '../../src/inspect/capture/octet-queue.ts';
import type { ConnectionSummary } from '../../src/inspect/decode/summary.ts';
import type { Direction, InspectEvent } from '../../src/inspect/decode/types.ts';
import type { PortAddress } from '../../src/transport/port.ts';
import type { TapInfo, TapSink } from '../../src/transport/tap.ts';
import type { ProxyClock } from './clock.ts';
import type { RelayWatcher } from './relay.ts';

interface WatchOptions {
  readonly number: number;
  /** The end that connected to us, and the one we connected to. */
  readonly ends: readonly [PortAddress, PortAddress];
  readonly clock: ProxyClock;
  readonly budget: OctetBudget;
  /** Show the octets that come from the ends, before the faults, instead of those that go to them. */
  readonly sent: boolean;
  readonly pcap: ((info: TapInfo) => TapSink) | undefined;
  readonly event: (connection: CapturedConnection, event: InspectEvent) => void;
  readonly over: (connection: CapturedConnection, error: Error | undefined) => void;
}

const TAP_DIRECTION = ['out', 'in'] as const;

export class Watch implements RelayWatcher, CapturedConnection {
  readonly number: number;
  readonly ends: readonly [string, string];
  readonly fromStart = true;
  readonly repeatedSegments = 0;
  readonly reorderedSegments = 0;
  readonly earlySegments = 0;
  readonly #options: WatchOptions;
  readonly #decoder: ConnectionDecoder;
  readonly #tap: TapSink | undefined;
  /** Octets of each direction's start-up frame, once it has been seen: places are counted from its end. */
  readonly #startup: [number, number] = [0, 0];

  constructor(options: WatchOptions) {
    this.#options = options;
    const { number, ends, clock, budget } = options;
    this.number = number;
    this.ends = [endText(ends[0]), endText(ends[1])];
    this.#decoder = new ConnectionDecoder({ budget, emit: (event) => this.#emit(event) });
    const time = clock.now();
    clock.seconds(time);
    const info: TapInfo = { localAddress: ends[0], remoteAddress: ends[1], role: 'active', time };
    this.#tap = options.pcap?.(info);
    this.#tap?.open(info);
  }

  get summary(): ConnectionSummary {
    return this.#decoder.summary;
  }

  get iwarp(): boolean {
    return this.#decoder.found;
  }

  came(direction: Direction, bytes: Uint8Array, start: number, end: number): void {
    if (this.#options.sent) this.#show(direction, bytes, start, end);
  }

  goes(direction: Direction, bytes: Uint8Array): void {
    if (!this.#options.sent) this.#show(direction, bytes, 0, bytes.length);
  }

  endCame(direction: Direction): void {
    if (this.#options.sent) this.#end(direction);
  }

  endGoes(direction: Direction): void {
    if (!this.#options.sent) this.#end(direction);
  }

  say(direction: Direction, position: number, message: string): void {
    const { clock, event } = this.#options;
    const time = clock.seconds(clock.now());
    event(this, {
      kind: 'note',
      direction,
      time,
      position: position - this.#startup[direction],
      octets: 0,
      message,
      problems: [],
    });
  }

  over(error: Error | undefined, direction: Direction): void {
    const { clock } = this.#options;
    const time = clock.now();
    this.#tap?.close(error, time, TAP_DIRECTION[direction]);
    for (const each of [0, 1] as const)
      this.#decoder.end(each, error === undefined ? 'fin' : 'rst', clock.seconds(time));
    this.#options.over(this, error);
  }

  #emit(event: InspectEvent): void {
    if (event.kind === 'startup' && this.#startup[event.direction] === 0)
      this.#startup[event.direction] = event.octets;
    this.#options.event(this, event);
  }

  #show(direction: Direction, bytes: Uint8Array, start: number, end: number): void {
    const { clock } = this.#options;
    const time = clock.now();
    this.#tap?.data(TAP_DIRECTION[direction], bytes, start, end, time);
    this.#decoder.push(direction, bytes, start, end, clock.seconds(time));
  }

  #end(direction: Direction): void {
    const { clock } = this.#options;
    const time = clock.now();
    this.#tap?.end(TAP_DIRECTION[direction], time);
    this.#decoder.end(direction, 'fin', clock.seconds(time));
  }
}

/** `address:port`, IPv4 also where a socket of both families names it in the manner of IPv6. */
function endText({ address, port }: PortAddress): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, '');
  return plain.includes(':') ? `[${plain}]:${port}` : `${plain}:${port}`;
}
