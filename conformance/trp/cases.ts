// The cases of iWARP over UDP. Clauses: numbers are sections of the facts about TRP (docs/protocol-notes.md
// names them), B1 and so on the decisions there, others RFCs.

import { setTimeout as sleep } from 'node:timers/promises';
import { datagram, OPCODE, parseSetup, pieces, readRequest } from './datagram.ts';
import { sendSegment, setupDatagram, tagged } from './datagram.ts';
import type { Datagram } from './datagram.ts';
import { check, isSend } from './probe.ts';
import type { Link, Probe, Profile, Role } from './probe.ts';

export interface TrpCase {
  readonly name: string;
  readonly clause: string;
  /** Roles of the target in which the case is run. */
  readonly roles: readonly Role[];
  readonly profiles: readonly Profile[];
  readonly run: (probe: Probe) => Promise<void>;
}

const BOTH_ROLES: readonly Role[] = ['passive', 'active'];
const ALL: readonly Profile[] = ['fixed', 'urdma'];
const FIXED: readonly Profile[] = ['fixed'];

/** Cases on a connection that is set up, in both roles. */
const on = (
  name: string,
  clause: string,
  run: (link: Link, probe: Probe) => Promise<void>,
  profiles: readonly Profile[] = ALL,
): TrpCase => ({
  name,
  clause,
  roles: BOTH_ROLES,
  profiles,
  run: async (probe) => await run(await probe.connected(), probe),
});

const toListener = (
  name: string,
  clause: string,
  run: (probe: Probe) => Promise<void>,
  profiles: readonly Profile[] = ALL,
): TrpCase => ({ name, clause, roles: ['passive'], profiles, run });

const toClient = (
  name: string,
  clause: string,
  run: (probe: Probe) => Promise<void>,
  profiles: readonly Profile[] = ALL,
): TrpCase => ({ name, clause, roles: ['active'], profiles, run });

const NOTHING_MS = 150;
const PATTERN = 'abcdefghijklmnopqrstuvwxyz';
const isAccept = ({ opcode }: Datagram): boolean => opcode === OPCODE.ACCEPT;
const isRequest = ({ opcode }: Datagram): boolean => opcode === OPCODE.REQUEST;
const isSack = ({ opcode }: Datagram): boolean => opcode === OPCODE.SACK;
const isFin = ({ opcode }: Datagram): boolean => opcode === OPCODE.FIN;
const isTerminate = ({ opcode, body }: Datagram): boolean =>
  opcode === OPCODE.DATA && body.length > 22 && (body[1]! & 15) === 7;

/** Datagrams that are none of the protocol, at any time. */
const MALFORMED: readonly (readonly [string, string, (psn: number, ack: number) => Buffer])[] = [
  ['empty', 'B17', () => Buffer.alloc(0)],
  ['short', 'B17', (psn) => datagram(OPCODE.DATA, psn, 0).subarray(0, 9)],
  ['unknown-opcode', '2', (psn, ack) => datagram(0x6000, psn, ack)],
  ['highest-opcode', '2', (psn, ack) => datagram(0xf000, psn, ack, Buffer.alloc(40))],
  ['reserved-bits', '2', (psn, ack) => datagram(0x0001, psn, ack, sendSegment(1, Buffer.from('bad')))],
  ['sack-with-body', 'B17', (psn, ack) => datagram(OPCODE.SACK, psn, ack, Buffer.alloc(4))],
  ['fin-with-body', 'B17', (psn, ack) => datagram(OPCODE.FIN, psn, ack, Buffer.alloc(1))],
  ['fin-with-reserved-bits', '2', (psn, ack) => datagram(OPCODE.FIN | 1, psn, ack)],
  ['setup-cut-short', '2', (psn, ack) => datagram(OPCODE.REQUEST, psn, ack, Buffer.alloc(5))],
];

/** Set-up datagrams whose length is not the one that they say. */
const WRONG_LENGTH: readonly (readonly [string, (opcode: number, psn: number, ack: number) => Buffer])[] = [
  ['longer', (opcode, psn, ack) => Buffer.concat([setupDatagram(opcode, psn, ack), Buffer.from('x')])],
  ['shorter', (opcode, psn, ack) => setupDatagram(opcode, psn, ack, Buffer.from('private')).subarray(0, 20)],
  ['reserved-bits', (opcode, psn, ack) => setupDatagram(opcode | 0x0800, psn, ack)],
  ['no-parameters', (opcode, psn, ack) => datagram(opcode, psn, ack)],
];

