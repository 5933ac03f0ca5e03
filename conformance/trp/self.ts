// Our own stack as the target: it listens and echoes, and connects where it is asked to.

import { openRnic } from 'iwarp';
import { ACCESS } from 'iwarp/verbs';
import type { QueuePair, WorkCompletion } from 'iwarp/verbs';
import type { Profile, Target } from './probe.ts';

const RECEIVES = 32;
const BUFFER = 4096;

/** A target in this process; `close` ends it. */
// oxlint-disable-next-line max-lines-per-function -- one target from its device to its end
export async function openSelf(profile: Profile): Promise<Target & { close(): void }> {
  const rnic = openRnic({ wire: 'trp', trp: { profile } });
  const host = '127.0.0.1';
  const timers = new Set<NodeJS.Timeout>();
  const connections = new Set<{ disconnect(): void }>();
  const side = (): { qp: QueuePair; privateData: Buffer; end: () => void } => {
    const cq = rnic.device.createCq(4 * RECEIVES);
    const pd = rnic.device.allocatePd();
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const access = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE;
    const register = () => pd.registerMemory(rnic.device.allocateMemory(BUFFER), access);
    const buffers = Array.from({ length: RECEIVES }, register);
    const region = register();
    qp.postRecv(buffers.map((mr, wrId) => ({ wrId, sges: [{ mr }] })));
    const poll = (): void => {
      const done: WorkCompletion[] = [];
      cq.poll(done, RECEIVES);
      for (const { wrId, opcode, status, byteLength } of done) {
        const mr = buffers[Number(wrId)];
        if (status !== 'success' || mr === undefined) continue;
        if (opcode === 'receive')
          qp.postSend({ wrId, opcode: 'send', sges: byteLength === 0 ? [] : [{ mr, length: byteLength }] });
        else qp.postRecv({ wrId: Number(wrId), sges: [{ mr }] });
      }
    };
    const timer = setInterval(poll, 2);
    timers.add(timer);
    const privateData = Buffer.alloc(16);
    privateData.writeUInt32BE(region.rkey, 0);
    privateData.writeUInt32BE(BUFFER, 12);
    return {
      qp,
      privateData,
      end: () => {
        clearInterval(timer);
        timers.delete(timer);
      },
    };
  };
  const listener = await rnic.cm.listen({ host, port: 0 }, (request) => {
    const { qp, privateData, end } = side();
    request.setHandler((event) => {
      if (event.type === 'disconnected') end();
    });
    request.accept(qp, { privateData });
    connections.add(request);
  });
  return {
    host,
    port: listener.address.port,
    connect: (port) => {
      const { qp, privateData, end } = side();
      const connection = rnic.cm.connect(qp, { host, port, privateData });
      connections.add(connection);
      connection.setHandler((event) => {
        if (event.type !== 'established' && event.type !== 'closing' && event.type !== 'terminate') end();
      });
    },
    close: () => {
      for (const timer of timers) clearInterval(timer);
      for (const one of connections) one.disconnect();
      listener.close();
    },
  };
}
