/** Bidirectional streams of @grpc/grpc-js, one on each connection, messages as plain octets. */
import * as grpc from '@grpc/grpc-js';
import type { CaseSpec } from '../types.ts';
import {
  depthOf,
  HOST,
  keepUnderWay,
  PingPong,
  together,
  untilStopped,
  type Place,
  type Side,
  type Tally,
} from './peer.ts';

const MAX_PAYLOAD = 1 << 27;
const PATH = '/bench/Stream';
const quiet = (): void => undefined;
const same = (octets: Buffer): Buffer => octets;

export async function serve(spec: CaseSpec, tally: Tally): Promise<{ place: Place; side: Side }> {
  const server = new grpc.Server({
    'grpc.max_receive_message_length': MAX_PAYLOAD,
    'grpc.max_send_message_length': MAX_PAYLOAD,
  });
  const stream = (call: grpc.ServerDuplexStream<Buffer, Buffer>): void => {
    call.on('error', quiet);
    call.on('data', (data: Buffer) => {
      tally.add(data.length);
      if (spec.test === 'lat') call.write(data);
    });
    call.on('end', () => call.end());
  };
  const method = {
    path: PATH,
    requestStream: true,
    responseStream: true,
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  };
  server.addService({ Stream: method }, { Stream: stream });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(`${HOST}:0`, grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  return { place: { port }, side: { start: quiet, stop: quiet, close: () => server.forceShutdown() } };
}

type Call = grpc.ClientDuplexStream<Buffer, Buffer>;

/** Separate connections: channels to one address would share one. */
async function connectOne(place: Place): Promise<Call> {
  const client = new grpc.Client(`${HOST}:${place.port}`, grpc.credentials.createInsecure(), {
    'grpc.max_receive_message_length': MAX_PAYLOAD,
    'grpc.max_send_message_length': MAX_PAYLOAD,
    'grpc.use_local_subchannel_pool': 1,
  });
  await new Promise<void>((resolve, reject) =>
    client.waitForReady(Date.now() + 5000, (error) => (error ? reject(error) : resolve())),
  );
  const call = client.makeBidiStreamRequest<Buffer, Buffer>(PATH, same, same);
  call.on('error', quiet);
  return call;
}

export async function connect(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  const calls = await Promise.all(Array.from({ length: spec.connections }, () => connectOne(place)));
  const message = Buffer.alloc(spec.size, 7);
  const close = (): void => calls.forEach((call) => call.cancel());
  if (spec.test === 'lat') {
    const [call] = calls as [Call];
    const pingPong = new PingPong(() => void call.write(message));
    call.on('data', () => pingPong.answered());
    return {
      start: () => pingPong.start(),
      stop: () => pingPong.stop(),
      takeLatency: () => pingPong.take(),
      close,
    };
  }
  const depth = depthOf(spec);
  const senders = calls.map((call) =>
    spec.inFlight === 0
      ? untilStopped(call, tally, message)
      : keepUnderWay(depth, tally, (done) => call.write(message, done)),
  );
  for (const call of calls) call.on('data', quiet);
  return { ...together(senders), close };
}
