/**
 * perftest's control connection: one Send each way, the client's first. The peer posts one receive at a time,
 * so nothing is ever sent twice in a row; ours are posted ahead, and large enough for either form of the
 * destination.
 */
import { IwarpError } from '../../src/base/errors.ts';
import type { MemoryRegion } from '../../src/verbs/memory.ts';
import type { Session } from '../support/session.ts';
import {
  chooseMtu,
  decodeDestination,
  decodeFigures,
  decodeU32,
  decodeVersion,
  destinationOctets,
  encodeDestination,
  encodeFigures,
  encodeMtu,
  encodeU32,
  encodeVersion,
  NO_DESTINATION,
  OUR_VERSION,
  SHORT_DESTINATION,
  type BandwidthFigures,
  type Destination,
  type DestinationOctets,
} from './wire.ts';

const RECEIVE_OCTETS = 256;

/** Parameters that the two sides agree on before there are data connections. */
export interface SystemData {
  readonly version: string;
  /** The buffer that addresses cycle through, and the step. */
  readonly cycleBuffer: number;
  readonly cacheLine: number;
  readonly mtu: number;
}

export class Control {
  readonly session: Session;
  readonly #role: 'client' | 'server';
  readonly #receive: MemoryRegion;
  #destinationOctets: DestinationOctets = SHORT_DESTINATION;

  /** The session must not be connected yet: its receive has to be there first. */
  constructor(session: Session, role: 'client' | 'server') {
    this.session = session;
    this.#role = role;
    this.#receive = session.register(RECEIVE_OCTETS);
    session.postRecv({ mr: this.#receive });
  }

  /** Our message for the peer's. */
  async exchange(message: Uint8Array): Promise<Uint8Array> {
    if (this.#role === 'server') return await this.#answer(() => message);
    const answer = this.#next();
    answer.catch(() => undefined);
    await this.session.execute({ opcode: 'send', inline: message });
    return await answer;
  }

  /** A server sees the client's message before it answers. */
  async #answer(reply: (message: Uint8Array) => Uint8Array): Promise<Uint8Array> {
    const message = await this.#next();
    await this.session.execute({ opcode: 'send', inline: reply(message) });
    return message;
  }

  async #next(): Promise<Uint8Array> {
    const { byteLength } = await this.session.receive();
    const message = this.#receive.bytes.slice(0, byteLength);
    this.session.postRecv({ mr: this.#receive });
    return message;
  }

  /** Versions, page size, cache line, MTU. */
  async exchangeSystemData(wanted: {
    readonly mtu: number;
    readonly exchangeVersions: boolean;
  }): Promise<SystemData> {
    const PAGE = 4096;
    const CACHE_LINE = 64;
    if (!wanted.exchangeVersions)
      return { version: OUR_VERSION, cycleBuffer: PAGE, cacheLine: CACHE_LINE, mtu: wanted.mtu };
    const version = decodeVersion(await this.exchange(encodeVersion(OUR_VERSION)));
    this.#destinationOctets = destinationOctets(version);
    const cycleBuffer = Math.max(PAGE, decodeU32(await this.exchange(encodeU32(PAGE))));
    const cacheLine = Math.max(CACHE_LINE, decodeU32(await this.exchange(encodeU32(CACHE_LINE))));
    if (cycleBuffer > 1 << 24 || cacheLine > cycleBuffer) {
      throw new IwarpError(
        'ERR_INVALID_STATE',
        `the peer announces a buffer of ${cycleBuffer} and a cache line of ${cacheLine} bytes`,
      );
    }
    const mtu = chooseMtu(wanted.mtu, await this.exchange(encodeMtu(wanted.mtu)));
    return { version, cycleBuffer, cacheLine, mtu };
  }

  /** Tell a destination and hear the peer's. A server answers in the form that the client used. */
  async handshake(mine: Destination = NO_DESTINATION): Promise<Destination> {
    if (this.#role === 'client')
      return decodeDestination(await this.exchange(encodeDestination(mine, this.#destinationOctets)));
    let theirs = NO_DESTINATION;
    await this.#answer((message) => {
      theirs = decodeDestination(message);
      return encodeDestination(mine, message.length as DestinationOctets);
    });
    return theirs;
  }

  /** Five figures each way. */
  async exchangeFigures(mine: BandwidthFigures): Promise<BandwidthFigures> {
    const theirs: Uint8Array[] = [];
    for (const message of encodeFigures(mine)) theirs.push(await this.exchange(message));
    return decodeFigures(theirs);
  }
}