async function silence(probe: Probe, bytes: Buffer): Promise<void> {
  const end = await probe.endpoint();
  end.send(bytes, probe.target.port, probe.target.host);
  await sleep(NOTHING_MS);
  const [answer] = end.fresh(probe.target);
  check(answer === undefined, `the listener answers with opcode 0x${answer?.opcode.toString(16)}`);
}

async function asked(probe: Probe, bytes?: Buffer) {
  const end = await probe.endpoint();
  const request = bytes ?? setupDatagram(OPCODE.REQUEST, probe.first, 0);
  end.send(request, probe.target.port, probe.target.host);
  const accept = await end.find(isAccept, 3000);
  check(accept !== null, 'no accept comes');
  return { end, accept, request };
}

const LISTENER: readonly TrpCase[] = [
  toListener('setup.accept.port', '3, B7', async (probe) => {
    const { accept } = await asked(probe);
    check(accept.port !== probe.target.port, 'the accept comes from the port that listens');
  }),
  toListener('setup.accept.form', '2', async (probe) => {
    const { accept } = await asked(probe);
    const setup = parseSetup(accept);
    check(setup !== null, 'the length of the accept is not 16 and that of its private data');
    check(
      setup.privateData.length <= 255 || probe.profile === 'fixed',
      'more than 255 octets of private data',
    );
  }),
  toListener('setup.accept.psn', 'B1', async (probe) => {
    const { accept } = await asked(probe);
    if (probe.profile === 'urdma') check(accept.psn === 0 && accept.ack === 0, 'PSN or ack is not 0');
    else check(accept.ack === probe.first, `ack ${accept.ack}, and not the first PSN ${probe.first}`);
  }),
  toListener('setup.accept.depths', '3, B8', async (probe) => {
    const request = setupDatagram(OPCODE.REQUEST, probe.first, 0, Buffer.alloc(0), 3);
    const { accept } = await asked(probe, request);
    const setup = parseSetup(accept);
    check(setup !== null && setup.ord <= 3, `the accept has ORD ${setup?.ord}, the request IRD 3`);
  }),
  toListener('setup.request.private-data-255', '2', async (probe) => {
    await asked(probe, setupDatagram(OPCODE.REQUEST, probe.first, 0, Buffer.alloc(255, 7)));
  }),
  toListener('setup.request.repeated', '3', async (probe) => {
    const { end, accept, request } = await asked(probe);
    end.send(request, probe.target.port, probe.target.host);
    await sleep(NOTHING_MS);
    const ports = new Set(end.got.filter(isAccept).map(({ port }) => port));
    check(ports.size === 1 && ports.has(accept.port), 'a repeated request makes another connection');
  }),
  toListener('setup.request.repeated-otherwise', 'B11', async (probe) => {
    const { end } = await asked(probe);
    const other = setupDatagram(OPCODE.REQUEST, probe.first, 0, Buffer.from('other'));
    end.send(other, probe.target.port, probe.target.host);
    await sleep(NOTHING_MS);
    const ports = new Set(end.got.filter(isAccept).map(({ port }) => port));
    check(ports.size === 1, 'a request with other octets makes another connection');
  }),
  toListener(
    'setup.accept.amplification',
    'B14',
    async (probe) => {
      const { end, request } = await asked(probe);
      await sleep(1500);
      check(end.octets <= 3 * request.length, `${end.octets} octets answer ${request.length}`);
    },
    FIXED,
  ),
  toListener('setup.accept.again-on-request', '6, B5', async (probe) => {
    const { end, request } = await asked(probe);
    end.send(request, probe.target.port, probe.target.host);
    const again = await end.find(isAccept, 1000, 1);
    check(again !== null, 'a repeated request does not bring the accept again');
  }),
  toListener('setup.accept.silent-once-known', 'B5', async (probe) => {
    const link = await probe.connected();
    await sleep(100);
    const from = link.mark;
    await sleep(700);
    const more = link.end.got.slice(from).filter(isAccept).length;
    check(more === 0, `${more} accepts come after it was acknowledged`);
  }),
  toListener('setup.data-instead-of-ack', '3', async (probe) => {
    const { end, accept } = await asked(probe);
    const body = sendSegment(1, Buffer.from('early'));
    end.send(datagram(OPCODE.DATA, probe.first, accept.psn, body), accept.port, probe.target.host);
    check((await end.find(isSend, 2000)) !== null, 'data that follows the accept at once is not delivered');
  }),
  toListener('setup.two-clients', '3', async (probe) => {
    const [one, two] = [await probe.connected(), await probe.connected()];
    check(one.port !== two.port, 'two connections share a port');
    await one.alive();
    await two.alive();
  }),
  toListener('setup.after-close', '6', async (probe) => {
    const first = await probe.connected();
    first.fin();
    check((await first.find(isFin)) !== null, 'the FIN is not answered');
    await (await probe.connected()).alive();
  }),
  ...MALFORMED.map(([name, clause, make]) =>
    toListener(`setup.listener.${name}`, clause, async (probe) => {
      await silence(probe, make(probe.first, 0));
      await (await probe.connected()).alive();
    }),
  ),
  ...WRONG_LENGTH.map(([name, make]) =>
    toListener(`setup.request.${name}`, '2', async (probe) =>
      silence(probe, make(OPCODE.REQUEST, probe.first, 0)),
    ),
  ),
  ...(['ACCEPT', 'REJECT', 'FIN', 'SACK', 'DATA'] as const).map((name) =>
    toListener(`setup.listener.${name.toLowerCase()}`, '6', async (probe) => {
      const setup = name === 'ACCEPT' || name === 'REJECT';
      const body = name === 'DATA' ? sendSegment(1, Buffer.from('stray')) : Buffer.alloc(0);
      await silence(probe, setup ? setupDatagram(OPCODE[name], 0, 0) : datagram(OPCODE[name], 0, 1, body));
    }),
  ),
];

