/**
 * Frames as they are sent and received: decoded line by line, or written to a capture file. For debugging;
 * while off, it costs nothing (`taps.ts`).
 */
import { checkFunction, IwarpError, show } from '../base/errors.ts';
import { ConnectionDecoder } from '../inspect/decode/connection-decoder.ts';
import { renderLine } from '../inspect/render/text.ts';
import type { Direction, InspectEvent } from '../inspect/decode/types.ts';
import { openCapture, warnCaptureEnded, type CaptureFile } from '../transport/pcap-tap.ts';
import type { PortAddress } from '../transport/port.ts';
import type { TapDirection, TapInfo, TapSink } from '../transport/tap.ts';
import { guarded, tapConnections } from './taps.ts';

/** One start-up frame, FPDU, or remark about the bytes of a connection. */
export interface TracedFrame {
  /** Number of the connection, from 1, counted since the trace began. */
  readonly connection: number;
  /** Our end. */
  readonly localAddress: PortAddress;
  /** The peer's end. */
  readonly remoteAddress: PortAddress;
  /** `in` is received here, `out` is sent from here. */
  readonly direction: 'in' | 'out';
  /** Milliseconds since 1970. */
  readonly time: number;
  /** One line, as `iwarp dissect` prints it; seconds count from the beginning of the connection. */
  readonly text: string;
}

/**
 * Call `listener` for every frame of every connection that begins from now on, decoded, with a remark on each
 * rule that it breaks. Call the returned function to stop.
 *
 * The listener runs in the middle of protocol work and must not call into the stack. What it throws is an
 * uncaught exception. Connections whose streams run in another thread (`engine`), and those over UDP
 * (`wire: 'trp'`), are not seen.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const stop = traceFrames(({ text }) => console.log(text));
 */
export function traceFrames(listener: (frame: TracedFrame) => void): () => void {
  checkFunction('listener', listener);
  let active = true;
  let connections = 0;
  const untap = tapConnections(
    (info, epoch) =>
      new FrameSink(info, epoch, ++connections, (frame) => {
        if (active) guarded(() => listener(frame));
      }),
  );
  return () => {
    active = false;
    untap();
  };
}

/** A capture file that is being written. */
export interface Capture {
  /** Path of the file. */
  readonly path: string;
  /** Stop, and close the file. */
  close(): void;
}

/**
 * Write every connection that begins after this call into a pcap file for Wireshark, tshark and
 * `iwarp dissect`, with made-up TCP/IP headers around the bytes. A connection with both ends in this process
 * is written once. Writes are synchronous: events before a crash are in the file. If the file can no longer
 * be written (disk full), the capture ends with a warning, and the program goes on. Connections over UDP
 * (`wire: 'trp'`) are not in it; the tools write them with `--pcap`.
 *
 * @throws ERR_INVALID_ARGUMENT, ERR_ACCESS if the file cannot be written
 *
 * @example
 * const capture = captureTo('run.pcap');
 * // … connect, send, close …
 * capture.close();
 */
export function captureTo(path: string): Capture {
  if (typeof path !== 'string' || path === '')
    throw new IwarpError('ERR_INVALID_ARGUMENT', `path must be a file name, got ${show(path)}`);
  let capture: CaptureFile;
  let untap = (): void => undefined;
  const close = (): void => {
    untap();
    capture.close();
  };
  try {
    capture = openCapture(path, (error) => {
      close();
      warnCaptureEnded(path, error);
    });
  } catch (error) {
    throw new IwarpError('ERR_ACCESS', `cannot write ${path}: ${(error as Error).message}`, { cause: error });
  }
  const seen = new Set<string>();
  untap = tapConnections((info, epoch) => {
    // Of a connection within one process one end is enough; over a Unix socket the two cannot be
    // recognized as one connection, and both are there.
    if (info.localAddress.family === 'Unix') return new CaptureSink(capture.sink, info, epoch, NOTHING);
    const ends = [textOf(info.localAddress), textOf(info.remoteAddress)].sort().join();
    if (seen.has(ends)) return BLIND;
    seen.add(ends);
    return new CaptureSink(capture.sink, info, epoch, () => seen.delete(ends));
  });
  return { path, close };
}

const NOTHING = (): void => undefined;

/** Sees nothing. */
const BLIND: TapSink = {
  open: () => undefined,
  data: () => undefined,
  end: () => undefined,
  close: () => undefined,
};

const textOf = ({ address, port }: PortAddress): string =>
  `${address.replace(/^::ffff:(?=\d+\.)/, '')}:${port}`;

/** Writes one connection, on the clock of the capture. */
class CaptureSink implements TapSink {
  readonly #sink: TapSink;
  readonly #info: TapInfo;
  readonly #epoch: number;
  readonly #over: () => void;

  constructor(makeSink: (info: TapInfo) => TapSink, info: TapInfo, epoch: number, over: () => void) {
    this.#info = { ...info, time: info.time + epoch };
    this.#sink = makeSink(this.#info);
    this.#epoch = epoch;
    this.#over = over;
  }

  open(): void {
    this.#sink.open(this.#info);
  }

  data(direction: TapDirection, bytes: Uint8Array, start: number, end: number, time: number): void {
    this.#sink.data(direction, bytes, start, end, time + this.#epoch);
  }

  end(direction: TapDirection, time: number): void {
    this.#sink.end(direction, time + this.#epoch);
  }

  close(error: Error | undefined, time: number, direction: TapDirection): void {
    this.#over();
    this.#sink.close(error, time + this.#epoch, direction);
  }
}

/** Decodes one connection. */
class FrameSink implements TapSink {
  readonly #info: TapInfo;
  readonly #decoder: ConnectionDecoder;
  /** The decoder's direction 0 is the one away from the side that opened the connection. */
  readonly #outward: Direction;

  constructor(info: TapInfo, epoch: number, connection: number, tell: (frame: TracedFrame) => void) {
    this.#info = info;
    this.#outward = info.role === 'active' ? 0 : 1;
    const { localAddress, remoteAddress } = info;
    const emit = (event: InspectEvent): void =>
      tell({
        connection,
        localAddress,
        remoteAddress,
        direction: event.direction === this.#outward ? 'out' : 'in',
        time: epoch + info.time + event.time * 1000,
        text: `#${connection} ${renderLine(event)}`,
      });
    this.#decoder = new ConnectionDecoder({ emit });
  }

  open(): void {
    // The start-up frames tell all there is to know.
  }

  data(direction: TapDirection, bytes: Uint8Array, start: number, end: number, time: number): void {
    guarded(() => this.#decoder.push(this.#toDecoder(direction), bytes, start, end, this.#seconds(time)));
  }

  end(direction: TapDirection, time: number): void {
    guarded(() => this.#decoder.end(this.#toDecoder(direction), 'fin', this.#seconds(time)));
  }

  close(error: Error | undefined, time: number): void {
    guarded(() => {
      for (const direction of [0, 1] as const)
        this.#decoder.end(direction, error === undefined ? 'fin' : 'rst', this.#seconds(time));
    });
  }

  #toDecoder(direction: TapDirection): Direction {
    return direction === 'out' ? this.#outward : ((this.#outward ^ 1) as Direction);
  }

  #seconds(time: number): number {
    return (time - this.#info.time) / 1000;
  }
}
