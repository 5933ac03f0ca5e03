/**
 * Whether a stock program over rsockets has taken one grant twice. A side grants the other half of its
 * receive buffer at a time, by a Write of 16 octets (address, key, length) into the other's list of targets;
 * the other clears the length when it has filled that half. The copy of Linux 6.12 stores 16 octets twice. If
 * the program uses the grant up in between, the second store brings it back, and the half is written again.
 * The proof: a Write of the peer into a half that it had filled since its last update.
 */
import { OPCODE } from '../probe/wire.ts';
import { inCapture } from './capture-file.ts';
import { fpdusOf } from './captured.ts';
import type { CapturedFpdu, Side } from './captured.ts';

const GRANT_OCTETS = 16;

/** Half of our receive buffer, as we have granted it last. */
interface Half {
  readonly address: bigint;
  readonly length: number;
  /** Where in our stream the FPDU of the update begins. */
  readonly update: number;
  /** Octets from its beginning that the peer has written since. */
  filled: number;
}

/** The grants of one connection, by key. */
class Grants {
  readonly #halves = new Map<string, Half>();

  /** Take a Write of ours of 16 octets; other data names a key that the peer never writes to. */
  update({ segment, start }: CapturedFpdu): void {
    const { payload } = segment!;
    const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    const address = view.getBigUint64(0, true);
    const half = { address, length: view.getUint32(12, true), update: start, filled: 0 };
    if (half.length > 0) this.#halves.set(`${view.getUint32(8, true)} ${address}`, half);
  }

  /** Take a Write of the peer: the half that it had filled before, or null if that is not so. */
  fill({ segment }: CapturedFpdu): Half | null {
    const { stag, to, payload } = segment!;
    for (const [key, half] of this.#halves) {
      if (!key.startsWith(`${stag} `) || to < half.address || to >= half.address + BigInt(half.length))
        continue;
      if (half.filled === half.length) return half;
      const at = Number(to - half.address);
      // A place that is passed over leaves the half unfilled: nothing is proved by it.
      if (at <= half.filled) half.filled = Math.max(half.filled, at + payload.length);
    }
    return null;
  }
}

/**
 * Words on the fault, if our side has ended the connection because octets came where none were offered, and
 * the capture shows the Write. Null in all other cases. `ours` is the side that we were.
 */
export function grantTwiceFault(capture: Uint8Array, ours: Side, said: string): string | null {
  if (!/\b\d+ (?:bytes|octets) where 0 were offered/.test(said)) return null;
  const connections = new Map<number, Grants>();
  for (const fpdu of fpdusOf(capture)) {
    const { segment, connection, from, start, crcInUse, crcGood } = fpdu;
    if (segment === null || (crcInUse && !crcGood)) return null;
    if (segment.opcode !== OPCODE.RDMA_WRITE || segment.payload.length === 0) continue;
    let grants = connections.get(connection);
    if (grants === undefined) connections.set(connection, (grants = new Grants()));
    if (from === ours) {
      if (segment.payload.length === GRANT_OCTETS) grants.update(fpdu);
      continue;
    }
    const half = grants.fill(fpdu);
    if (half !== null)
      return (
        `at octet ${start} of connection ${connection} the peer wrote ${segment.payload.length} octets ` +
        `into a half of ${half.length} that it had filled since its last update, which is at octet ` +
        `${half.update} of ours: it took the grant twice (M2 of siw 6.12)`
      );
  }
  return null;
}

/** The result of `grantTwiceFault` for a file; null if there is no such file, or it is no capture. */
export function grantTwiceIn(path: string, ours: Side, said: string): string | null {
  return inCapture(path, (capture) => grantTwiceFault(capture, ours, said));
}
