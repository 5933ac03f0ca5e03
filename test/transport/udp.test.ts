/** The system's UDP as a network of datagrams. */
import { executionAsyncResource } from 'node:async_hooks';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import type { DatagramPort } from '../../src/transport/datagram.ts';
import type { PortAddress } from '../../src/transport/port.ts';
import { UdpNetwork } from '../../src/transport/udp.ts';
import { RECEIVE_BUFFER } from '../../src/trp/profile.ts';

const HOST = '127.0.0.1';
const LENGTH = 8972;
/** A full window of iWARP over UDP, which comes while the program is busy. */
const COUNT = 24;

it('a receive buffer that is asked for holds a window of datagrams', async () => {
  let received = 0;
  let all = (): void => undefined;
  const finished = new Promise<void>((resolve) => (all = resolve));
  const handler = { onDatagram: () => void (++received === COUNT && all()), onClose: () => undefined };
  const port = await new Promise<DatagramPort>((resolve, reject) => {
    new UdpNetwork().bind({ host: HOST, receiveBuffer: RECEIVE_BUFFER }, handler, (bound, error) => {
      if (bound === undefined) reject(error!);
      else resolve(bound);
    });
  });
  onTestFinished(() => port.close());
  const sender = createSocket('udp4');
  onTestFinished(() => void sender.close());
  sender.connect(port.address.port, HOST);
  await once(sender, 'connect');
  // In one turn of the event loop, in which nothing is received.
  for (let i = 0; i < COUNT; i++) sender.send(new Uint8Array(LENGTH));
  await Promise.race([finished, new Promise((resolve) => setTimeout(resolve, 2000).unref())]);
  expect(received).toBe(COUNT);
});

it('a burst is handed on in order at the end of its turn, and single datagrams at once', async () => {
  const BURST = 20;
  const ROUNDS = 10;
  const heard: number[] = [];
  let ticks = 0;
  let asked = false;
  let resume = (): void => undefined;
  const handler = {
    onDatagram: (bytes: Uint8Array) => {
      heard.push(bytes[0]! * 256 + bytes[1]!);
      resume();
      if (asked) return;
      asked = true;
      // What a program does with its completions: once for all that arrive together.
      process.nextTick(() => {
        asked = false;
        ticks++;
      });
    },
    onClose: () => undefined,
  };
  const port = await new Promise<DatagramPort>((resolve, reject) => {
    new UdpNetwork().bind({ host: HOST }, handler, (bound, error) => {
      if (bound === undefined) reject(error!);
      else resolve(bound);
    });
  });
  onTestFinished(() => port.close());
  const sender = createSocket('udp4');
  onTestFinished(() => void sender.close());
  sender.connect(port.address.port, HOST);
  await once(sender, 'connect');
  let sent = 0;
  /** Send `count` in one turn, and wait for all of them; the number of ticks that they took. */
  const send = async (count: number): Promise<number> => {
    ticks = 0;
    for (let i = 0; i < count; i++, sent++) sender.send(new Uint8Array([sent >> 8, sent & 255]));
    while (heard.length < sent) await new Promise<void>((resolve) => (resume = resolve));
    await new Promise((resolve) => setTimeout(resolve, 2));
    return ticks;
  };
  for (let round = 0; round < ROUNDS; round++) await send(BURST);
  expect(await send(BURST)).toBeLessThan(BURST / 4);
  // Back in a conversation, each one by itself.
  for (let i = 0; i < ROUNDS; i++) await send(1);
  const order: string[] = [];
  await new Promise((resolve) => setTimeout(resolve, 2)); // sockets are read next, and immediates run then
  setImmediate(() => order.push('end of the turn'));
  resume = () => void order.push('datagram');
  sender.send(new Uint8Array([sent >> 8, sent++ & 255]));
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(order).toEqual(['datagram', 'end of the turn']);
  expect(heard).toEqual(Array.from({ length: sent }, (_, i) => i));
});

it('a conversation whose answers come in the same turn is no burst', async () => {
  const COUNT = 200;
  const within = new Set<string>();
  let heard = 0;
  let all = (): void => undefined;
  const finished = new Promise<void>((resolve) => (all = resolve));
  const sender = createSocket('udp4');
  onTestFinished(() => void sender.close());
  let port: DatagramPort | undefined;
  const handler = {
    onDatagram: (_bytes: Uint8Array, _start: number, _end: number, from: PortAddress) => {
      within.add(executionAsyncResource().constructor.name);
      if (++heard === COUNT) all();
      port!.sendNow!(new Uint8Array(1), from);
      // As a quick peer does: libuv reads it in this turn.
      sender.send(new Uint8Array(1));
    },
    onClose: () => undefined,
  };
  port = await new Promise<DatagramPort>((resolve, reject) => {
    new UdpNetwork().bind({ host: HOST }, handler, (bound, error) => {
      if (bound === undefined) reject(error!);
      else resolve(bound);
    });
  });
  onTestFinished(() => port!.close());
  sender.connect(port.address.port, HOST);
  await once(sender, 'connect');
  sender.send(new Uint8Array(1));
  await finished;
  expect([...within]).toEqual(['UDP']);
});
