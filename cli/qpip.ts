/**
 * `iwarp qpip`: queue pairs over plain TCP and UDP, opposite any program. `echo` sends received bytes back,
 * `send` sends standard input and prints the answer.
 */
import { pipeline } from 'node:stream/promises';
import { parseArgs } from 'node:util';
import { openRnic, type EngineKind, type Rnic } from '../src/api/environment.ts';
import { checkInteger, checkOneOf, IwarpError } from '../src/base/errors.ts';
import type { PassiveConnection } from '../src/cm/index.ts';
import type { Framing } from '../src/qpip/framing.ts';
import { connectDuplex } from '../src/qpip/duplex.ts';
import { ACCESS, type CompletionQueue, type WorkCompletion } from '../src/verbs/index.ts';
import { PROCESS_IO, type ToolIo } from './support/tool.ts';

const USAGE = `usage: iwarp qpip echo [--tcp PORT] [--udp PORT] [--host ADDR] [--framing none|length|segment]
           [--engine thread|worker]
       iwarp qpip send HOST PORT --tcp|--udp [--framing none|length|segment] [--wait MS]
           [--engine thread|worker]

  echo      send back what comes, by queue pairs over plain TCP and UDP; port 0 picks a free one
  send      standard input to the peer, its answer to standard output
  --host    IP address to listen on; default 127.0.0.1
  --framing how messages lie in the TCP stream; default none
  --wait    send --udp: how long to wait for an answer after the last one, in milliseconds; default 1000
`;

const RECEIVES = 16;
const RECEIVE_BYTES = 65_536;
/** Bytes that fit into a packet of Ethernet, whatever the headers. */
const DATAGRAM_BYTES = 1_400;
/** The peer may take its time to end after we have. */
const CLOSE_MS = 600_000;

/** Entry point; the result is the exit status. */
export async function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  const [command = '', ...rest] = args;
  try {
    if (command === '--help' || command === '-h' || rest.includes('--help')) io.out(USAGE);
    else if (command === 'echo') await echo(rest, io);
    else if (command === 'send') await send(rest, io);
    else throw new IwarpError('ERR_INVALID_ARGUMENT', 'give echo or send');
    return 0;
  } catch (error) {
    const isUsage =
      error instanceof TypeError || (error instanceof IwarpError && error.code === 'ERR_INVALID_ARGUMENT');
    if (!isUsage && !(error instanceof IwarpError)) throw error;
    io.err(`qpip: ${(error as Error).message}\n${isUsage ? USAGE : ''}`);
    return isUsage ? 2 : 1;
  }
}

function rnicFor(engine: string | undefined): Rnic {
  return openRnic({ wire: 'qpip', ...(engine !== undefined && { engine: engine as EngineKind }) });
}

function framingOf(text: string = 'none'): Framing {
  return checkOneOf('--framing', text as Framing, ['none', 'length', 'segment']);
}

function numberOf(name: string, text: string, min: number, max: number): number {
  return checkInteger(name, /^\d+$/.test(text) ? Number(text) : Number.NaN, min, max);
}

/** Calls `each` for what completes on the queue, until the queue is destroyed. */
function handleAll(cq: CompletionQueue, each: (wc: WorkCompletion) => void): void {
  const out: WorkCompletion[] = [];
  cq.setHandler(() => {
    do {
      for (let n = cq.poll(out, RECEIVES); n > 0; n = cq.destroyed ? 0 : cq.poll(out, RECEIVES))
        for (let i = 0; i < n; i++) each(out[i]!);
      if (cq.destroyed) return;
      cq.requestNotify();
    } while (cq.length > 0);
  });
  cq.requestNotify();
}

// ------------------------------------------------------------------------------------------------------ echo

