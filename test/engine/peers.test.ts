// Queue pairs of an engine opposite peers made of octets: what only a peer that breaks rules, or a program between two events, can bring about.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Rnic } from '../../src/index.ts';
import { PEER_ENHANCED, type RawPeer } from '../support/raw-peer.ts';
import { answer, End, openWorkers, stop, until } from './support.ts';

let rnic: Rnic;
beforeAll(() => {
  rnic = openWorkers();
});
afterAll(() => stop(rnic));

/** A start-up frame of ours is there. */
const spoken = (peer: RawPeer): Promise<void> => until(() => peer.received.length >= 20);

describe('with confirm', () => {
  it.each([['2/0/06', { d: false, ord: 9 }], ['2/0/07', { c: false, d: false }]] as const)(
    'ENH-022 ENH-040 MPA-035: a Reply that calls for Terminate %s ends its own connection', async (code, theirs) => {
      const end = new End(rnic);
      end.qp.postSend({ opcode: 'send' });
      const policy = { ird: 8, maxIrd: 8 };
      const peer = await answer((port) => end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port, confirm: true, policy })));
      await spoken(peer);
      peer.reply({ revision: 2, enhanced: { ...PEER_ENHANCED, ...theirs } });
      await until(() => peer.ending === 'fin');
      expect(peer.terminates()).toEqual([code]);
      peer.end();
      expect(await end.statuses(1)).toEqual(['send flushed']);
      await until(() => end.event('disconnected') !== undefined);
      expect(end.events.map(({ type }) => type)).toEqual(['established', 'terminate', 'disconnected']);
      expect([end.qp.state, rnic.device.state]).toEqual(['error', 'open']);
    },
  );
});