async function requested(probe: Probe) {
  const listening = await probe.endpoint();
  probe.target.connect(listening.port);
  return { listening, request: await probe.request(listening) };
}

const CLIENT: readonly TrpCase[] = [
  toClient('setup.request.form', '2', async (probe) => {
    const { request } = await requested(probe);
    check(parseSetup(request) !== null, 'the length of the request is not 16 and that of its private data');
    check(request.ack === 0, 'a request acknowledges something');
    check(probe.profile === 'fixed' || request.psn === 0, 'the PSN of the request is not 0');
  }),
  toClient('setup.request.resent', '6', async (probe) => {
    const { listening, request } = await requested(probe);
    const again = await listening.find(isRequest, 1000, 1);
    check(again !== null, 'a request that nothing answers is not repeated');
    check(again.raw.equals(request.raw), 'the repeated request has other octets');
    check(again.port === request.port, 'the repeated request comes from another port');
  }),
  toClient('setup.request.backs-off', '6', async (probe) => {
    const { listening, request } = await requested(probe);
    await sleep(1200);
    const own = listening.got.filter((one) => isRequest(one) && one.port === request.port);
    const times = own.map(({ at }) => at);
    check(times.length >= 3 && times.length <= 8, `${times.length} requests within 1.2 s`);
    const gaps = times.slice(1).map((at, i) => at - times[i]!);
    check(gaps.at(-1)! > gaps[0]! * 1.4, 'requests are repeated without backing off');
  }),
  toClient('setup.accept.acknowledged', 'B4, B5', async (probe) => {
    const { request } = await requested(probe);
    const link = await probe.accept(request);
    const ack = await link.find(({ opcode, body }) => opcode === OPCODE.DATA && body.length === 0, 500);
    check(ack?.ack === probe.first, 'the accept is not answered with a pure acknowledgement of it');
  }),
  toClient('setup.accept.repeated', '6', async (probe) => {
    const { request } = await requested(probe);
    const link = await probe.accept(request);
    const from = link.mark;
    link.put(setupDatagram(OPCODE.ACCEPT, probe.first, probe.profile === 'fixed' ? request.psn : 0));
    check((await link.find(() => true, 1000, from)) !== null, 'a repeated accept is not acknowledged again');
    await link.alive();
  }),
  toClient('setup.accept.second-port', 'B4', async (probe) => {
    const { request } = await requested(probe);
    const link = await probe.accept(request);
    const other = await probe.endpoint();
    const accept = setupDatagram(OPCODE.ACCEPT, probe.first, probe.profile === 'fixed' ? request.psn : 0);
    other.send(accept, request.port, probe.target.host);
    await sleep(NOTHING_MS);
    check(other.fresh(probe.target).length === 0, 'an accept from a second port is answered');
    await link.alive();
  }),
  toClient('setup.data-before-accept', 'B6', async (probe) => {
    const { request } = await requested(probe);
    const end = await probe.endpoint();
    const early = datagram(OPCODE.DATA, probe.first, request.psn, sendSegment(1, Buffer.from('early')));
    end.send(early, request.port, probe.target.host);
    await sleep(NOTHING_MS);
    const link = await probe.accept(request, end);
    link.data(sendSegment(link.msn++, Buffer.from('early')));
    await link.echo('early');
  }),
  toClient('setup.reject', '6', async (probe) => {
    const { listening, request } = await requested(probe);
    const ack = probe.profile === 'fixed' ? request.psn : 0;
    listening.send(setupDatagram(OPCODE.REJECT, 0, ack), request.port, probe.target.host);
    await sleep(100);
    const from = listening.got.length;
    await sleep(700);
    check(listening.got.length === from, 'requests go on after a reject');
  }),
  ...WRONG_LENGTH.map(([name, make]) =>
    toClient(`setup.accept.${name}`, '2', async (probe) => {
      const { listening, request } = await requested(probe);
      const ack = probe.profile === 'fixed' ? request.psn : 0;
      const bad = await probe.endpoint();
      bad.send(make(OPCODE.ACCEPT, probe.first, ack), request.port, probe.target.host);
      check((await listening.find(isRequest, 1500, listening.got.length)) !== null, 'requests stop');
      check(!bad.got.some(({ port }) => port === request.port), 'the accept is answered');
      await (await probe.accept(request)).alive();
    }),
  ),
  toClient(
    'setup.accept.wrong-ack',
    'B1',
    async (probe) => {
      const { request } = await requested(probe);
      const bad = await probe.endpoint();
      const guess = setupDatagram(OPCODE.ACCEPT, 77, request.psn ^ 0x5555);
      bad.send(guess, request.port, probe.target.host);
      await sleep(NOTHING_MS);
      check(
        !bad.got.some(({ port }) => port === request.port),
        'an accept is taken that does not name the first PSN',
      );
      await (await probe.accept(request)).alive();
    },
    FIXED,
  ),
];

