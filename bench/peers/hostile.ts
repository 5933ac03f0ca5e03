/**
 * Peers that keep to the letter of the protocol and mean harm: they choose the costliest input for the
 * receiver. The octets are made beforehand where that can be, so that the attacker's cost is that of writing
 * to a socket.
 */
import { connect as netConnect, type Socket } from 'node:net';
import { once } from 'node:events';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import {
  DDP_CONTROL,
  putTaggedHeader,
  putUntaggedHeader,
  QN,
  TAGGED_HEADER_OCTETS,
  UNTAGGED_HEADER_OCTETS,
} from '../../src/ddp/wire.ts';
import {
  CRC_OCTETS,
  encodeStartupFrame,
  fpduBodyOctets,
  fpduOctets,
  MAX_MULPDU,
  STARTUP_HEADER_OCTETS,
  startupPdLength,
  ULPDU_LENGTH_OCTETS,
} from '../../src/mpa/wire.ts';
import { OPCODE, RDMAP_VERSION_SHIFT, READ_REQUEST, READ_REQUEST_OCTETS } from '../../src/rdmap/wire.ts';
import { HOST, type Place, type Side, type Tally } from './peer.ts';

/** The attack. `polite` is a good neighbour at full speed, the measure of the others. */
export const ATTACKS = [
  'polite',
  'one-octet',
  'tiny',
  'empty-writes',
  'empty-sends',
  'tiny-reads',
  'empty-reads',
  'unread',
  'half',
  'begun',
] as const;
export type AttackKind = (typeof ATTACKS)[number];

const READ_OCTETS = 65_536;
const STREAM_OCTETS = 262_144;
const LARGE_ULPDU = 60_000;
/** Of a half FPDU: most of a large one, or three octets. */
const HALF_OCTETS = 40_000;
const BEGUN_OCTETS = 3;
/** One write each, then the event loop gets its turn. */
const WRITES_A_TURN = 256;
/** Reads under way: what the peer of this benchmark grants. */
export const READS = 64;
const UNREAD_OCTETS = 1 << 20;
const quiet = (): void => undefined;

/** FPDUs put together in memory, by hand: an attacker has no stack. */
class Maker {
  readonly #crc = defaultCrc32cEngine();
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #place: Place;
  #end = 0;
  #sendMsn = 1;
  #readMsn = 1;

  constructor(octets: number, place: Place) {
    this.#bytes = this.#crc.allocate(octets + fpduOctets(MAX_MULPDU)).fill(0);
    this.#view = new DataView(this.#bytes.buffer, this.#bytes.byteOffset, this.#bytes.byteLength);
    this.#place = place;
  }

  write(payload: number): void {
    this.#fpdu(TAGGED_HEADER_OCTETS + payload, (view, at) =>
      putTaggedHeader(
        view,
        at,
        DDP_CONTROL.LAST | 1,
        (1 << RDMAP_VERSION_SHIFT) | OPCODE.RDMA_WRITE,
        this.#place.rkey!,
        0,
        0,
      ),
    );
  }

  send(): void {
    const msn = this.#sendMsn++;
    this.#fpdu(UNTAGGED_HEADER_OCTETS, (view, at) =>
      putUntaggedHeader(
        view,
        at,
        DDP_CONTROL.LAST | 1,
        (1 << RDMAP_VERSION_SHIFT) | OPCODE.SEND,
        0,
        QN.SEND,
        msn,
        0,
      ),
    );
  }

  readRequest(octets: number): void {
    const msn = this.#readMsn++;
    this.#fpdu(UNTAGGED_HEADER_OCTETS + READ_REQUEST_OCTETS, (view, at) => {
      putUntaggedHeader(
        view,
        at,
        DDP_CONTROL.LAST | 1,
        (1 << RDMAP_VERSION_SHIFT) | OPCODE.READ_REQUEST,
        0,
        QN.READ_REQUEST,
        msn,
        0,
      );
      const body = at + UNTAGGED_HEADER_OCTETS;
      view.setUint32(body + READ_REQUEST.SINK_STAG, 1);
      view.setUint32(body + READ_REQUEST.SIZE, octets);
      view.setUint32(body + READ_REQUEST.SOURCE_STAG, this.#place.rkey!);
    });
  }

  #fpdu(ulpdu: number, fill: (view: DataView, at: number) => void): void {
    const start = this.#end;
    const body = fpduBodyOctets(ulpdu);
    this.#view.setUint16(start, ulpdu);
    fill(this.#view, start + ULPDU_LENGTH_OCTETS);
    this.#view.setUint32(start + body, this.#crc.update(0, this.#bytes, start, start + body), true);
    this.#end = start + body + CRC_OCTETS;
  }

  /** Returns the octets made so far, and starts afresh. */
  take(): Uint8Array {
    const made = this.#bytes.slice(0, this.#end);
    this.#bytes.fill(0, 0, this.#end);
    this.#end = 0;
    return made;
  }

  fill(octets: number, one: () => void): Uint8Array {
    while (this.#end < octets) one();
    return this.take();
  }
}

