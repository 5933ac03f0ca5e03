/** Ends of a stream: RFC 5041 6.2, RFC 5040 6.2, verbs draft 6.2. */
import { describe, expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { RdmaStream } from '../../src/stream/stream.ts';
import { STREAM_TABLE, type StreamInput, type StreamState } from '../../src/stream/states.ts';
import { Machine } from '../../src/base/fsm.ts';
import { connectedPair } from '../support/pair.ts';
import {
  expectTerminate,
  OP,
  pattern,
  readRequest,
  readResponse,
  scripted,
  send,
  write,
  type Script,
} from '../rdmap/scripted.ts';

const NARROW = { buffer: 2000 } as const;
const asyncTypes = (script: Script): string[] => script.side.asyncEvents.map((event) => event.type);

describe('FIN from the peer', () => {
  it('between FPDUs, nothing outstanding: FIN back, no Terminate, receives flushed (DDP-062)', async () => {
    const script = await scripted();
    script.receives(2, 16);
    script.end().settle();
    expect(script.segments()).toEqual([]);
    expect(script.peer.ending).toBe('closed');
    expect(script.received().map((wc) => wc.status)).toEqual(['flushed', 'flushed']);
    expect(asyncTypes(script)).toEqual(['llp-closing', 'llp-close-complete']);
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'graceful' });
    expect(script.side.qp.state).toBe('idle');
    script.finish();
  });

  it('with Sends not yet sent: Terminate 0/2/07, then FIN; they are flushed (DDP-064, DDP-065)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(400_000);
    script.peer.pause();
    script.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [{ mr }] });
    script.settle().end().settle();
    script.peer.resume();
    script.settle(1000);
    expectTerminate(script, { layer: 0, etype: 2, code: 7 });
    script.finish();
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'flushed' }]);
    expect(script.side.qp.state).toBe('error');
  });

  it('while a Read of ours is unanswered: Terminate 0/2/07 (DDP-064)', async () => {
    const script = await scripted({ role: 'responder' });
    const { mr } = script.region(16);
    script.side.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.settle().end().settle();
    expectTerminate(script, { layer: 0, etype: 2, code: 7 });
    script.finish();
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'flushed' }]);
  });

  it('while a Read Response is being sent: Terminate 0/2/07 at a segment boundary (DDP-064)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(400_000);
    script.peer.pause();
    script.send(readRequest(1, { size: 400_000, sourceStag: mr.rkey })).settle();
    script.end().settle();
    script.peer.resume();
    script.settle(1000);
    expectTerminate(script, { layer: 0, etype: 2, code: 7 });
  });

  it('inside an FPDU: the connection is dropped, the half segment has no effect (DDP-064/034)', async () => {
    const script = await scripted();
    const { mr } = script.region(100);
    script.receives(1, 100);
    const octets = script.peer.encode([write(mr.rkey, 0n, pattern(100))]);
    script.peer.sendRaw(octets.slice(0, 80));
    script.settle().end().settle();
    expect(script.peer.ending).toBe('reset');
    script.memoryUntouched();
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'lost' });
    expect(asyncTypes(script)).toContain('llp-connection-lost');
    expect(script.received().map((wc) => wc.status)).toEqual(['flushed']);
    expect(script.side.qp.state).toBe('error');
  });

  it('between the segments of a Send: it is not delivered, its receive flushes (DDP-034/065)', async () => {
    const script = await scripted();
    script.receives(1, 100);
    script
      .send(send(1, pattern(10), { last: false }))
      .settle()
      .end()
      .finish();
    expect(script.received().map((wc) => wc.status)).toEqual(['flushed']);
  });
});

describe('reset', () => {
  it('at any time: an event, everything flushed once, nothing sent (DDP-064, DDP-065)', async () => {
    const script = await scripted({ role: 'responder' });
    const { mr } = script.region(16);
    script.receives(2, 16);
    script.side.qp.postSend([
      { wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 },
      { wrId: 2, opcode: 'send', inline: pattern(4) },
    ]);
    script.settle();
    const before = script.peer.received.length;
    script.peer.reset();
    script.finish();
    expect(script.peer.received.length).toBe(before);
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'reset' });
    expect(asyncTypes(script)).toEqual(['llp-connection-reset']);
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, 'flushed'],
      [2, 'flushed'],
    ]);
    expect(script.received().map((wc) => wc.status)).toEqual(['flushed', 'flushed']);
    expect(script.side.qp.state).toBe('error');
  });
});