/** The next segment, a Send of the pattern: whole, and in three pieces. Its PSN is used up. */
function nextInPieces(link: Link): { psn: number; segment: Buffer; cut: Buffer[] } {
  const psn = link.next;
  link.next = (psn + 1) >>> 0;
  const segment = sendSegment(link.msn++, Buffer.from(PATTERN));
  return { psn, segment, cut: pieces(psn, link.expected, segment, 3) };
}

/** The three pieces of a segment, in the order in which they leave. */
const PIECES: readonly (readonly [name: string, order: readonly number[]])[] = [
  ['in-order', [0, 1, 2]],
  ['in-any-order', [2, 0, 1]],
  ['repeated', [1, 1, 0, 1, 2]],
];

const DATA: readonly TrpCase[] = [
  on('data.acknowledged', '5', async (link) => {
    link.say('one');
    check(await link.acked(link.next), 'a segment is not acknowledged');
  }),
  on('data.delivered', '4', async (link) => {
    await link.alive();
    await link.alive();
  }),
  on('data.duplicate-acknowledged', '5, defect 1', async (link) => {
    const body = sendSegment(link.msn++, Buffer.from('twice'));
    link.data(body);
    await link.echo('twice');
    await sleep(50);
    const from = link.mark;
    link.data(body, (link.next - 1) >>> 0);
    check(await link.acked(link.next, 1000, from), 'a duplicate is not acknowledged again');
  }),
  on('data.duplicate-not-delivered', '5', async (link) => {
    const body = sendSegment(link.msn++, Buffer.from('once'));
    link.data(body);
    await link.echo('once');
    link.data(body, (link.next - 1) >>> 0);
    await link.alive();
    const echoes = link.end.got.filter((one) => isSend(one) && one.body.subarray(18).toString() === 'once');
    check(new Set(echoes.map(({ psn }) => psn)).size === 1, 'a duplicate is delivered twice');
  }),
  on('data.reordered', '4, 5', async (link) => {
    const parts = [0, 1, 2].map((i) =>
      sendSegment(1, Buffer.from(PATTERN.slice(8 * i, 8 * i + 8)), 8 * i, i === 2),
    );
    link.msn++;
    const psn = link.next;
    for (const i of [2, 0, 1]) link.put(datagram(OPCODE.DATA, psn + i, link.expected, parts[i]!));
    link.next = (psn + 3) >>> 0;
    await link.echo(PATTERN.slice(0, 24));
  }),
  ...PIECES.map(([name, order]) =>
    on(
      `pieces.${name}`,
      'RFC 8899 4.3',
      async (link) => {
        const { cut } = nextInPieces(link);
        for (const index of order) link.put(cut[index]!);
        await link.echo(PATTERN);
        await link.alive();
      },
      FIXED,
    ),
  ),
  on(
    'pieces.part-not-acknowledged',
    'RFC 8899 4.3',
    async (link) => {
      const { psn, cut } = nextInPieces(link);
      for (const index of [0, 2]) link.put(cut[index]!);
      check(!(await link.acked(psn + 1, NOTHING_MS)), 'two of three pieces count as the segment');
      link.put(cut[1]!);
      await link.echo(PATTERN);
    },
    FIXED,
  ),
  on(
    'pieces.that-disagree',
    'RFC 8899 4.3',
    async (link) => {
      const { psn, segment, cut } = nextInPieces(link);
      link.put(cut[0]!);
      for (const one of pieces(psn, link.expected, segment, 4)) link.put(one);
      const tooLong = Buffer.concat([cut[1]!, Buffer.alloc(1)]);
      const noSuch = Buffer.from(cut[1]!);
      noSuch[13] = 3;
      for (const bad of [tooLong, noSuch, cut[1]!.subarray(0, 12)]) link.put(bad);
      check(!(await link.acked(psn + 1, NOTHING_MS)), 'pieces of two cuts count as one segment');
      for (const index of [1, 2]) link.put(cut[index]!);
      await link.echo(PATTERN);
      await link.alive();
    },
    FIXED,
  ),
  on(
    'pieces.whole-segment-comes-first',
    'RFC 8899 4.3',
    async (link) => {
      const { psn, segment, cut } = nextInPieces(link);
      link.put(cut[0]!);
      link.data(segment, psn);
      await link.echo(PATTERN);
      for (const one of cut) link.put(one);
      await link.alive();
      const echoes = link.end.got.filter(
        (one) => isSend(one) && one.body.subarray(18).toString() === PATTERN,
      );
      check(new Set(echoes.map((one) => one.psn)).size === 1, 'a segment is delivered twice');
    },
    FIXED,
  ),
  on('data.hole-not-delivered', '4', async (link) => {
    const psn = link.next;
    link.put(datagram(OPCODE.DATA, psn + 1, link.expected, sendSegment(2, Buffer.from('second'))));
    await sleep(NOTHING_MS);
    check(!link.end.got.some(isSend), 'a message is delivered before one that is missing');
    link.put(datagram(OPCODE.DATA, psn, link.expected, sendSegment(1, Buffer.from('first'))));
    link.next = (psn + 2) >>> 0;
    await link.echo('first', false);
    await link.echo('second');
  }),
  on('sack.range', '2, B3', async (link) => {
    const psn = (link.next + 2) >>> 0;
    link.put(datagram(OPCODE.DATA, psn, link.expected, sendSegment(3, Buffer.from('c'))));
    const sack = await link.find(isSack);
    check(sack !== null, 'a hole brings no SACK');
    check(sack.psn === psn && sack.ack === (psn + 1) >>> 0, `the range is ${sack.psn}..${sack.ack}`);
    check(sack.body.length === 0, 'a SACK has octets behind its header');
  }),
  on('sack.range-grows', '5', async (link) => {
    const psn = (link.next + 1) >>> 0;
    for (const i of [0, 1]) {
      link.put(datagram(OPCODE.DATA, psn + i, link.expected, sendSegment(2 + i, Buffer.from('x'))));
    }
    const grown = await link.find((one) => isSack(one) && one.psn === psn && one.ack === (psn + 2) >>> 0);
    check(grown !== null, 'an adjacent segment does not extend the range');
  }),
  on(
    'sack.two-holes',
    'B2',
    async (link) => {
      const psn = link.next;
      for (const i of [1, 3]) {
        link.put(datagram(OPCODE.DATA, psn + i, link.expected, sendSegment(1 + i, Buffer.from('x'))));
      }
      const second = await link.find((one) => isSack(one) && one.psn === (psn + 3) >>> 0);
      check(second !== null, 'a second range is not reported');
      check(
        link.end.got.some((one) => isSack(one) && one.psn === (psn + 1) >>> 0),
        'the first range is not reported',
      );
    },
    FIXED,
  ),
  on(
    'sack.cumulative-beside',
    'B2',
    async (link) => {
      await link.alive();
      const from = link.mark;
      link.put(datagram(OPCODE.DATA, link.next + 1, link.expected, sendSegment(3, Buffer.from('x'))));
      check(await link.acked(link.next, 1000, from), 'ranges come without a cumulative acknowledgement');
    },
    FIXED,
  ),
  on('sack.hole-filled', '5', async (link) => {
    const psn = link.next;
    link.put(datagram(OPCODE.DATA, psn + 1, link.expected, sendSegment(2, Buffer.from('b'))));
    await link.find(isSack);
    link.put(datagram(OPCODE.DATA, psn, link.expected, sendSegment(1, Buffer.from('a'))));
    link.next = (psn + 2) >>> 0;
    check(await link.acked(psn + 2), 'the acknowledgement does not jump over what had come');
  }),
  on('resend.repeated', '5', async (link) => {
    link.say('again');
    const first = await link.echo('again', false);
    const from = link.end.got.indexOf(first) + 1;
    const again = await link.find(({ psn, body }) => psn === first.psn && body.length > 0, 3000, from);
    check(again !== null, 'a segment that nothing acknowledges is not repeated');
    check(again.body.equals(first.body), 'the repeat has other octets');
  }),
  on(
    'resend.current-ack',
    '5',
    async (link) => {
      link.say('first');
      const first = await link.echo('first', false);
      link.say('second');
      await link.acked(link.next);
      const again = await link.find((one) => one.psn === first.psn && one.ack === link.next, 3000);
      check(again !== null, 'a repeat does not carry the present acknowledgement');
    },
    FIXED,
  ),
  on('resend.stops', '5', async (link) => {
    link.say('stop');
    await link.echo('stop');
    await sleep(100);
    const from = link.mark;
    await sleep(600);
    const more = link.end.got.slice(from).filter(isSend).length;
    check(more === 0, `${more} repeats come after the acknowledgement`);
  }),
  on(
    'resend.at-most-six',
    '5',
    async (link) => {
      link.say('six');
      const first = await link.echo('six', false);
      await sleep(500);
      const sent = link.end.got.filter((one) => isSend(one) && one.psn === first.psn).length;
      check(sent >= 2 && sent <= 6, `${sent} transmissions of one segment`);
    },
    ['urdma'],
  ),
  on(
    'resend.backs-off',
    'B18',
    async (link) => {
      link.say('slowly');
      const first = await link.echo('slowly', false);
      await sleep(3000);
      const times = link.end.got
        .filter(({ psn, body }) => psn === first.psn && body.length > 0)
        .map((one) => one.at);
      check(times.length >= 3 && times.length <= 12, `${times.length} transmissions within 3 s`);
      check(times.at(-1)! - times.at(-2)! > times[2]! - times[1]!, 'repeats come without backing off');
      await link.alive().catch(() => check(false, 'the connection is given up after 3 s'));
    },
    FIXED,
  ),
];

