/**
 * Reads a capture file, or standard input, in pieces. This is the only file of `inspect` that needs Node:
 * everything else takes bytes from its caller, and so runs in a browser too.
 */
import { closeSync, openSync, readSync } from 'node:fs';

const READ_OCTETS = 1 << 20;
const POLL_MS = 10;

/** Takes the bytes of a capture file: `CaptureDissector`, `CaptureFile`. */
interface CaptureReader {
  push(bytes: Uint8Array): void;
  end(): void;
}

/**
 * Read the capture file at `path` from beginning to end; `-` is standard input. `afterPiece` is called after
 * each piece. Throws the errors of the file system, and those of `reader`: a `CaptureDissector` throws
 * ERR_INVALID_ARGUMENT for a file that is not a capture.
 */
export function readCaptureFile(path: string, reader: CaptureReader, afterPiece?: () => void): void {
  const descriptor = path === '-' ? 0 : openSync(path, 'r');
  try {
    const piece = new Uint8Array(READ_OCTETS);
    for (let octets = readSome(descriptor, piece); octets > 0; octets = readSome(descriptor, piece)) {
      reader.push(piece.subarray(0, octets));
      afterPiece?.();
    }
    reader.end();
  } finally {
    if (descriptor !== 0) closeSync(descriptor);
  }
}

/**
 * A terminal or a pipe that another process made non-blocking reports EAGAIN while it has no bytes: ask again
 * until it has some. On Windows the end of a pipe is an error.
 */
function readSome(descriptor: number, piece: Uint8Array): number {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (;;) {
    try {
      return readSync(descriptor, piece);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EOF') return 0;
      if (code !== 'EAGAIN') throw error;
      Atomics.wait(pause, 0, 0, POLL_MS);
    }
  }
}