async function echo(args: string[], io: ToolIo): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      tcp: { type: 'string' },
      udp: { type: 'string' },
      host: { type: 'string', default: '127.0.0.1' },
      framing: { type: 'string' },
      engine: { type: 'string' },
    },
  });
  const { tcp, udp, host } = values;
  if (tcp === undefined && udp === undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'echo needs --tcp, --udp or both');
  const rnic = rnicFor(values.engine);
  const framing = framingOf(values.framing);
  const closers: (() => void)[] = [];
  if (tcp !== undefined) {
    const port = numberOf('--tcp', tcp, 0, 65_535);
    const listener = await rnic.cm.listen(
      { host, port, framing, policy: { closeTimeout: CLOSE_MS } },
      (request) => echoStream(rnic, request),
    );
    io.out(`echo on tcp ${hostPort(listener.address)}\n`);
    io.listening?.(listener.address.port);
    closers.push(() => listener.close());
  }
  if (udp !== undefined)
    closers.push(await echoDatagrams(rnic, { host, port: numberOf('--udp', udp, 0, 65_535) }, io));
  await untilStopped(io);
  for (const close of closers) close();
  for (const connection of rnic.cm.connections) connection.abort();
}

const hostPort = ({ address, port }: { readonly address: string; readonly port: number }): string =>
  `${address.includes(':') ? `[${address}]` : address}:${port}`;

/**
 * Echoes one connection. Each receive buffer is sent from its place and posted again once that Send
 * completes: the echo stops reading from a peer that does not read.
 */
function echoStream({ device }: Rnic, request: PassiveConnection): void {
  const pd = device.allocatePd();
  const cq = device.createCq(2 * RECEIVES);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: RECEIVES, maxRecvWr: RECEIVES });
  const mr = pd.registerMemory(device.allocateMemory(RECEIVES * RECEIVE_BYTES), ACCESS.LOCAL_WRITE);
  let peer: 'open' | 'ended' = 'open';
  let echoes = 0;
  const receive = (slot: number): void => {
    qp.postRecv({ wrId: slot, sges: [{ mr, offset: slot * RECEIVE_BYTES, length: RECEIVE_BYTES }] });
  };
  const endWithPeer = (): void => {
    if (peer === 'ended' && echoes === 0 && cq.length === 0) request.disconnect();
  };
  handleAll(cq, ({ opcode, status, wrId, byteLength }) => {
    if (opcode === 'send') echoes--;
    if (status === 'success' && opcode === 'send') receive(Number(wrId));
    else if (status === 'success') {
      echoes++;
      qp.postSend({
        wrId,
        opcode: 'send',
        sges: [{ mr, offset: Number(wrId) * RECEIVE_BYTES, length: byteLength }],
      });
    }
    endWithPeer();
  });
  for (let slot = 0; slot < RECEIVES; slot++) receive(slot);
  request.setHandler((event) => {
    if (event.type === 'closing' && event.by === 'peer') {
      peer = 'ended';
      endWithPeer();
    }
    if (event.type !== 'disconnected') return;
    qp.destroy();
    cq.destroy();
    mr.deregister();
    pd.deallocate();
  });
  request.accept(qp);
}

async function echoDatagrams(
  { device }: Rnic,
  where: { readonly host: string; readonly port: number },
  io: ToolIo,
): Promise<() => void> {
  const pd = device.allocatePd();
  const cq = device.createCq(2 * RECEIVES);
  const dqp = pd.createDatagramQp({ sendCq: cq, recvCq: cq, maxSendWr: RECEIVES, maxRecvWr: RECEIVES });
  const mr = pd.registerMemory(device.allocateMemory(RECEIVES * RECEIVE_BYTES), ACCESS.LOCAL_WRITE);
  const receive = (slot: number): void => {
    dqp.postRecv({ wrId: slot, sges: [{ mr, offset: slot * RECEIVE_BYTES, length: RECEIVE_BYTES }] });
  };
  handleAll(cq, ({ opcode, status, wrId, byteLength, from }) => {
    const slot = Number(wrId);
    // A sender with port 0 is made up: there is no way back to it.
    if (opcode === 'send' || status !== 'success' || from!.port === 0) receive(slot);
    else dqp.postSend({ wrId, sges: [{ mr, offset: slot * RECEIVE_BYTES, length: byteLength }], to: from! });
  });
  for (let slot = 0; slot < RECEIVES; slot++) receive(slot);
  io.out(`echo on udp ${hostPort(await dqp.bind(where))}\n`);
  return () => dqp.destroy();
}

