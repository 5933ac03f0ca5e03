/**
 * Whether stock riostream has taken a message for complete too early. It watches the last octet of its mapped
 * buffer and then looks at the rest. siw of Linux 6.12 places payload with a copy that may store the end
 * before the middle, so the last octet can be there first. The proof is in our octets alone: at the moment at
 * which the last octet of that message was on the wire, all octets before it had been, and were right.
 */
import { OPCODE } from '../probe/wire.ts';
import { inCapture } from './capture-file.ts';
import { fpdusOf } from './captured.ts';
import type { Side } from './captured.ts';

/** Our Writes to one STag, in the order in which they were sent. */
interface Buffer {
  readonly connection: number;
  readonly writes: { readonly to: bigint; readonly octets: Uint8Array }[];
  total: number;
}

/** The number of the octet that the stock side calls wrong, counted over its run; null if it says nothing. */
function wrongOctet(said: string): number | null {
  const found = /stock (?:client|server): [^;]*data verification failed byte (\d+)/.exec(said);
  return found === null ? null : Number(found[1]);
}

/** The buffer of the peer that we have written most to; null if none, or if an FPDU of ours is wrong. */
function mappedBuffer(capture: Uint8Array, ours: Side): Buffer | null {
  const buffers = new Map<string, Buffer>();
  for (const { from, segment, connection, crcInUse, crcGood } of fpdusOf(capture)) {
    if (from !== ours) continue;
    if (segment === null || (crcInUse && !crcGood)) return null;
    if (segment.opcode !== OPCODE.RDMA_WRITE || segment.payload.length === 0) continue;
    const key = `${connection} ${segment.stag}`;
    let buffer = buffers.get(key);
    if (buffer === undefined) buffers.set(key, (buffer = { connection, writes: [], total: 0 }));
    buffer.writes.push({ to: segment.to, octets: segment.payload });
    buffer.total += segment.payload.length;
  }
  const [most] = [...buffers.values()].sort((a, b) => b.total - a.total);
  return most ?? null;
}

/** The buffer of riostream as the wire fills it. */
class Image {
  readonly #octets: Uint8Array;

  constructor(size: number) {
    this.#octets = new Uint8Array(size);
  }

  place(at: number, octets: Uint8Array): void {
    this.#octets.set(octets, at);
  }

  get marker(): number {
    return this.#octets.at(-1)!;
  }

  /** riostream's octets count up over all messages; the last of each is the marker. */
  isMessage(number: number): boolean {
    const first = number * (this.#octets.length - 1);
    return this.#octets.subarray(0, -1).every((octet, i) => octet === ((first + i) & 0xff));
  }
}

/**
 * Words on the fault, if the stock side says that an octet is wrong, and the capture shows that the whole
 * message with that octet was right when its last octet was sent, as were all before it. Null in all other
 * cases. `ours` is the side that we were.
 */
export function lastOctetFirstFault(capture: Uint8Array, ours: Side, said: string): string | null {
  const wrong = wrongOctet(said);
  const buffer = wrong === null ? null : mappedBuffer(capture, ours);
  if (wrong === null || buffer === null) return null;
  const { writes, connection } = buffer;
  const base = writes.reduce((least, { to }) => (to < least ? to : least), writes[0]!.to);
  const placed = writes.map(({ to, octets }) => ({ at: Number(to - base), octets }));
  const size = Math.max(...placed.map(({ at, octets }) => at + octets.length));
  if (size < 2) return null;
  const image = new Image(size);
  let message = 0;
  for (const { at, octets } of placed) {
    image.place(at, octets);
    // The two sides count the markers together: the client has the even ones.
    const marker = (message * 2 + (ours === 'client' ? 0 : 1)) & 0xff;
    // Messages that are not verified come in front, with the marker of the one before.
    if (at + octets.length < size || image.marker !== marker) continue;
    const first = message * (size - 1);
    // The buffer begins with zeros, as does a first marker: that one may be of a message before.
    if (!image.isMessage(message)) {
      if (message === 0) continue;
      return null;
    }
    if (wrong >= first && wrong < first + size - 1)
      return (
        `octet ${wrong} was right on the wire, as was all of message ${message} of connection ` +
        `${connection} when its last octet was sent: riostream watches that octet, and siw stores it ` +
        'before the others (M1 of siw 6.12)'
      );
    message++;
  }
  return null;
}

/** The result of `lastOctetFirstFault` for a file; null if there is no such file, or it is no capture. */
export function lastOctetFirstIn(path: string, ours: Side, said: string): string | null {
  return inCapture(path, (capture) => lastOctetFirstFault(capture, ours, said));
}