/** Acknowledgements and ranges that cannot be: the connection stays, and what they name is sent again. */
const IMPOSSIBLE: readonly (readonly [string, string, (psn: number, una: number) => Buffer])[] = [
  ['ack.beyond', 'B20', (psn, una) => datagram(OPCODE.DATA, psn, una + 1000)],
  ['ack.far-beyond', 'B20', (psn, una) => datagram(OPCODE.DATA, psn, una + 0x7000_0000)],
  ['ack.backwards', '5, defect 3', (psn, una) => datagram(OPCODE.DATA, psn, una - 1)],
  ['sack.empty', 'B20', (_psn, una) => datagram(OPCODE.SACK, una, una)],
  ['sack.reversed', 'B20', (_psn, una) => datagram(OPCODE.SACK, una + 1, una)],
  ['sack.beyond', 'B20', (_psn, una) => datagram(OPCODE.SACK, una + 100, una + 200)],
  ['sack.everything', 'B20', (_psn, una) => datagram(OPCODE.SACK, una, una + 0x7fff_ffff)],
];

const JUNK: readonly TrpCase[] = [
  ...IMPOSSIBLE.map(([name, clause, make]) =>
    on(name, clause, async (link) => {
      link.say('kept');
      const first = await link.echo('kept', false);
      link.put(make(link.next, first.psn));
      const from = link.mark;
      const again = await link.find(({ psn, body }) => psn === first.psn && body.length > 0, 3000, from);
      check(again !== null, 'the segment counts as acknowledged');
      link.expected = (first.psn + 1) >>> 0;
      link.acknowledge();
      await link.alive();
    }),
  ),
  ...MALFORMED.map(([name, clause, make]) =>
    on(`malformed.${name}`, clause, async (link) => {
      link.put(make(link.next, link.expected));
      await link.alive();
    }),
  ),
  on(
    'psn.far-ahead',
    '5',
    async (link) => {
      const psn = (link.next + 0x10_0000) >>> 0;
      const from = link.mark;
      link.put(datagram(OPCODE.DATA, psn, link.expected, sendSegment(9, Buffer.from('far'))));
      await sleep(NOTHING_MS);
      check(!link.end.got.slice(from).some((one) => isSack(one) && one.psn === psn), 'a far PSN is kept');
      await link.alive();
    },
    FIXED,
  ),
  on(
    'psn.flood-of-holes',
    '5',
    async (link) => {
      const body = sendSegment(1, Buffer.from('x'), 0, false);
      for (let i = 2; i < 600; i += 2) link.put(datagram(OPCODE.DATA, link.next + i, link.expected, body));
      await sleep(NOTHING_MS);
      check(!link.end.got.some(isFin), 'holes end the connection');
      link.say('after all');
      check(await link.acked(link.next), 'the next segment is not taken');
    },
    FIXED,
  ),
  on('ack.no-answer-to-ack', 'B13', async (link) => {
    await link.alive();
    await sleep(100);
    const from = link.mark;
    for (let i = 0; i < 5; i++) link.acknowledge();
    await sleep(NOTHING_MS);
    const answers = link.mark - from;
    check(answers <= 1, `${answers} datagrams answer five pure acknowledgements`);
  }),
  on(
    'ack.keep-alive',
    'B13',
    async (link) => {
      await link.alive();
      await sleep(1300);
      const from = link.mark;
      link.acknowledge();
      check(
        (await link.find(() => true, 500, from)) !== null,
        'an acknowledgement after silence has no answer',
      );
    },
    FIXED,
  ),
  on('ack.psn-ignored', 'B12', async (link) => {
    link.put(datagram(OPCODE.DATA, link.next + 12_345, link.expected));
    await link.alive();
  }),
];