/** A socket after a finished start-up: revision 1, CRC, no markers. */
async function open(place: Place, arrived: (octets: number) => void): Promise<Socket> {
  let reply = 0;
  let wanted = STARTUP_HEADER_OCTETS;
  let ready: () => void = quiet;
  const buffer = new Uint8Array(READ_OCTETS);
  const callback = (octets: number): boolean => {
    if (wanted === 0) {
      arrived(octets);
      return true;
    }
    // The Reply comes alone: the responder waits for the first FPDU (RFC 5044 7.1.2).
    if (reply === 0) wanted += startupPdLength(buffer, 0);
    reply += octets;
    if (reply >= wanted) {
      wanted = 0;
      ready();
    }
    return true;
  };
  const socket = netConnect({ host: HOST, port: place.port, noDelay: true, onread: { buffer, callback } });
  socket.on('error', quiet);
  const established = new Promise<void>((resolve, reject) => {
    ready = resolve;
    socket.once('close', () => reject(new Error('the server refuses the attacker')));
  });
  await once(socket, 'connect');
  // The server of this benchmark wants four octets of private data: its peer's STag, which nobody uses here.
  socket.write(
    encodeStartupFrame({
      kind: 'request',
      markers: false,
      crc: true,
      reject: false,
      revision: 1,
      enhanced: null,
      privateData: new Uint8Array(4),
    }),
  );
  await established;
  return socket;
}

/** Write `next()` again and again while the system takes it at once, one system call for each. */
function pump(socket: Socket, tally: Tally, next: () => Uint8Array): Side {
  let running = false;
  let scheduled = false;
  const turn = (): void => {
    scheduled = false;
    if (!running || socket.destroyed) return;
    for (let n = 0; n < WRITES_A_TURN && socket.writableLength === 0; n++) {
      const octets = next();
      socket.write(octets);
      tally.add(octets.length);
      tally.posts++;
    }
    if (socket.writableLength === 0) again();
  };
  const again = (): void => {
    if (scheduled) return;
    scheduled = true;
    setImmediate(turn);
  };
  socket.on('drain', again);
  // `drain` comes only after a full buffer; smaller remainders are looked after here.
  const timer = setInterval(() => {
    if (socket.writableLength === 0) again();
  }, 1);
  return {
    start: () => {
      running = true;
      again();
    },
    stop: () => (running = false),
    close: () => {
      clearInterval(timer);
      socket.destroy();
    },
  };
}

/** One after the other, in octets of `cut`. */
function cutter(stream: Uint8Array, cut: number): () => Uint8Array {
  const pieces = Array.from({ length: Math.ceil(stream.length / cut) }, (_, i) =>
    stream.subarray(i * cut, (i + 1) * cut),
  );
  let at = 0;
  return () => pieces[at++ % pieces.length]!;
}

/** Sends as many Reads as are granted, and after each answer the next. */
async function readFlood(place: Place, tally: Tally, octets: number): Promise<Side> {
  const maker = new Maker(STREAM_OCTETS, place);
  const response = fpduOctets(TAGGED_HEADER_OCTETS + octets);
  let running = false;
  let under = 0;
  let got = 0;
  let socket: Socket | null = null;
  const ask = (): void => {
    if (!running || under === READS) return;
    for (; under < READS; under++) maker.readRequest(octets);
    const requests = maker.take();
    tally.add(requests.length);
    tally.posts++;
    socket!.write(requests);
  };
  socket = await open(place, (arrived) => {
    got += arrived;
    under -= Math.floor(got / response);
    got %= response;
    ask();
  });
  return {
    start: () => {
      running = true;
      ask();
    },
    stop: () => (running = false),
    close: () => socket.destroy(),
  };
}

/** The same few octets on each connection, then silence; `deaf` sockets read nothing either. */
async function hold(
  place: Place,
  connections: number,
  tally: Tally,
  octets: Uint8Array,
  deaf: boolean,
): Promise<Side> {
  const sockets: Socket[] = [];
  for (let i = 0; i < connections; i++) {
    const socket = await open(place, quiet);
    if (deaf) socket.pause();
    sockets.push(socket);
  }
  let sent = false;
  const start = (): void => {
    if (sent) return;
    sent = true;
    for (const socket of sockets) {
      socket.write(octets);
      tally.add(octets.length);
    }
  };
  return { start, stop: quiet, close: () => sockets.forEach((socket) => socket.destroy()) };
}

/** Connect and make ready; nothing harmful is sent before `start`. */
export async function attack(
  kind: AttackKind,
  connections: number,
  place: Place,
  tally: Tally,
): Promise<Side> {
  const maker = new Maker(STREAM_OCTETS, place);
  const stream = (one: () => void): Uint8Array => maker.fill(STREAM_OCTETS, one);
  const flood = async (cut: number, octets: Uint8Array): Promise<Side> =>
    pump(await open(place, quiet), tally, cutter(octets, cut));
  switch (kind) {
    case 'polite':
      return await flood(
        READ_OCTETS,
        stream(() => maker.write(LARGE_ULPDU)),
      );
    case 'one-octet':
      return await flood(
        1,
        maker.fill(LARGE_ULPDU, () => maker.write(LARGE_ULPDU)),
      );
    case 'tiny':
      return await flood(
        READ_OCTETS,
        stream(() => maker.write(1)),
      );
    case 'empty-writes':
      return await flood(
        READ_OCTETS,
        stream(() => maker.write(0)),
      );
    case 'empty-sends':
      // Message numbers go on: made as they are needed.
      return pump(await open(place, quiet), tally, () => maker.fill(READ_OCTETS, () => maker.send()));
    case 'tiny-reads':
      return await readFlood(place, tally, 1);
    case 'empty-reads':
      return await readFlood(place, tally, 0);
    case 'unread': {
      for (let i = 0; i < READS; i++) maker.readRequest(UNREAD_OCTETS);
      return await hold(place, connections, tally, maker.take(), true);
    }
    case 'half': {
      maker.write(LARGE_ULPDU);
      return await hold(place, connections, tally, maker.take().subarray(0, HALF_OCTETS), false);
    }
    case 'begun': {
      maker.write(LARGE_ULPDU);
      return await hold(place, connections, tally, maker.take().subarray(0, BEGUN_OCTETS), false);
    }
  }
}
