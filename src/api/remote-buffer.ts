/** Remote buffers: the ticket that one side sends, so that the other can read and write its memory. */
import { brand } from '../base/brand.ts';
import { checkBytes, checkInteger, checkObject, IwarpError, show } from '../base/errors.ts';
import { displayAs } from './display.ts';
import { asNumberIfSafe, checkU64, hi32, lo32, toBigInt } from '../base/u64.ts';

/** @internal Throws ERR_INVALID_ARGUMENT unless `remote` is a RemoteBuffer. */
export function checkRemote(name: string, remote: unknown): RemoteBuffer {
  if (remote instanceof RemoteBuffer) return remote;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a RemoteBuffer, got ${show(remote)}`);
}

/** Bytes of a serialised remote buffer. */
export const REMOTE_BUFFER_OCTETS = 16;
/** @internal Most bytes of memory that a ticket can be for. */
export const MAX_TICKET = 0xffff_ffff;

/**
 * A ticket to memory of the peer: STag, tagged offset and length. On the wire it has sixteen bytes,
 * big-endian: address u64, STag u32, length u32 (the layout that rping uses).
 *
 * @example
 * await connection.send(RemoteBuffer.of(region).toBytes());
 * const remote = RemoteBuffer.fromBytes(message.data);
 */
export class RemoteBuffer {
  static {
    brand(this, 'RemoteBuffer');
  }

  static {
    // The rkey is a secret, so that logs show only its last byte.
    displayAs(RemoteBuffer, ({ length, address, rkey }) => ({
      length,
      address,
      rkey: `…${(rkey & 0xff).toString(16).padStart(2, '0')}`,
    }));
  }

  /**
   * STag of the region, u32. It is all that a peer needs to use the region's rights, so treat it as a secret.
   */
  readonly rkey: number;
  /** Tagged offset of the first octet: u64. */
  readonly address: bigint;
  /** Length in bytes, 0 to 2^32 - 1. */
  readonly length: number;
  /** @internal The address as requests take it. */
  readonly at: bigint | number;

  /** A ticket to `length` bytes at `address` of the peer's region that `rkey` names. */
  constructor(rkey: number, address: bigint | number, length: number) {
    this.rkey = checkInteger('rkey', rkey, 0, 0xffff_ffff);
    this.address = BigInt(checkU64('address', address));
    this.length = checkInteger('length', length, 0, MAX_TICKET);
    this.at = asNumberIfSafe(this.address);
  }

  /** The ticket to the whole of a registered region or a bound window. */
  static of(region: { readonly rkey: number; readonly addr: bigint; readonly length: number }): RemoteBuffer {
    checkObject('region', region);
    return new RemoteBuffer(region.rkey, region.addr, Math.min(region.length, MAX_TICKET));
  }

  /**
   * A ticket to a part of this buffer. Without `length` the part goes to the end.
   *
   * @throws ERR_INVALID_ARGUMENT for a wrong type or a negative number, ERR_OUT_OF_RANGE beyond the end
   *
   * @example
   * const header = remote.slice(0, 64);
   */
  slice(offset: number, length?: number): RemoteBuffer {
    checkInteger('offset', offset, 0, Number.MAX_SAFE_INTEGER);
    const octets =
      length === undefined
        ? Math.max(this.length - offset, 0)
        : checkInteger('length', length, 0, Number.MAX_SAFE_INTEGER);
    if (offset + octets > this.length) {
      throw new IwarpError(
        'ERR_OUT_OF_RANGE',
        `${octets} bytes from ${offset} pass the remote buffer's ${this.length} bytes`,
      );
    }
    return new RemoteBuffer(this.rkey, this.address + BigInt(offset), octets);
  }

  /** Encode as sixteen bytes, big-endian: address u64, rkey u32, length u32. */
  toBytes(): Uint8Array {
    const bytes = new Uint8Array(REMOTE_BUFFER_OCTETS);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, hi32(this.address));
    view.setUint32(4, lo32(this.address));
    view.setUint32(8, this.rkey);
    view.setUint32(12, this.length);
    return bytes;
  }

  /** Decode the first sixteen bytes of `data`. ERR_INVALID_ARGUMENT if there are fewer. */
  static fromBytes(data: ArrayBufferView): RemoteBuffer {
    const bytes = checkBytes('data', data);
    if (bytes.length < REMOTE_BUFFER_OCTETS) {
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        `data must have ${REMOTE_BUFFER_OCTETS} bytes, got ${bytes.length}`,
      );
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, REMOTE_BUFFER_OCTETS);
    return new RemoteBuffer(
      view.getUint32(8),
      toBigInt(view.getUint32(0), view.getUint32(4)),
      view.getUint32(12),
    );
  }

  /**
   * The object that `JSON.stringify` writes. Its address is a decimal string, because a number has only 53
   * bits.
   */
  toJSON(): { rkey: number; address: string; length: number } {
    return { rkey: this.rkey, address: this.address.toString(), length: this.length };
  }

  /**
   * Make a remote buffer of what {@link RemoteBuffer.toJSON} gave.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE
   *
   * @example
   * const remote = RemoteBuffer.fromJSON(JSON.parse(text));
   */
  static fromJSON(value: unknown): RemoteBuffer {
    const { rkey, address, length } = (value ?? {}) as Record<string, unknown>;
    if (typeof address !== 'string' || !/^\d+$/.test(address)) {
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        `value.address must be a decimal string, got ${show(address)}`,
      );
    }
    return new RemoteBuffer(rkey as number, BigInt(address), length as number);
  }
}
