/**
 * Connections of one device, side by side over TCP: one with a long queue of large messages leaves the others
 * their turns.
 */
import { describe, expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { createWorkCompletion, type SendWorkRequest, type WorkCompletion } from '../../src/verbs/index.ts';
import { End, EVERYTHING, join, stop, until } from '../engine/support.ts';

const MIB = 1 << 20;
const LONG = 64;
const OTHERS = 3;

describe.each(['thread', 'worker'] as const)('a long queue of large messages, engine in a %s', (engine) => {
  it.each(['rdma-write', 'rdma-read'] as const)(
    '%s: a Read of every other connection, posted after it, is answered before half of it is done',
    async (opcode) => {
      const [near, far] = [openRnic({ engine }), openRnic({ engine })];
      const cq = near.device.createCq(256);
      const pd = near.device.allocatePd();
      const farPd = far.device.allocatePd();
      const ends = Array.from(
        { length: 1 + OTHERS },
        () => new End(near, { sendCq: cq, recvCq: cq, maxSendWr: LONG }, pd),
      );
      for (const end of ends) await join(end, new End(far, {}, farPd));
      const mr = pd.registerMemory(near.device.allocateMemory(MIB), EVERYTHING);
      const { rkey } = farPd.registerMemory(far.device.allocateMemory(MIB), EVERYTHING);
      const request = (what: 'rdma-write' | 'rdma-read', length: number): SendWorkRequest => ({
        opcode: what,
        sges: [{ mr, length }],
        rkey,
        remoteAddr: 0,
      });
      const [long, ...others] = ends.map(({ qp }) => qp);
      long!.postSend(Array.from({ length: LONG }, () => request(opcode, MIB)));
      for (const qp of others) qp.postSend(request('rdma-read', 64));
      const done: WorkCompletion[] = [];
      await until(() => {
        for (const wc = [createWorkCompletion()]; cq.poll(wc) > 0; wc[0] = createWorkCompletion())
          done.push(wc[0]!);
        return done.length === LONG + OTHERS;
      });
      expect(done.map(({ status }) => status)).toEqual(done.map(() => 'success'));
      const order = done.map(({ qpNumber }) => qpNumber);
      for (const { number } of others) expect(order.slice(0, LONG / 2)).toContain(number);
      if (engine === 'worker') await stop(near, far);
      else for (const { connection } of ends) connection!.disconnect();
    },
  );
});
