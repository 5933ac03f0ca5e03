/** What a client's device needs of one connection, whatever carries it. */
import type { BlockSizes, ExtentDescriptor } from './wire.ts';

/** What a server has said of its export. */
export interface ExportInfo {
  /** Name that the client asked for; empty for the default export. */
  readonly name: string;
  /** Size in bytes. */
  readonly size: bigint;
  /** Transmission flags. */
  readonly flags: number;
  /** Block sizes in bytes that requests keep to. */
  readonly blocks: BlockSizes;
  /** Replies are structured. */
  readonly structured: boolean;
  /** base:allocation has been agreed on. */
  readonly blockStatus: boolean;
}

/** One connection in the transmission phase. */
export interface NbdLink {
  readonly info: ExportInfo;
  readonly transport: 'stream' | 'message' | 'direct';
  /** False once the connection takes no request. */
  readonly isOpen: boolean;
  /** Requests under way. */
  readonly inFlight: number;
  /** Resolves when the connection has ended, with the error that ended it. */
  readonly closed: Promise<Error | undefined>;
  /** Send a request; `data` is filled by READ and sent by WRITE. Resolves with the reply. */
  request(request: LinkRequest, signal?: AbortSignal): Promise<readonly ExtentDescriptor[]>;
  /** Send DISC, then end the connection; requests under way are answered first. */
  close(): Promise<void>;
  /** Drop the connection. */
  destroy(error: Error): void;
}

export interface LinkRequest {
  readonly command: number;
  readonly flags: number;
  readonly offset: bigint;
  readonly length: number;
  readonly data: Uint8Array;
}