const FOREIGN: readonly TrpCase[] = [
  on('foreign.data', '6', async (link, probe) => {
    const other = await probe.endpoint();
    const bytes = datagram(OPCODE.DATA, link.next, link.expected, sendSegment(1, Buffer.from('theirs')));
    other.send(bytes, link.port, probe.target.host);
    await sleep(NOTHING_MS);
    check(other.fresh(probe.target).length === 0, 'a datagram from another port is answered');
    check(!link.end.got.some(isSend), 'data from another port is delivered');
    await link.alive();
  }),
  on('foreign.fin', '6', async (link, probe) => {
    const other = await probe.endpoint();
    other.send(datagram(OPCODE.FIN, link.next, link.expected), link.port, probe.target.host);
    await sleep(NOTHING_MS);
    await link.alive();
  }),
  on('foreign.reject', '6', async (link, probe) => {
    const other = await probe.endpoint();
    other.send(setupDatagram(OPCODE.REJECT, 0, link.theirFirst), link.port, probe.target.host);
    await sleep(NOTHING_MS);
    await link.alive();
  }),
  on('foreign.ack', '6', async (link, probe) => {
    const other = await probe.endpoint();
    link.say('guarded');
    const first = await link.echo('guarded', false);
    const ack = (first.psn + 1) >>> 0;
    other.send(datagram(OPCODE.DATA, link.next, ack), link.port, probe.target.host);
    const from = link.end.got.indexOf(first) + 1;
    const again = await link.find(({ psn, body }) => psn === first.psn && body.length > 0, 3000, from);
    check(again !== null, 'an acknowledgement from another port counts');
  }),
  on('foreign.reject-on-connection', '6', async (link) => {
    link.put(setupDatagram(OPCODE.REJECT, 0, link.theirFirst));
    await link.alive();
  }),
];

