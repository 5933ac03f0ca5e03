// Profile `rping`: the stock program on any iWARP machine, `rping -s -P` when the probe connects and `rping
// -c` when it connects to the probe. Its 16-octet advertisement (address, STag, length) makes the other end
// read from and write to memory, which is how the probe learns a name of the peer's memory. Every Send is
// exactly 16 octets and one receive is posted at a time.

import { Connection } from '../probe/connection.ts';
import { Deviation, Inapplicable, check } from '../probe/deviation.ts';
import { describeSegment } from '../probe/decode.ts';
import { parseReadRequest, tagged } from '../probe/messages.ts';
import type { ReadRequestFields } from '../probe/messages.ts';
import { OPCODE } from '../probe/wire.ts';
import type { Region } from './tester.ts';
import { startCommand } from './command.ts';
import type { Started } from './command.ts';
import type { Address, Capability, Profile, Session, SessionOptions } from './types.ts';

const ADVERTISEMENT_OCTETS = 16;
/** The sizes that rping takes as `-S`. */
export const RPING_SIZES = { min: 23, max: 65_535, usual: 64 } as const;
/**
 * Payload of one segment of the probe's Read Responses: the longest would not fit one FPDU, whose length has
 * 16 bits.
 */
const RESPONSE_OCTETS = 4096;
/** Names under which the probe offers its imaginary buffer. */
const SINK_STAG = 0x00c0_ff00;
const SINK_TO = 0x10_000n;

interface RpingOptions {
  readonly target?: Address | undefined;
  readonly listen: Address;
  /** The size that rping was started with as `-S`. */
  readonly size?: number | undefined;
  /** Command that starts one `rping -c` towards the probe; `{host}` and `{port}` are replaced. */
  readonly start?: string | undefined;
}

export function openRping(options: RpingOptions): Profile {
  const size = options.size ?? RPING_SIZES.usual;
  return {
    name: 'rping',
    capabilities: new Set<Capability>(['region', 'send']),
    roles: ['initiator', 'responder'],
    listen: options.listen,
    description:
      options.target === undefined
        ? `rping -c towards ${options.listen.host}:${options.listen.port}`
        : `rping -s at ${options.target.host}:${options.target.port}`,
    begin: async (session) => new RpingSession(options, session, size),
    close: async () => undefined,
  };
}

class RpingSession implements Session {
  readonly address: Address | null;
  readonly tester = null;
  readonly receiveSize: number = ADVERTISEMENT_OCTETS;
  readonly #role: SessionOptions['role'];
  readonly #start: string | undefined;
  readonly #size: number;
  #started: Started | null = null;
  #region: Region | null = null;

  constructor(options: RpingOptions, session: SessionOptions, size: number) {
    this.#role = session.role;
    this.address = session.role === 'initiator' ? (options.target ?? null) : null;
    this.#start = options.start;
    this.#size = size;
  }

  async invite(address: Address): Promise<void> {
    // Without a command the user keeps starting `rping -c`.
    if (this.#start !== undefined) this.#started = startCommand(this.#start, address);
  }

  /** The client advertises its source buffer at once. */
  async established(connection: Connection): Promise<void> {
    if (this.#role !== 'responder') return;
    const segment = await connection.expectOpcode(OPCODE.SEND, 'the advertisement of rping -c');
    this.#region = readAdvertisement(segment.payload);
  }

  async region(connection: Connection): Promise<Region> {
    this.#region ??= await this.#learnFromServer(connection);
    return this.#region;
  }

  /**
   * Advertise a source buffer: the server reads it, and its Read Request names the server's own buffer as the
   * sink.
   */
  async #learnFromServer(connection: Connection): Promise<Region> {
    connection.send(connection.makeSend(this.acceptableSend()));
    const segment = await connection.expectOpcode(OPCODE.READ_REQUEST, 'the Read Request of rping -s');
    const request = parseReadRequest(segment.payload);
    check(request !== null, 'a whole Read Request', describeSegment(segment));
    check(
      request.size === this.#size,
      `a Read Request for the ${this.#size} octets advertised`,
      `a Read Request for ${request.size} octets`,
    );
    respond(connection, request, pingData(request.size));
    await connection.expectOpcode(OPCODE.SEND, 'the go-ahead of rping -s');
    return { stag: request.sinkStag, to: request.sinkTo, length: this.#size, handle: -1 };
  }

  acceptableSend(): Uint8Array {
    const bytes = new Uint8Array(ADVERTISEMENT_OCTETS);
    const view = new DataView(bytes.buffer);
    view.setBigUint64(0, SINK_TO);
    view.setUint32(8, SINK_STAG);
    view.setUint32(12, this.#size);
    return bytes;
  }

  /**
   * The server answers an advertisement by a Read Request (or, the second time, a Write), the client by its
   * second advertisement.
   */
  async delivered(connection: Connection): Promise<void> {
    const wanted: readonly number[] =
      this.#role === 'initiator' ? [OPCODE.READ_REQUEST, OPCODE.RDMA_WRITE] : [OPCODE.SEND];
    const segment = await connection.expectSegment('the reaction of rping to a Send');
    if (!wanted.includes(segment.opcode))
      throw new Deviation('the reaction of rping to a Send', describeSegment(segment));
  }

  async close(): Promise<void> {
    await this.#started?.stop();
  }
}

function readAdvertisement(payload: Uint8Array): Region {
  if (payload.length !== ADVERTISEMENT_OCTETS)
    throw new Inapplicable(`the peer is no rping: its first Send has ${payload.length} octets`);
  const view = new DataView(payload.buffer, payload.byteOffset);
  return { to: view.getBigUint64(0), stag: view.getUint32(8), length: view.getUint32(12), handle: -1 };
}

/** The answer to a Read Request, in as many segments as it takes. */
function respond(connection: Connection, { sinkStag, sinkTo }: ReadRequestFields, data: Uint8Array): void {
  for (let at = 0; at < data.length; at += RESPONSE_OCTETS) {
    const payload = data.subarray(at, at + RESPONSE_OCTETS);
    connection.send(
      tagged({
        opcode: OPCODE.READ_RESPONSE,
        stag: sinkStag,
        to: sinkTo + BigInt(at),
        last: at + payload.length === data.length,
        payload,
      }),
    );
  }
}

/** The contents of an rping client's source buffer. */
function pingData(size: number): Uint8Array {
  const bytes = Uint8Array.from({ length: size }, (_, i) => 65 + (i % 58));
  bytes.set(new TextEncoder().encode('rdma-ping-0: ').subarray(0, size));
  if (size > 0) bytes[size - 1] = 0;
  return bytes;
}
