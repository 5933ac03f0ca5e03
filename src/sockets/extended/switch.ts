/**
 * The steps of the switch: written bytes leave, bytes that were read too far are collected, and start-up runs
 * over the port.
 */
import { Buffer } from 'node:buffer';
import type { Socket } from 'node:net';
import { abortError, whenAborted } from '../../base/abort.ts';
import { IwarpError } from '../../base/errors.ts';
import type { PassiveConnection } from '../../cm/index.ts';
import type { Port } from '../../transport/port.ts';
import { extensionOf } from './extension.ts';
import type { SwitchPlan } from './options.ts';
import type { RdmaSide } from './rdma-side.ts';

const NOTHING = (): void => undefined;

/** Resolves when all that was written has been handed to the system. */
export async function flushed(socket: Socket, signal: AbortSignal): Promise<void> {
  if (signal.aborted) throw abortError(signal);
  if (socket.writableLength > 0)
    await new Promise<void>((resolve, reject) => {
      const done = (): void => {
        stop();
        socket.off('close', lost);
        socket.off('error', NOTHING);
      };
      const lost = (): void => {
        done();
        reject(new IwarpError('ERR_CONNECTION_RESET', 'the connection was lost before the switch to RDMA'));
      };
      const stop = whenAborted(signal, () => {
        done();
        reject(abortError(signal));
      });
      socket.on('close', lost);
      // Its own listeners learn of an error all the same.
      if (socket.listenerCount('error') === 0) socket.on('error', NOTHING);
      socket.write('', () => {
        done();
        resolve();
      });
    });
  if (socket.destroyed)
    throw new IwarpError('ERR_CONNECTION_RESET', 'the connection was lost before the switch to RDMA');
}

/** All bytes that were read beyond the program's own protocol, or null. */
export function headOf(socket: Socket, given: Uint8Array | null): Uint8Array | null {
  const pieces: Uint8Array[] = given === null ? [] : [given];
  for (let piece = socket.read() as Buffer | null; piece !== null; piece = socket.read() as Buffer | null)
    pieces.push(piece);
  const head = Buffer.concat(pieces);
  return head.length === 0 ? null : head;
}

/** Start-up over the port; resolves when both ends speak RDMA. */
export async function begin(
  socket: Socket,
  side: RdmaSide,
  port: Port,
  plan: SwitchPlan,
  signal: AbortSignal,
): Promise<void> {
  const extension = extensionOf(socket);
  let closeListener = NOTHING;
  await new Promise<void>((resolve, reject) => {
    const stop = signal.aborted ? NOTHING : whenAborted(signal, () => fail(abortError(signal)));
    const fail = (error: IwarpError): void => {
      if (extension.switched === null) return;
      extension.switched = null;
      stop();
      closeListener();
      if (side.connection === null) port.reset();
      else side.connection.abort();
      reject(error);
      socket.destroy();
    };
    extension.switched = (error) => {
      if (error !== null) {
        fail(error);
        return;
      }
      extension.switched = null;
      stop();
      closeListener();
      resolve();
    };
    try {
      if (plan.role === 'initiator') initiate(side, port, plan);
      else closeListener = respond(side, port, plan, fail);
    } catch (error) {
      fail(error as IwarpError);
    }
  });
}

function initiate(side: RdmaSide, port: Port, { privateData }: SwitchPlan): void {
  const { rnic, policy } = side.plan;
  const { address: host, port: number } = port.remoteAddress;
  side.attach(rnic.cm.connect(side.qp, { host, port: number, over: port, policy, privateData }));
}

/** Returns the function that ends what waits for the request. */
function respond(
  side: RdmaSide,
  port: Port,
  { privateData }: SwitchPlan,
  fail: (error: IwarpError) => void,
): () => void {
  const { policy, rnic } = side.plan;
  const listener = rnic.cm.receive({ policy }, (request) => {
    try {
      request.accept(side.qp, privateData === undefined ? {} : { privateData });
    } catch (error) {
      fail(error as IwarpError);
    }
  });
  const request: PassiveConnection | null = listener.take(port);
  if (request === null)
    throw new IwarpError('ERR_LIMIT', 'the device has as many connections as its limits allow');
  side.attach(request);
  return () => listener.close();
}