const CLOSING: readonly TrpCase[] = [
  on('fin.answered', '5', async (link) => {
    await link.alive();
    link.fin();
    check((await link.find(isFin)) !== null, 'a FIN is not answered with a FIN');
  }),
  on('fin.form', '2', async (link) => {
    await link.alive();
    link.fin();
    const fin = await link.find(isFin);
    check(fin !== null && fin.body.length === 0, 'the FIN has a body');
    check(fin.psn === link.expected, `the FIN has PSN ${fin.psn}, and not the next one, ${link.expected}`);
    check(fin.ack === link.next, 'the FIN does not acknowledge all');
  }),
  on(
    'fin.repeated',
    'B10',
    async (link) => {
      link.fin();
      const first = await link.find(isFin);
      check(first !== null, 'a FIN is not answered');
      const from = link.mark;
      link.fin();
      check((await link.find(isFin, 500, from)) !== null, 'a repeated FIN is not answered again');
    },
    FIXED,
  ),
  on(
    'fin.above-a-hole',
    'B10',
    async (link) => {
      const psn = link.next;
      const body = sendSegment(1, Buffer.from('last words'));
      link.fin((psn + 1) >>> 0);
      await sleep(50);
      link.put(datagram(OPCODE.DATA, psn, link.expected, body));
      const end = await link.find((one) => isFin(one) || isSend(one), 2000);
      check(end !== null, 'data below a FIN is lost');
      check(await link.acked(psn + 1), 'the data below the FIN is not acknowledged');
    },
    FIXED,
  ),
  on(
    'fin.of-another-time',
    'B10',
    async (link) => {
      link.fin((link.next - 1000) >>> 0);
      await sleep(NOTHING_MS);
      await link.alive();
    },
    FIXED,
  ),
];