describe('a close of our own', () => {
  it('all work posted before arrives, then FIN; later work is flushed, not sent (DDP-059)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const inbox = server.register(100 * 8);
    for (let i = 0; i < 100; i++)
      server.qp.postRecv({ wrId: i, sges: [{ mr: inbox, offset: 8 * i, length: 8 }] });
    for (let i = 0; i < 100; i++) client.qp.postSend({ wrId: i, opcode: 'send', inline: Uint8Array.of(i) });
    client.connection!.disconnect();
    for (let i = 100; i < 103; i++) client.qp.postSend({ wrId: i, opcode: 'send', inline: Uint8Array.of(i) });
    pair.run();
    expect(
      server
        .received()
        .filter((wc) => wc.status === 'success')
        .map((wc) => wc.wrId),
    ).toEqual(Array.from({ length: 100 }, (_, i) => i));
    const sent = client.sent();
    expect(sent.map((wc) => wc.wrId)).toEqual(Array.from({ length: 103 }, (_, i) => i));
    expect(sent.map((wc) => wc.status)).toEqual([
      ...new Array(100).fill('success'),
      ...new Array(3).fill('flushed'),
    ]);
    expect([client.qp.state, server.qp.state]).toEqual(['idle', 'idle']);
  });

  it('a Read posted before is answered first (DDP-059)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const source = server.register(pattern(100_000));
    const sink = client.register(100_000);
    client.qp.postSend({
      wrId: 1,
      opcode: 'rdma-read',
      sges: [{ mr: sink }],
      rkey: source.rkey,
      remoteAddr: 0,
    });
    client.connection!.disconnect();
    pair.run();
    expect(client.sent()).toMatchObject([{ wrId: 1, status: 'success' }]);
    expect(sink.bytes).toEqual(source.bytes);
    expect([client.qp.state, server.qp.state]).toEqual(['idle', 'idle']);
  });

  it('work posted while earlier work drains is not sent, and flushed at the end (DDP-059)', async () => {
    const script = await scripted({ role: 'responder' });
    const { mr } = script.region(4);
    script.side.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.settle();
    script.side.connection!.disconnect();
    script.side.qp.postSend({ wrId: 2, opcode: 'send', inline: pattern(4) });
    script.settle();
    expect(script.peer.ending).toBe('open');
    script.send(readResponse(mr.rkey, 0n, pattern(4))).settle();
    expect(script.peer.ending).toBe('fin');
    script.end().finish();
    expect(script.segments().map((segment) => segment.opcode)).toEqual([OP.readRequest]);
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, 'success'],
      [2, 'flushed'],
    ]);
    expect(script.side.qp.state).toBe('idle');
  });

  it('what still arrives while our work drains is processed (DDP-059)', async () => {
    const script = await scripted({ role: 'responder' });
    const { mr } = script.region(4);
    script.receives(1, 16);
    script.side.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.settle();
    script.side.connection!.disconnect();
    script.send(send(1, pattern(5))).settle();
    expect(script.received()).toMatchObject([{ status: 'success', byteLength: 5 }]);
    expect(script.peer.ending).toBe('open');
  });

  it('an FPDU after our FIN resets the connection (verbs draft 6.2.5) (DDP-066)', async () => {
    const script = await scripted();
    script.receives(1, 16);
    script.side.connection!.disconnect();
    script.settle();
    expect(script.peer.ending).toBe('fin');
    script.send(send(1, pattern(5))).settle();
    expect(script.peer.ending).toBe('reset');
    expect(asyncTypes(script)).toContain('bad-close');
    expect(script.side.qp.state).toBe('error');
    expect(script.received().map((wc) => wc.status)).toEqual(['flushed']);
    script.memoryUntouched();
  });

  // What follows takes longer than the close time-out, which is not for work that goes on.
  const PATIENCE = 400;
  const SLOW = { bandwidth: 1000, buffer: 20_000 } as const;
  const MIB = 1 << 20;

  it.each(['send', 'rdma-write', 'rdma-read', 'the peer reads'] as const)(
    'a close waits for posted work while it moves (%s of 4 MiB over a slow link) (DDP-059, VERBS-041)',
    async (what) => {
      const policy = { closeTimeout: PATIENCE };
      const pair = await connectedPair({ network: SLOW, client: { policy }, server: { policy } });
      const { client, server } = pair;
      const ours = client.register(pattern(4 * MIB));
      const theirs = server.register(4 * MIB);
      if (what === 'send') server.qp.postRecv({ wrId: 9, sges: [{ mr: theirs }] });
      const from = pair.time.now();
      if (what === 'the peer reads') {
        server.qp.postSend({
          wrId: 1,
          opcode: 'rdma-read',
          sges: [{ mr: theirs }],
          rkey: ours.rkey,
          remoteAddr: 0,
        });
        pair.advance(20);
      } else {
        const sges = [{ mr: ours }];
        const { rkey } = theirs;
        client.qp.postSend(
          what === 'send'
            ? { wrId: 1, opcode: what, sges }
            : { wrId: 1, opcode: what, sges, rkey, remoteAddr: 0 },
        );
      }
      client.connection!.disconnect();
      pair.run();
      expect(pair.time.now() - from).toBeGreaterThan(9 * PATIENCE);
      expect([client.event('disconnected')?.cause, server.event('disconnected')?.cause]).toEqual([
        'graceful',
        'graceful',
      ]);
      expect((what === 'the peer reads' ? server : client).sent()).toMatchObject([
        { wrId: 1, status: 'success' },
      ]);
      expect(Buffer.compare(theirs.bytes, ours.bytes)).toBe(0);
    },
  );

  it('a peer that stops taking what we send is given up the close time-out later (DDP-059/064)', async () => {
    const script = await scripted({ policy: { closeTimeout: PATIENCE }, network: SLOW });
    const { mr } = script.region(2 * MIB);
    script.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [{ mr }] });
    script.side.connection!.disconnect();
    script.settle(3 * PATIENCE);
    expect(script.peer.ending).toBe('open');
    script.peer.pause();
    const from = script.time.now();
    script.finish();
    expect(script.peer.ending).toBe('reset');
    expect(script.peer.endedAt! - from).toBeLessThan(2 * PATIENCE);
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'timeout' });
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'flushed' }]);
  });

  it('a peer that trickles a Read Response does not hold the connection (DDP-059, VERBS-045)', async () => {
    const script = await scripted({ role: 'responder', policy: { closeTimeout: PATIENCE } });
    const { mr } = script.region(MIB);
    script.side.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.settle();
    const from = script.time.now();
    script.side.connection!.disconnect();
    for (let at = 0n; script.peer.ending === 'open' && at < 1000n; at++) {
      script.send(readResponse(mr.rkey, at, pattern(1), { last: false })).settle(PATIENCE - 10);
    }
    // One time-out for the close, one for the Read and one for each 64 KiB of it.
    const spells = Math.round((script.peer.endedAt! - from) / PATIENCE);
    expect([script.peer.ending, spells]).toEqual(['reset', 18]);
    script.finish();
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'timeout' });
  });

  it('nor does a peer that reads on and on after our close (DDP-059, VERBS-045)', async () => {
    const script = await scripted({ policy: { closeTimeout: PATIENCE } });
    const { mr } = script.region(16);
    script.send(readRequest(1, { size: 0, sourceStag: mr.rkey }));
    script.side.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.settle();
    const from = script.time.now();
    script.side.connection!.disconnect();
    for (let msn = 2; script.peer.ending === 'open' && msn < 200; msn++)
      script.send(readRequest(msn, { size: 0, sourceStag: mr.rkey })).settle(50);
    expect(script.peer.ending).toBe('reset');
    expect(script.peer.endedAt! - from).toBeLessThan(4 * PATIENCE);
  });

  it('a peer that never answers our FIN is reset after the close time-out (DDP-064)', async () => {
    const script = await scripted({ policy: { closeTimeout: 900 } });
    script.side.connection!.disconnect();
    script.settle(850);
    expect(script.peer.ending).toBe('fin');
    script.finish();
    expect(script.peer.ending).toBe('reset');
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'timeout' });
    expect(script.side.qp.state).toBe('error');
  });

  it('both sides at once: FIN crosses FIN, both are Idle (DDP-059)', async () => {
    const pair = await connectedPair();
    pair.client.connection!.disconnect();
    pair.server.connection!.disconnect();
    pair.run();
    expect([pair.client.qp.state, pair.server.qp.state]).toEqual(['idle', 'idle']);
    expect([pair.client.event('disconnected')?.cause, pair.server.event('disconnected')?.cause]).toEqual([
      'graceful',
      'graceful',
    ]);
  });

  it('an abort resets at once without a Terminate and flushes everything (RDMAP-087)', async () => {
    const script = await scripted();
    script.receives(1, 16);
    script.side.qp.postSend({ wrId: 1, opcode: 'send', inline: pattern(4) });
    script.side.qp.modify({ state: 'error' });
    script.finish();
    expect(script.peer.ending).toBe('reset');
    expect(script.sent(OP.terminate)).toEqual([]);
    expect(script.side.sent().map((wc) => wc.wrId)).toEqual([1]);
    expect(script.received().map((wc) => wc.status)).toEqual(['flushed']);
  });

  it('Modify to Terminate says 0/0/00 and closes (RDMAP-085, RDMAP-072)', async () => {
    const script = await scripted();
    script.side.qp.modify({ state: 'terminate' });
    script.settle();
    expectTerminate(script, { layer: 0, etype: 0, code: 0 });
    script.end().finish();
    expect(script.side.qp.state).toBe('error');
  });
});

