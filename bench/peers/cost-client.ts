/** Peers that connect to a server of cost-server.ts and then say nothing, and that server as a process. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { atExit } from '../leftovers.ts';
import type { CostLayer, CostLook } from './cost-server.ts';
import { HOST } from './peer.ts';

const ENDING = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
const PROGRAM = new URL(`./cost-server.${ENDING}`, import.meta.url);
/** Connections that are made at a time. */
const BATCH = 100;
/** A look for the end of all connections, and how many at most. */
const LOOK_MS = 50;
const LOOKS = 600;
const COLLECTIONS = 3;

const KEY = 'MPA ID Req Frame';
/** Its last four bytes are flags, revision 1 and the length of the private data (RFC 5044 7.1.1). */
const HEADER = KEY.length + 4;
const RSOCKET = 40;

/** An MPA Request of revision 1; for byte streams with the private data of an rsocket. */
function requestFor(layer: CostLayer): Buffer {
  const own = Buffer.alloc(layer === 'stream' ? RSOCKET : 0);
  if (own.length > 0) {
    own.writeUInt32BE((1 << 24) | 384); // version 1, and the credits
    own.writeBigUInt64BE(0n, 8);
    own.writeUInt32BE(0x100, 16);
    own.writeUInt32BE(2, 20);
    own.writeBigUInt64BE(0x1000n, 24);
    own.writeUInt32BE(0x200, 32);
    own.writeUInt32BE(65_536, 36);
  }
  const header = Buffer.alloc(HEADER);
  header.write(KEY);
  header[KEY.length + 1] = 1;
  header.writeUInt16BE(own.length, KEY.length + 2);
  return Buffer.concat([header, own]);
}

/** A server in its own process, and idle connections to it. */
export class CostServer {
  readonly #child: ChildProcess;
  readonly #request: Buffer | null;
  readonly #end: () => void;
  #port = 0;
  #sockets: Socket[] = [];

  /** `nodeArgs` are for the server's Node, beside those of this process. */
  constructor(layer: CostLayer, engine: 'thread' | 'worker', nodeArgs: readonly string[] = []) {
    this.#request = layer === 'net' ? null : requestFor(layer);
    this.#child = fork(PROGRAM, [layer, engine], {
      execArgv: [...process.execArgv, ...nodeArgs, '--expose-gc'],
    });
    this.#end = atExit(() => this.#child.kill('SIGKILL'));
  }

  async ready(): Promise<void> {
    this.#port = await this.#answer<number>();
  }

  async #answer<T>(): Promise<T> {
    const gone = new AbortController();
    const ended = once(this.#child, 'exit', { signal: gone.signal }).then(() => {
      throw new Error('the server has ended');
    });
    try {
      const [answer] = (await Promise.race([
        once(this.#child, 'message', { signal: gone.signal }),
        ended,
      ])) as [T];
      return answer;
    } finally {
      ended.catch(() => undefined);
      gone.abort();
    }
  }

  async #ask(order: 'look' | 'collect'): Promise<CostLook> {
    const answer = this.#answer<CostLook>();
    this.#child.send(order);
    return answer;
  }

  /** Asks for the memory that the server holds, after full collections. */
  async look(): Promise<CostLook> {
    for (let i = 0; i < COLLECTIONS; i++) {
      await this.#ask('collect');
      await sleep(LOOK_MS);
    }
    return this.#ask('look');
  }

  /** Make connections that say nothing after their start-up. */
  async open(count: number): Promise<void> {
    for (let left = count; left > 0; left -= BATCH)
      this.#sockets.push(
        ...(await Promise.all(Array.from({ length: Math.min(left, BATCH) }, () => this.#connect()))),
      );
  }

  #connect(): Promise<Socket> {
    return new Promise((resolve, reject) => {
      const socket = connect(this.#port, HOST, () => {
        if (this.#request === null) resolve(socket);
        else socket.write(this.#request);
      });
      socket.once('data', () => resolve(socket));
      socket.on('error', reject);
    });
  }

  /** Reset every connection, and wait until the server has none. */
  async reset(): Promise<void> {
    for (const socket of this.#sockets.splice(0)) socket.resetAndDestroy();
    for (let i = 0; (await this.#ask('look')).connections > 0; i++) {
      if (i === LOOKS) throw new Error('the server has kept connections that were reset');
      await sleep(LOOK_MS);
    }
  }

  end(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#end();
  }
}
