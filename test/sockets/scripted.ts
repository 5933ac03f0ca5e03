/** A scripted rsocket peer: every message it sends and takes is the test's own. */
import { once } from 'node:events';
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import { createServer, type RdmaServer, type RdmaSocket } from '../../src/sockets/index.ts';
import {
  decodeConnectionData,
  encodeConnectionData,
  MESSAGE_OCTETS,
  putMessage,
  type ConnectionData,
} from '../../src/rsocket/wire.ts';
import { Session } from '../../cli/support/session.ts';
import type { MemoryRegion } from '../../src/verbs/memory.ts';

/** A message in separate octets. */
export function encodeMessage(op: number, value: number, little: boolean): Uint8Array {
  const bytes = new Uint8Array(MESSAGE_OCTETS);
  putMessage(new DataView(bytes.buffer), op, value, little);
  return bytes;
}

/**
 * Messages of 4 octets, each in another place; receives are used in the order in which they were posted.
 */
export class Inbox {
  static readonly PLACES = 8;
  readonly #session: Session;
  readonly #region: MemoryRegion;
  readonly #little: boolean;
  #taken = 0;

  constructor(session: Session, little: boolean) {
    this.#session = session;
    this.#little = little;
    this.#region = session.register(4 * Inbox.PLACES);
    for (let place = 0; place < Inbox.PLACES; place++) this.#post(place);
  }

  #post(place: number): void {
    this.#session.postRecv({ mr: this.#region, offset: 4 * place, length: 4 });
  }

  async next(): Promise<number> {
    await this.#session.receive();
    const place = this.#taken++ % Inbox.PLACES;
    const word = new DataView(this.#region.bytes.buffer).getUint32(4 * place, this.#little);
    this.#post(place);
    return word;
  }
}

export interface Scripted {
  readonly session: Session;
  readonly socket: RdmaSocket;
  readonly peer: ConnectionData;
  /** Its list and its data buffer. */
  readonly list: MemoryRegion;
  readonly buffer: MemoryRegion;
  send(op: number, value: number): Promise<void>;
  /** The next message of the socket. */
  next(): Promise<number>;
}

/** Where a script runs: what to undo afterwards, and the devices if not the usual ones. */
interface ScriptSetting {
  readonly cleanup: (() => Promise<unknown>)[];
  readonly rnics?: { readonly socket: Rnic; readonly peer: Rnic };
  readonly bigEndian?: boolean;
  /** Octets of the socket's receive buffer; without it as many as by default. */
  readonly receiveBuffer?: number;
}

/** A connection whose passive side is a socket, and whose active side the test plays. */
export async function script({
  cleanup,
  rnics,
  bigEndian = false,
  receiveBuffer,
}: ScriptSetting): Promise<Scripted> {
  const options = {
    ...(rnics === undefined ? {} : { rnic: rnics.socket }),
    ...(receiveBuffer === undefined ? {} : { receiveBuffer }),
  };
  const server: RdmaServer = createServer(options).listen(0, '127.0.0.1');
  cleanup.push(() => server[Symbol.asyncDispose]());
  await once(server, 'listening');
  const session = new Session(rnics?.peer ?? openRnic(), { maxSendWr: 64, maxRecvWr: 64 });
  cleanup.push(() => session.close());
  const list = session.register(32);
  const buffer = session.register(4096);
  const inbox = new Inbox(session, !bigEndian);
  const privateData = encodeConnectionData({
    bigEndian,
    iomap: false,
    credits: 64,
    iomapSize: 0,
    targetSgl: { addr: list.addr, key: list.rkey, length: 2 },
    dataBuffer: { addr: buffer.addr, key: buffer.rkey, length: 2048 },
  });
  const accepted = once(server, 'connection') as Promise<RdmaSocket[]>;
  const connection = session.rnic.cm.connect(session.qp, {
    host: '127.0.0.1',
    port: (server.address() as { port: number }).port,
    privateData,
  });
  session.use(connection);
  await session.established;
  return {
    session,
    list,
    buffer,
    socket: (await accepted)[0]!,
    peer: decodeConnectionData(connection.parameters!.privateData),
    send: async (op, value) =>
      void (await session.execute({ opcode: 'send', inline: encodeMessage(op, value, true) })),
    next: () => inbox.next(),
  };
}