describe('the stream as a state machine', () => {
  const STATES = Object.keys(STREAM_TABLE.transitions) as StreamState[];
  const INPUTS: StreamInput[] = [
    'start',
    'request',
    'establish',
    'leave',
    'close',
    'finish',
    'terminate',
    'end-of-port',
  ];
  const PATHS: Record<StreamState, StreamInput[]> = {
    idle: [],
    startup: ['start'],
    deciding: ['start', 'request'],
    operational: ['start', 'establish'],
    draining: ['start', 'establish', 'close'],
    closing: ['start', 'establish', 'finish'],
    terminating: ['start', 'establish', 'terminate'],
    leaving: ['start', 'leave'],
    closed: ['end-of-port'],
  };

  for (const state of STATES) {
    it(`in ${state} each input leads where the table says, or throws and changes nothing (DDP-064)`, () => {
      for (const input of INPUTS) {
        const machine = new Machine(STREAM_TABLE);
        for (const step of PATHS[state]) machine.step(step);
        expect(machine.state).toBe(state);
        const next = STREAM_TABLE.transitions[state][input];
        if (next === undefined) {
          expect(() => machine.step(input)).toThrow(IwarpError);
          expect(machine.state).toBe(state);
        } else expect(machine.step(input)).toBe(next);
      }
    });
  }

  it('every state but closed ends when the port does, and closed takes nothing more (DDP-064)', () => {
    for (const state of STATES)
      expect(STREAM_TABLE.transitions[state]['end-of-port']).toBe(state === 'closed' ? undefined : 'closed');
  });

  it('after an abort neither octets nor FIN count, though the port still lives (VERBS-054)', async () => {
    const script = await scripted();
    const stream = (script.side.connection!.link as unknown as { stream: RdmaStream }).stream;
    const { octetsIn } = stream.counters();
    stream.abort(0);
    stream.handleBytes(pattern(64), 0, 64, 0);
    expect(stream.counters().octetsIn).toBe(octetsIn);
    stream.handleEnd(0);
    stream.handleClose(undefined, 0);
    expect(stream.pollEvent()).toMatchObject({ type: 'closed', cause: 'reset' });
    expect(stream.pollEvent()).toBeNull();
  });

  it('calls too late, or in the wrong state, change nothing and throw nothing (RDMAP-087)', async () => {
    const script = await scripted();
    const stream = (script.side.connection!.link as unknown as { stream: RdmaStream }).stream;
    script.end().finish();
    expect(stream.state).toBe('closed');
    stream.close(0);
    stream.terminate(0, 0x0207);
    stream.abort(0);
    stream.handleBytes(pattern(64), 0, 64, 0);
    stream.handleEnd(0);
    stream.handleTransmitted(true, 0);
    stream.handleClose(undefined, 0);
    stream.handleTimeout(1e9);
    stream.kick(0);
    expect(stream.state).toBe('closed');
    expect([stream.pollTransmit(), stream.pollEvent(), stream.pollClose(), stream.pollTimeout()]).toEqual([
      null,
      null,
      'none',
      Number.POSITIVE_INFINITY,
    ]);
  });
});