const RDMA: readonly TrpCase[] = [
  on('rdma.write-and-read', '4', async (link) => {
    const { stag, to } = link.region();
    link.data(tagged(0, stag, to, Buffer.from(PATTERN)));
    link.data(readRequest(1, 0x1234, PATTERN.length, stag, to));
    const response = await link.find(({ body }) => body.length > 14 && (body[1]! & 15) === 2);
    check(response !== null, 'a Read Request is not answered');
    check(response.body.readUInt32BE(2) === 0x1234, 'the response does not name the sink');
    check(response.body.subarray(14).toString() === PATTERN, 'the response has other octets');
  }),
  on('rdma.write-in-pieces-backwards', '4', async (link) => {
    const { stag, to } = link.region();
    const psn = link.next;
    const halves = [PATTERN.slice(0, 13), PATTERN.slice(13)].map((text, i) =>
      tagged(0, stag, to + BigInt(13 * i), Buffer.from(text), i === 1),
    );
    for (const i of [1, 0]) link.put(datagram(OPCODE.DATA, psn + i, link.expected, halves[i]!));
    link.next = (psn + 2) >>> 0;
    link.data(readRequest(1, 0x77, PATTERN.length, stag, to));
    const response = await link.find(({ body }) => body.length > 14 && (body[1]! & 15) === 2);
    check(response?.body.subarray(14).toString() === PATTERN, 'segments that came backwards are misplaced');
  }),
  on('rdma.bad-stag', 'RFC 5041 7.2; 4', async (link) => {
    link.data(tagged(0, 0x7777_7777, 0n, Buffer.from('x')));
    const terminate = await link.find(isTerminate);
    check(terminate !== null, 'a Write to an unknown STag brings no Terminate');
    check(terminate.body[18] === 0x11 && terminate.body[19] === 0, 'the Terminate is not 1/1/00');
    const high = (terminate.body[20]! & 0xe0) !== 0;
    check(high === (link.probe.profile === 'fixed'), 'the bits of HdrCt stand at the other end of the octet');
  }),
  on('rdma.bad-bounds', 'RFC 5041 7.2', async (link) => {
    const { stag, to, length } = link.region();
    link.data(tagged(0, stag, to + BigInt(length), Buffer.from('x')));
    const terminate = await link.find(isTerminate);
    check(terminate?.body[18] === 0x11 && terminate.body[19] === 1, 'the Terminate is not 1/1/01');
  }),
  on(
    'rdma.zero-length-send',
    'RFC 5041 5',
    async (link) => {
      link.data(sendSegment(link.msn++, Buffer.alloc(0)));
      check(await link.acked(link.next), 'an empty Send is not taken');
      await link.alive();
    },
    FIXED,
  ),
  on(
    'rdma.msn-far-ahead',
    'RFC 5041 5',
    async (link) => {
      link.data(sendSegment(100_000, Buffer.from('x')));
      const end = await link.find((one) => isTerminate(one) || isFin(one), 2000);
      check(end !== null, 'an MSN without a receive does not end the stream');
    },
    FIXED,
  ),
  on('rdma.msn-in-order', 'RFC 5041 5', async (link) => {
    for (const text of ['m1', 'm2', 'm3']) {
      link.say(text);
      const echo = await link.echo(text);
      check(echo.body.readUInt32BE(10) === link.msn - 1, 'the MSNs of the echoes do not count from 1');
    }
  }),
];

export const TRP_CASES: readonly TrpCase[] = [
  ...LISTENER,
  ...CLIENT,
  ...DATA,
  ...JUNK,
  ...FOREIGN,
  ...CLOSING,
  ...RDMA,
];
