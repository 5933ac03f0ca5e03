/**
 * Frames between two endpoints of this package: requests and replies, announcements of large messages, and
 * streams. Several frames travel as one message, a batch: a Send with Solicited Event that begins with
 * {@link BATCH_MARK}. A message of the program that is solicited and begins so is announced instead, so that
 * none is taken for a batch.
 *
 * A frame is a header of 16 octets and a payload, big-endian: type u8, flags u8, zero u16, id u32, length of
 * the payload u32, and a number u32 whose meaning depends on the type.
 */
export const HEADER_OCTETS = 16;

/** "IWRPfrms": the first octets of a batch. */
const MARK_WORDS = [0x49_57_52_50, 0x66_72_6d_73] as const;
export const MARK_OCTETS = 8;

/** Write the mark at the front of a batch. */
export function writeMark(view: DataView): void {
  view.setUint32(0, MARK_WORDS[0]);
  view.setUint32(4, MARK_WORDS[1]);
}

/** Whether a solicited message is a batch. */
export function isBatch(bytes: Uint8Array): boolean {
  if (bytes.length < MARK_OCTETS) return false;
  const view = new DataView(bytes.buffer, bytes.byteOffset, MARK_OCTETS);
  return view.getUint32(0) === MARK_WORDS[0] && view.getUint32(4) === MARK_WORDS[1];
}

/** Types of frame. */
export const FRAME = {
  /** `id`: slot of the request; number: milliseconds until its deadline, or 0. */
  REQUEST: 1,
  /** `id`: slot of the request. */
  REPLY: 2,
  /** `id`: slot of the request; the payload is the text of the error. */
  ERROR: 3,
  /** The requester has given up; `id`: slot of the request. An answer follows all the same. */
  CANCEL: 4,
  /** A name is looked up; `id`: slot of the request; the reply is a ticket. */
  LOOKUP: 5,
  /**
   * A large message; `id`: its slot; flags: the {@link KIND}; number: slot of the request. The payload is a
   * ticket of 16 octets, and milliseconds until the deadline of a request, u32.
   */
  ANNOUNCE: 6,
  /** The announced message has been read, or is of no use any longer; `id`: its slot. */
  DONE: 7,
  /** The announced message is too large; `id`: its slot; number: the limit. */
  REFUSE: 8,
  /** The sender of an announced message has given up; `id`: its slot. DONE follows all the same. */
  WITHDRAW: 9,
  /** A stream begins; `id`: its slot; the payload is its name. */
  OPEN: 10,
  /** Bytes of a stream; flags as {@link OF_RECEIVER}. */
  DATA: 11,
  /** The reader of a stream takes further bytes; number: how many. */
  WINDOW: 12,
  /** No more bytes follow in this direction. */
  END: 13,
  /** The stream is broken off in both directions; answered by the same. */
  RESET: 14,
  /**
   * Bytes of a request or a reply that is larger than a frame; `id`: slot of the request; flags: the
   * {@link KIND}; number: length of the whole. The last bytes come as the frame REQUEST or REPLY itself, with
   * the flag {@link PARTED}.
   */
  PART: 15,
} as const;

/** Content of an announced message. */
export const KIND = { MESSAGE: 0, REQUEST: 1, REPLY: 2 } as const;
export type Kind = (typeof KIND)[keyof typeof KIND];

/** A flag of ERROR: the request has not been begun, because the responder is closing. */
export const NOT_BEGUN = 1;

/** A flag of ERROR: the request is above the responder's limit, which is the number. */
export const TOO_LARGE = 2;

/** A flag of REQUEST and REPLY: parts have come before it. */
export const PARTED = 2;

/** A flag of stream frames: the receiver of the frame has opened the stream. */
export const OF_RECEIVER = 1;

/** Octets of a ticket in an announcement, and with the deadline. */
export const TICKET_OCTETS = 16;
export const ANNOUNCE_OCTETS: number = TICKET_OCTETS + 4;

/** A batch holds any frame but requests, replies and data, which are cut or announced. */
export const LEAST_BATCH = 1536;

/**
 * A request or reply of up to this number of batches travels in parts. To copy so much costs less than to
 * announce it, and it bounds the memory of requests that are not whole.
 */
export const MOST_BATCHES = 5;

/** Large messages that each side may have announced and not seen done. */
export const MAX_ANNOUNCED = 64;
/** Streams that each side may have opened at a time. */
export const MAX_STREAMS = 256;
/** Bytes of a stream that may be under way to a reader. */
export const STREAM_WINDOW = 262_144;

/** A frame as it was received. The payload is a view of the batch or of its copy. */
export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly id: number;
  readonly number: number;
  readonly payload: Uint8Array;
}

/** The payload is copied somewhere else before the next batch, or is empty. */
function isPassing(type: number, flags: number, length: number): boolean {
  return length === 0 || type === FRAME.PART || (type <= FRAME.REPLY && flags === PARTED);
}

/**
 * Call `take` with each frame of a batch; false if the batch is no sequence of frames. What stays with the
 * program lies in the copy that `copy` makes of the batch, once.
 */
export function decodeBatch(
  batch: Uint8Array,
  copy: (batch: Uint8Array) => Uint8Array,
  take: (frame: Frame) => void,
): boolean {
  const view = new DataView(batch.buffer, batch.byteOffset, batch.length);
  let kept: Uint8Array | null = null;
  for (let at = MARK_OCTETS; at < batch.length; ) {
    if (batch.length - at < HEADER_OCTETS) return false;
    const length = view.getUint32(at + 8);
    const start = at + HEADER_OCTETS;
    const end = start + length;
    if (end > batch.length) return false;
    const type = batch[at]!;
    const flags = batch[at + 1]!;
    const source = isPassing(type, flags, length) ? batch : (kept ??= copy(batch));
    take({
      type,
      flags,
      id: view.getUint32(at + 4),
      number: view.getUint32(at + 12),
      payload: source.subarray(start, end),
    });
    at = end;
  }
  return true;
}
