// SDP in the decoder: a capture of a stream of ours names the set-up, the messages and what they advertise.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { main } from '../../cli/main.ts';
import { captureTo, openRnic } from '../../src/index.ts';
import { setupInFront } from '../../src/inspect/decode/sdp.ts';
import { encodeHello, encodeHelloAck, VERSION } from '../../src/sdp/wire.ts';
import { connect, createServer, type RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';

/** What `iwarp dissect` prints of a stream between these options. */
async function dissected(
  options: RdmaSocketOptions,
  talk: (socket: RdmaSocket, peer: RdmaSocket) => Promise<void>,
  ...flags: string[]
): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-sdp-'));
  const file = join(folder, 'sdp.pcap');
  const capture = captureTo(file);
  // Frames of workers are not captured.
  const rnic = openRnic({ engine: 'thread' });
  const common = { protocol: 'sdp', allowHalfOpen: true, rnic, ...options } as const;
  const server = createServer(common).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const socket = connect({ ...common, port, host: '127.0.0.1' });
  const [peer] = (await once(server, 'connection')) as [RdmaSocket];
  const closed = once(socket, 'close');
  await talk(socket, peer);
  await closed;
  await server[Symbol.asyncDispose]();
  capture.close();
  const write = process.stdout.write.bind(process.stdout);
  let text = '';
  process.stdout.write = ((piece: string | Uint8Array) => ((text += String(piece)), true)) as typeof write;
  try {
    expect(await main(['dissect', ...flags, file])).toBe(0);
  } finally {
    process.stdout.write = write;
    rmSync(folder, { recursive: true });
  }
  return text;
}

/** 100,000 bytes one way, four back. */
async function large(socket: RdmaSocket, peer: RdmaSocket): Promise<void> {
  peer.resume().on('end', () => peer.end('done'));
  socket.resume().end(Buffer.alloc(100_000));
  await Promise.resolve();
}

const SETUP = '4 buffers of 16384 bytes, 16 advertisements';

describe('dissect shows of a stream', () => {
  it.each(['private-data', 'streaming'] as const)(
    'Hello, HelloAck, SrcAvail, RdmaRdCompl and DisConn, with Hello in %s',
    async (placement) => {
      const text = await dissected({ mode: 'source', placement }, large);
      if (placement === 'private-data')
        for (const [kind, frame] of [
          ['Hello', 'MPA Req'],
          ['HelloAck', 'MPA Rep'],
        ])
          expect(text).toMatch(new RegExp(`${frame} .*  SDP ${kind}, ${SETUP}$`, 'm'));
      else
        for (const [kind, octets, arrow] of [
          ['Hello', 68, '→'],
          ['HelloAck', 24, '←'],
        ]) {
          const front = `${octets} bytes in front of the MPA frame`;
          expect(text).toMatch(new RegExp(`^.*${arrow} .* at 0: ${front}: SDP ${kind}, ${SETUP}$`, 'm'));
        }
      expect(text).toMatch(
        /SDP SrcAvail 100000 at 0x[0-9a-f]{8}\+0x[0-9a-f]+, 1 byte, seq \d+ ack \d+ bufs \d+/,
      );
      expect(text).toMatch(/SDP RdmaRdCompl 99999,/);
      expect(text).toMatch(/SDP DisConn, seq/);
      expect(text).toMatch(/SDP Data, 4 bytes/);
      expect(text).not.toMatch(/passed over/);
    },
  );

  it('ModeChange, SinkAvail and RdmaWrCompl, and the flag that asks for them', async () => {
    const place = new Uint8Array(60_000);
    const text = await dissected({ mode: 'sink' }, async (socket, peer) => {
      const first = peer.receiveInto(place);
      socket.write(Buffer.alloc(1)); // behind it the place is advertised
      let octets = await first;
      const second = peer.receiveInto(place);
      await new Promise((resolve) => setTimeout(resolve, 200));
      socket.resume().end(Buffer.alloc(60_000));
      octets += await second;
      while (octets < 60_001) octets += await peer.receiveInto(place);
      peer.end();
    });
    expect(text).toMatch(/SDP Data.*, flags 4, seq/);
    expect(text).toMatch(/SDP ModeChange pipelined, receive half, seq/);
    expect(text).toMatch(/SDP SinkAvail 60000 at 0x[0-9a-f]{8}\+0x[0-9a-f]+ non-discards 1, seq/);
    expect(text).toMatch(/SDP RdmaWrCompl \d+, seq/);
  });

  it('Hello in front of MPA as a field in JSON', async () => {
    const text = await dissected({ placement: 'streaming' }, large, '--json');
    const notes = text
      .split('\n')
      .filter((line) => line.includes('"note"'))
      .map((line) => JSON.parse(line) as { sdp?: unknown });
    const common = { bufs: 4, size: 16_384, maxAdverts: 16 };
    expect(notes.map(({ sdp }) => sdp)).toEqual([
      { kind: 'Hello', ...common },
      { kind: 'HelloAck', ...common },
    ]);
  });
});

it('only a whole Hello or HelloAck in front of MPA is one', () => {
  const common = { version: VERSION, family: 4, invalidates: true, maxAdverts: 16, bufs: 4 } as const;
  const set = { ...common, localSize: 4096, copyOnWrite: false };
  const address = new Uint8Array(16);
  const ends = { desiredSize: 4096, port: 0, source: address, destination: address };
  const hello = encodeHello({ ...set, ...ends });
  expect(setupInFront(hello)).toEqual({ kind: 'Hello', bufs: 4, size: 4096, maxAdverts: 16 });
  const ack = encodeHelloAck(set);
  expect(setupInFront(ack)).toEqual({ kind: 'HelloAck', bufs: 4, size: 4096, maxAdverts: 16 });
  for (const whole of [hello, ack])
    for (let octets = 0; octets < whole.length; octets++)
      expect(setupInFront(whole.subarray(0, octets))).toBeUndefined();
  expect(setupInFront(Buffer.concat([hello, Buffer.alloc(1)]))).toBeUndefined();
  expect(setupInFront(Buffer.from('GET / HTTP/1.1\r\n\r\n'))).toBeUndefined();
});