/** Runs until the process is asked to end. */
function untilStopped(io: ToolIo): Promise<void> {
  return new Promise((resolve) => {
    const stop = (): void => resolve();
    process.once('SIGINT', stop).once('SIGTERM', stop);
    if (io.signal?.aborted === true) stop();
    io.signal?.addEventListener('abort', stop, { once: true });
  });
}

// ------------------------------------------------------------------------------------------------------ send

async function send(args: string[], io: ToolIo): Promise<void> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      tcp: { type: 'boolean' },
      udp: { type: 'boolean' },
      framing: { type: 'string' },
      wait: { type: 'string', default: '1000' },
      engine: { type: 'string' },
    },
  });
  const [host, port, ...more] = positionals;
  if (host === undefined || port === undefined || more.length > 0 || values.tcp === values.udp)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'send takes HOST and PORT, and --tcp or --udp');
  const to = { host, port: numberOf('PORT', port, 1, 65_535) };
  const rnic = rnicFor(values.engine);
  if (values.udp === true) {
    await sendDatagrams(
      rnic,
      { address: to.host, port: to.port },
      numberOf('--wait', values.wait, 0, CLOSE_MS),
      io,
    );
    return;
  }
  const policy = { framing: framingOf(values.framing), closeTimeout: CLOSE_MS };
  const duplex = await connectDuplex(rnic, to, policy);
  // Neither direction is read faster than its other end takes it.
  await Promise.all([pipeline(process.stdin, duplex), pipeline(duplex, process.stdout, { end: false })]);
}

async function sendDatagrams(
  { device }: Rnic,
  to: { readonly address: string; readonly port: number },
  wait: number,
  io: ToolIo,
): Promise<void> {
  const pd = device.allocatePd();
  const cq = device.createCq(2 * RECEIVES);
  const dqp = pd.createDatagramQp({ sendCq: cq, recvCq: cq, maxSendWr: RECEIVES, maxRecvWr: RECEIVES });
  const inbox = pd.registerMemory(device.allocateMemory(RECEIVES * RECEIVE_BYTES), ACCESS.LOCAL_WRITE);
  const outbox = pd.registerMemory(device.allocateMemory(RECEIVES * DATAGRAM_BYTES), 0);
  const free = Array.from({ length: RECEIVES }, (_, i) => i);
  let heard = performance.now();
  let roomMade: (() => void) | null = null;
  const receive = (slot: number): void => {
    dqp.postRecv({ wrId: slot, sges: [{ mr: inbox, offset: slot * RECEIVE_BYTES, length: RECEIVE_BYTES }] });
  };
  handleAll(cq, ({ opcode, status, wrId, byteLength }) => {
    const slot = Number(wrId);
    if (opcode === 'send') {
      free.push(slot);
      roomMade?.();
      if (status !== 'success') io.err(`qpip: a datagram was not sent: ${status}\n`);
      return;
    }
    heard = performance.now();
    const at = slot * RECEIVE_BYTES;
    process.stdout.write(Buffer.from(inbox.bytes.subarray(at, at + byteLength)));
    receive(slot);
  });
  for (let slot = 0; slot < RECEIVES; slot++) receive(slot);
  await dqp.bind({ host: to.address.includes(':') ? '::' : '0.0.0.0' });
  for await (const chunk of process.stdin as AsyncIterable<Uint8Array>) {
    for (let at = 0; at < chunk.length; at += DATAGRAM_BYTES) {
      if (free.length === 0) await new Promise<void>((resolve) => (roomMade = resolve));
      const slot = free.pop()!;
      const part = chunk.subarray(at, at + DATAGRAM_BYTES);
      outbox.bytes.set(part, slot * DATAGRAM_BYTES);
      const sges = [{ mr: outbox, offset: slot * DATAGRAM_BYTES, length: part.length }];
      dqp.postSend({ wrId: slot, sges, to });
    }
  }
  heard = performance.now();
  for (let left = wait; left > 0; left = wait - (performance.now() - heard))
    await new Promise((resolve) => setTimeout(resolve, left));
  dqp.destroy();
}
