/** The protocols that a stream can speak, each with its channel and its private data. */
import type { Rnic } from '../api/environment.ts';
import type { CmConnection } from '../cm/index.ts';
import { Channel } from '../rsocket/channel.ts';
import { decodeConnectionData, type ConnectionData } from '../rsocket/wire.ts';
import { SdpChannel } from '../sdp/channel.ts';
import { decodeHello, type Hello, type HelloAck } from '../sdp/wire.ts';
import type { QueuePair } from '../verbs/qp.ts';
import type { ByteChannel, ChannelHandler } from './byte-channel.ts';
import type { RdmaSocketOptions, StreamProtocolName } from './options.ts';

/** Decoded private data of a request, one form for each protocol. */
export type StreamPeer = ConnectionData | Hello;

/** A channel on a queue pair that is still to be connected. */
export interface ConnectedChannel extends ByteChannel {
  readonly qp: QueuePair;
  readonly connectionData: Uint8Array;
  /** Reads that each side may have outstanding. */
  readonly depth: number;
  use(connection: CmConnection, peer: StreamPeer | HelloAck | null): void;
}

/** One protocol. */
interface StreamProtocol {
  make(rnic: Rnic, options: RdmaSocketOptions, handler: ChannelHandler): ConnectedChannel;
  decode(privateData: Uint8Array): StreamPeer | null;
}

const PROTOCOLS: Readonly<Record<StreamProtocolName, StreamProtocol>> = {
  rsocket: {
    make: (rnic, options, handler) => new Channel(rnic, options, handler) as ConnectedChannel,
    decode: (privateData) => {
      try {
        return decodeConnectionData(privateData);
      } catch {
        return null;
      }
    },
  },
  sdp: {
    make: (rnic, options, handler) => new SdpChannel(rnic, options, handler) as ConnectedChannel,
    decode: (privateData) => {
      const hello = decodeHello(privateData);
      return typeof hello === 'string' ? null : hello;
    },
  },
};

/** The two ends agree in front of the MPA frames. */
export function agreesFirst({ protocol, placement }: RdmaSocketOptions): boolean {
  return protocol === 'sdp' && placement === 'streaming';
}

/** A channel whose peer has sent its Hello in front of MPA, and the answer. */
export function answering(
  rnic: Rnic,
  options: RdmaSocketOptions,
  handler: ChannelHandler,
  hello: Hello,
): { readonly channel: ConnectedChannel; readonly ack: Uint8Array } {
  const channel = new SdpChannel(rnic, options, handler);
  return { channel: channel as ConnectedChannel, ack: channel.answer(hello) };
}

export function protocolOf({ protocol }: RdmaSocketOptions): StreamProtocol {
  return PROTOCOLS[protocol ?? 'rsocket'];
}
