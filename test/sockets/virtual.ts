/**
 * Two devices on an in-memory network under virtual time, for streams: node:stream takes turns of the real
 * event loop between two tasks.
 */
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import {
  MemoryTransport,
  PassingPort,
  VirtualTime,
  wrapTransport,
  type WriteDone,
} from '../../src/testing.ts';
import { script, type Scripted } from './scripted.ts';

/** Far above what a test needs; one that gets here waits for what never comes. */
const MOST_TURNS = 100_000;

export class VirtualNetwork {
  readonly time: VirtualTime = new VirtualTime();
  readonly socketRnic: Rnic;
  readonly peerRnic: Rnic;
  /** The network takes nothing more of the socket's, as after a peer that has been stopped. */
  stuck = false;
  /**
   * Milliseconds after each piece of octets until the next one comes to the peer, as over a slow link. The
   * system's buffers take what waits.
   */
  pieceTakes = 0;
  /** Nothing of the peer's comes to the socket any longer, though the peer takes and acknowledges all. */
  silent = false;
  /** Octets that the socket's transport has been given. */
  written = 0;
  /** The keep-alive that the socket's transport has been asked for; null where it has none. */
  probes: (readonly [boolean, number])[] | null = null;
  /** The socket's connection keeps the process alive. */
  held = true;
  readonly #cleanup: (() => Promise<unknown>)[] = [];

  constructor() {
    const transport = new MemoryTransport(this.time, { latency: 1, buffer: 4 << 20 });
    const taking = (): boolean => !this.stuck;
    const write = (octets: number): void => void (this.written += octets);
    const probes = (): typeof this.probes => this.probes;
    const hold = (on: boolean): void => void (this.held = on);
    const afterPiece = (next: () => void): void => void this.time.at(this.time.now() + this.pieceTakes, next);
    const slow = (): boolean => this.pieceTakes > 0;
    const silent = (): boolean => this.silent;
    const soon = (task: () => void): void => void this.time.at(this.time.now(), task);
    class Trickling extends PassingPort {
      override write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
        if (!silent()) return super.write(chunks, count, done);
        soon(() => done(true));
        return true;
      }

      override end(): void {
        if (!silent()) super.end();
      }

      override onData(bytes: Uint8Array, start: number, end: number): void {
        super.onData(bytes, start, end);
        if (!slow()) return;
        this.inner.pause();
        afterPiece(() => this.inner.resume());
      }
    }
    class Sticking extends PassingPort {
      override write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
        if (!taking()) return false;
        write(chunks.slice(0, count).reduce((sum, { length }) => sum + length, 0));
        return super.write(chunks, count, done);
      }

      override setRef(on: boolean): void {
        hold(on);
      }

      override setKeepAlive(on: boolean, delay: number): boolean {
        probes()?.push([on, delay]);
        return probes() !== null;
      }
    }
    this.socketRnic = openRnic({
      transport: wrapTransport(transport, (port) => new Sticking(port)),
      scheduler: this.time,
    });
    this.peerRnic = openRnic({
      transport: wrapTransport(transport, (port) => new Trickling(port)),
      scheduler: this.time,
    });
  }

  /** Move the clock, a task at a time, until `promise` has settled. */
  async running<T>(promise: Promise<T>): Promise<T> {
    let settled = false;
    const note = (): void => void (settled = true);
    promise.then(note, note);
    for (let turn = 0; !settled; turn++) {
      if (turn === MOST_TURNS) throw new Error(`still waiting at ${this.time.now()} ms`);
      await new Promise<void>((resolve) => void setImmediate(() => resolve()));
      if (!settled) this.time.step();
    }
    return await promise;
  }

  scripted(): Promise<Scripted> {
    return this.running(
      script({ cleanup: this.#cleanup, rnics: { socket: this.socketRnic, peer: this.peerRnic } }),
    );
  }

  async close(): Promise<void> {
    await this.running(Promise.all(this.#cleanup.splice(0).map((each) => each())));
  }
}
