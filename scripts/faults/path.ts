/** A way to a server that breaks at a chosen byte: reset, cut, or silent after that. */
import net from 'node:net';
import { once } from 'node:events';

export const FAULTS = ['reset', 'cut', 'stall'] as const;
export type Fault = (typeof FAULTS)[number];

/** Where a connection breaks: after this number of bytes that come from one of its ends. */
export interface Break {
  readonly fault: Fault;
  readonly from: 'client' | 'server';
  readonly after: number;
}

/** One connection through the path. */
class Pair {
  readonly #near: net.Socket;
  readonly #far: net.Socket;
  readonly #broken: () => void;
  #armed: Break | null = null;
  #break: Break | null = null;
  readonly #passed = { client: 0, server: 0 };
  #over = false;

  constructor(near: net.Socket, far: net.Socket, broken: () => void) {
    this.#near = near;
    this.#far = far;
    this.#broken = broken;
    this.#relay('client', near, far);
    this.#relay('server', far, near);
  }

  #relay(from: Break['from'], source: net.Socket, target: net.Socket): void {
    source.on('data', (data) => this.#pass(from, target, data));
    source.on('error', () => undefined); // 'close' follows
    source.on('close', () => (this.#over ? undefined : target.destroy()));
  }

  #pass(from: Break['from'], target: net.Socket, data: Buffer): void {
    if (this.#over) return;
    const at = this.#break;
    const left = at === null || at.from !== from ? data.length : at.after - this.#passed[from];
    this.#passed[from] += data.length;
    if (left >= data.length) target.write(data);
    else {
      if (left > 0) target.write(data.subarray(0, left));
      this.#do(at!.fault);
    }
  }

  /** Where it is to break, counted from when that was asked for. */
  get armed(): Break | null {
    return this.#armed;
  }

  /** Break after `after` further bytes; at once where that is 0. */
  arm(at: Break): void {
    this.#armed = at;
    this.#break = { ...at, after: this.#passed[at.from] + at.after };
    if (at.after === 0) this.#do(at.fault);
  }

  #do(fault: Fault): void {
    this.#over = true;
    for (const socket of [this.#near, this.#far]) {
      if (fault === 'reset') socket.resetAndDestroy();
      else if (fault === 'cut') socket.end();
    }
    this.#broken();
  }

  drop(): void {
    this.#near.destroy();
    this.#far.destroy();
  }
}

export class Path {
  readonly #server: net.Server;
  /** Those that may still break, and all that have been. */
  readonly #pairs = new Set<Pair>();
  readonly #all: Pair[] = [];
  #next: Break | null = null;
  #broke: (() => void) | null = null;
  port = 0;

  constructor(target: number, host: string) {
    this.#server = net.createServer((near) => {
      const pair = new Pair(near, net.connect(target, host), () => {
        this.#pairs.delete(pair);
        this.#broke?.();
      });
      this.#pairs.add(pair);
      this.#all.push(pair);
      near.on('close', () => this.#gone(pair));
      if (this.#next !== null) pair.arm(this.#next);
      this.#next = null;
    });
  }

  async listen(host: string): Promise<this> {
    this.#server.listen(0, host);
    await once(this.#server, 'listening');
    this.port = (this.#server.address() as net.AddressInfo).port;
    return this;
  }

  /** Break every connection that there is, or where there is none the next one; resolves when it has. */
  async break(at: Break): Promise<void> {
    const broken = new Promise<void>((resolve) => (this.#broke = resolve));
    if (this.#pairs.size === 0) this.#next = at;
    for (const pair of [...this.#pairs]) pair.arm(at);
    await broken;
  }

  /** A connection has ended by itself. If it should have broken and none is left that will, the next does. */
  #gone(pair: Pair): void {
    if (this.#pairs.delete(pair) && pair.armed !== null && this.#pairs.size === 0) this.#next ??= pair.armed;
  }

  close(): void {
    this.#server.close();
    for (const pair of this.#all) pair.drop();
  }
}
