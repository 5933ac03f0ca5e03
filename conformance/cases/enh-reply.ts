// Enhanced connection set-up as the responder: what an initiator offers and what it makes of the four octets
// of a Reply. RFC 6581 6, 8, 9, 10.

import { pause } from '../probe/connection.ts';
import type { Connection } from '../probe/connection.ts';
import { describeSegment } from '../probe/decode.ts';
import { Deviation, check, same } from '../probe/deviation.ts';
import { parseReadRequest, tagged } from '../probe/messages.ts';
import type { Enhanced, ParsedStartup } from '../probe/startup.ts';
import { TERM } from '../probe/terminate-codes.ts';
import { CLOSE, describeOutcomes, terms } from '../probe/trial.ts';
import type { Outcome, RtrKind, Trial } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { AS_RESPONDER, scripted } from './define.ts';
import type { Case, CaseOptions } from './define.ts';

const roles = AS_RESPONDER;

/** A case about the contents of the initiator's Request. */
function request(
  id: string,
  title: string,
  requirements: string,
  expected: string,
  options: CaseOptions,
  look: (request: ParsedStartup, trial: Trial, connection: Connection) => void | Promise<void>,
): Case {
  return scripted(
    `enh.initiator.${id}`,
    title,
    requirements,
    expected,
    async (trial) => {
      const connection = await trial.connect();
      await look(await connection.expectStartup(), trial, connection);
    },
    { roles, ...options },
  );
}

function octetsOf(got: ParsedStartup): Enhanced {
  if (got.enhanced === null)
    throw new Deviation('an enhanced Request', `revision ${got.revision}, S=${Number(got.s)}`);
  return got.enhanced;
}

const kinds = (e: Enhanced): string =>
  [e.b && 'B', e.c && 'C', e.d && 'D'].filter(Boolean).join('') || 'none';

const offers: Case[] = [
  request(
    'format',
    'A default Request',
    'ENH-001 ENH-002',
    'S=1 only with revision 2 and four octets',
    {},
    (got) => {
      if (!got.s) return;
      check(got.revision >= 2, 'revision 2', String(got.revision));
      check(got.pdLength >= 4, 'PD_Length of at least 4', String(got.pdLength));
    },
  ),
  request(
    'depths',
    'A Request of a peer with IRD 5 and ORD 7',
    'ENH-003',
    'IRD 5 and ORD 7 in the four octets',
    { setup: { ird: 5, ord: 7 } },
    (got) => {
      const e = octetsOf(got);
      same('IRD', e.ird, 5);
      same('ORD', e.ord, 7);
    },
  ),
  request(
    'peer-to-peer',
    'A Request for the peer-to-peer model with Write and Read as RTR',
    'ENH-028',
    'A, C and D',
    { setup: { peerToPeer: true, rtr: ['write', 'read'] } },
    (got) => {
      const e = octetsOf(got);
      same('A', e.a, true);
      same('kinds', kinds(e), 'CD');
    },
  ),
  request(
    'peer-to-peer-all',
    'A Request for the peer-to-peer model with all RTR kinds',
    'ENH-028',
    'A, B, C and D',
    { setup: { peerToPeer: true, rtr: ['send', 'write', 'read'] } },
    (got) => same('kinds', kinds(octetsOf(got)), 'BCD'),
  ),
  request(
    'client-server',
    'A Request for the client-server model',
    'ENH-029 ENH-030',
    'A=0 without kinds',
    { setup: { peerToPeer: false } },
    (got) => {
      const e = octetsOf(got);
      same('A', e.a, false);
      same('kinds', kinds(e), 'none');
    },
  ),
  request(
    'not-negotiated',
    'A Request of a peer that settles depths elsewhere',
    'ENH-026 ENH-027',
    'IRD and ORD 0x3FFF',
    { setup: { negotiateDepths: false, peerToPeer: true } },
    (got) => {
      const e = octetsOf(got);
      same('IRD', e.ird, 0x3fff);
      same('ORD', e.ord, 0x3fff);
    },
  ),
  request(
    'unenhanced',
    'A Request of a peer that wants no enhancement',
    'ENH-007',
    'S=0',
    { setup: { revision: 1 } },
    (got) => same('S', got.s, false),
  ),
];

/** The initiator asks for these kinds, the Reply grants one; its first FPDU must be that message. */
function firstFpdu(kind: RtrKind, offered: readonly RtrKind[]): Case {
  const wanted = { write: OPCODE.RDMA_WRITE, read: OPCODE.READ_REQUEST, send: OPCODE.SEND }[kind];
  return request(
    `rtr-${kind}`,
    `A Reply that grants ${kind} to a peer with Sends posted`,
    'ENH-038 ENH-039 ENH-044',
    `the first FPDU is a zero-length ${kind}; then the Sends`,
    { setup: { peerToPeer: true, rtr: offered } },
    async (got, trial, connection) => {
      await trial.tester.post({ kind: 'send', length: 7, count: 2 });
      await connection.sendStartup(trial.replyFields(got, { rtr: [kind] }));
      await connection.enter();
      const segment = await connection.expectSegment('the RTR message');
      same('opcode', segment.opcode, wanted);
      if (kind === 'read') {
        const read = parseReadRequest(segment.payload)!;
        same('RDMARDSZ', read.size, 0);
        same('MSN', segment.msn, 1);
        connection.send(tagged({ opcode: OPCODE.READ_RESPONSE, stag: read.sinkStag, to: read.sinkTo }));
        await nextReadHasMsn2(trial, connection);
        return;
      }
      same('payload', segment.payload.length, 0);
      for (let i = 0; i < 2; i++)
        same(
          'octets of a Send',
          (await connection.expectOpcode(OPCODE.SEND, 'the Sends after it')).payload.length,
          7,
        );
    },
  );
}

async function nextReadHasMsn2(trial: Trial, connection: Connection): Promise<void> {
  await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0' });
  for (;;) {
    const segment = await connection.expectSegment('a Read Request after the RTR');
    if (segment.opcode !== OPCODE.READ_REQUEST) continue;
    same('MSN of the Read after a Read RTR', segment.msn, 2);
    return;
  }
}

const rtr: Case[] = [
  firstFpdu('write', ['write', 'read']),
  firstFpdu('read', ['write', 'read']),
  firstFpdu('send', ['send']),
  request(
    'rtr-several-granted',
    'A Reply that grants all kinds',
    'ENH-035 ENH-038',
    'one of the offered kinds as the first FPDU',
    {},
    async (got, trial, connection) => {
      if (got.enhanced?.a !== true) return;
      await connection.sendStartup(trial.replyFields(got, { rtr: ['send', 'write', 'read'] }));
      await connection.enter();
      await trial.takeRtr(connection);
      await connection.ping();
    },
  ),
  request(
    'rtr-read-leaves-no-trace',
    'A Read RTR that is answered',
    'ENH-043',
    'no completion for it',
    { setup: { peerToPeer: true, rtr: ['read'] } },
    async (got, trial, connection) => {
      await connection.sendStartup(trial.replyFields(got, { rtr: ['read'] }));
      await connection.enter();
      await trial.takeRtr(connection);
      await connection.ping();
      same('completions', (await trial.tester.completions(0, trial.limits.quiet)).length, 0);
    },
  ),
  request(
    'rtr-no-wait-in-client-server',
    'A Reply with A=0 to a peer in the client-server model',
    'ENH-029 ENH-031',
    'no RTR message; the stream works',
    { setup: { peerToPeer: false } },
    async (got, trial, connection) => {
      await connection.sendStartup(trial.replyFields(got));
      await connection.enter();
      await connection.expectQuiet('no RTR message');
      await connection.ping();
    },
  ),
];

/** A Reply that an initiator cannot work with. */
function failed(
  id: string,
  title: string,
  requirements: string,
  outcomes: readonly Outcome[],
  setup: CaseOptions['setup'],
  change: (e: Enhanced) => Enhanced,
): Case {
  return scripted(
    `enh.response.${id}`,
    title,
    requirements,
    describeOutcomes(outcomes),
    async (trial) => {
      const connection = await trial.connect();
      const got = await connection.expectStartup();
      const fields = trial.replyFields(got);
      await connection.sendStartup({
        ...fields,
        enhanced: change(fields.enhanced ?? { a: false, b: false, c: false, d: false, ird: 1, ord: 1 }),
      });
      await connection.enter();
      await trial.expect(connection, outcomes, new Uint8Array(0));
    },
    { roles, ...(setup === undefined ? {} : { setup }) },
  );
}

const IRD_TOO_SMALL = terms(TERM.MPA_INSUFFICIENT_IRD);
const NO_RTR = terms(TERM.MPA_NO_MATCHING_RTR);

const negotiation: Case[] = [
  failed('ord-too-large', 'A Reply with ORD 0x3FFE', 'ENH-022', IRD_TOO_SMALL, undefined, (e) => ({
    ...e,
    ord: 0x3ffe,
  })),
  failed(
    'ord-above-ird',
    'A Reply with ORD 5 to a peer whose IRD is 4 at most',
    'ENH-021 ENH-022',
    IRD_TOO_SMALL,
    { ird: 4, maxIrd: 4 },
    (e) => ({ ...e, ord: 5 }),
  ),
  failed(
    'no-common-rtr',
    'A Reply with A=1 that grants only a kind nobody asked for',
    'ENH-040',
    NO_RTR,
    { peerToPeer: true, rtr: ['write'] },
    (e) => ({ ...e, b: true, c: false, d: false }),
  ),
  failed(
    'no-rtr-at-all',
    'A Reply with A=1 and no kind',
    'ENH-040',
    NO_RTR,
    { peerToPeer: true, rtr: ['write'] },
    (e) => ({ ...e, a: true, b: false, c: false, d: false }),
  ),
  scripted(
    'enh.response.revision-1',
    'A revision 1 Reply to an enhanced Request',
    'ENH-013',
    'close, or operation as revision 1',
    async (trial) => plain(trial, 1),
    { roles },
  ),
  scripted(
    'enh.response.without-s',
    'A revision 2 Reply with S=0 to an enhanced Request',
    'ENH-013',
    'close, or operation as revision 1',
    async (trial) => plain(trial, 2),
    { roles },
  ),
  ...[0, 3].map((length) =>
    scripted(
      `enh.response.s-with-pd-length-${length}`,
      `A Reply with S=1 and PD_Length ${length}`,
      'ENH-005',
      'close without an FPDU',
      async (trial) => {
        const connection = await trial.connect();
        await connection.expectStartup();
        await connection.sendStartup({
          kind: 'reply',
          revision: 2,
          crc: true,
          extraFlags: 0x10,
          privateData: new Uint8Array(length),
        });
        await connection.enter();
        await trial.expect(connection, [CLOSE, ...terms(TERM.MPA_STARTUP_FRAME)], new Uint8Array(0));
      },
      { roles },
    ),
  ),
  scripted(
    'enh.response.ird-one',
    'A Reply with IRD 1 to a peer that posts three Reads',
    'ENH-020 RDMAP-051',
    'one Read Request at a time',
    async (trial) => {
      const connection = await trial.establish({ ird: 1 });
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0', count: 3 });
      await connection.expectOpcode(OPCODE.READ_REQUEST, 'a Read Request');
      await connection.expectQuiet('no second Read Request');
    },
    { roles, needs: ['tester'] },
  ),
  scripted(
    'enh.response.ird-open',
    'A Reply with IRD 0x3FFF to a peer with ORD 3 that posts five Reads',
    'ENH-026',
    'three Read Requests',
    async (trial) => {
      const connection = await trial.establish({ ird: 0x3fff });
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0', count: 5 });
      for (let i = 0; i < 3; i++) await connection.expectOpcode(OPCODE.READ_REQUEST, `Read Request ${i + 1}`);
      await connection.expectQuiet('no fourth Read Request');
    },
    { roles, setup: { ord: 3 } },
  ),
  scripted(
    'enh.response.ord-raises-ird',
    'A Reply with ORD 4 to a peer whose IRD is 2 and may grow to 8; four Reads at once',
    'ENH-021',
    'all four are answered',
    async (trial) => fourReads(trial, 4),
    { roles, setup: { ird: 2, maxIrd: 8 } },
  ),
  scripted(
    'enh.response.ord-open',
    'A Reply with ORD 0x3FFF to a peer with IRD 4; four Reads at once',
    'ENH-027',
    'all four are answered',
    async (trial) => fourReads(trial, 0x3fff),
    { roles, setup: { ird: 4 } },
  ),
];

async function plain(trial: Trial, revision: number): Promise<void> {
  const connection = await trial.connect();
  await connection.expectStartup();
  await connection.sendStartup({ kind: 'reply', revision, crc: true });
  await connection.enter();
  // A peer that received A=0 may still send the RTR it had in mind: cxgb4 does.
  await pause(trial.limits.quiet);
  if (connection.channel.end !== null) return;
  const mark = connection.makeRead({ sinkStag: 1, sinkTo: 1n, size: 0, sourceStag: 1, sourceTo: 0n });
  connection.send(mark);
  for (;;) {
    const incoming = await connection.receive();
    if (incoming.kind === 'end') return;
    if (incoming.kind === 'silence') throw new Deviation('close, or operation as revision 1', 'silence');
    if (incoming.segment.opcode === OPCODE.READ_RESPONSE) return;
    check(
      incoming.segment.opcode !== OPCODE.SEND,
      'close, or operation as revision 1',
      describeSegment(incoming.segment),
    );
  }
}

async function fourReads(trial: Trial, ord: number): Promise<void> {
  const connection = await trial.establish({ ord });
  const region = await trial.tester.region({ length: 20_000 });
  connection.sendTogether(
    [1, 2, 3, 4].map((stag) =>
      connection.makeRead({
        sinkStag: stag,
        sinkTo: 0n,
        size: 20_000,
        sourceStag: region.stag,
        sourceTo: region.to,
      }),
    ),
  );
  for (let i = 0; i < 4; i++) await connection.expectMessage(OPCODE.READ_RESPONSE, `Read Response ${i + 1}`);
}

/** Cases that a peer without the enhancement can show as well. */
const FOR_ALL: ReadonlySet<string> = new Set(['enh.initiator.format', 'enh.initiator.unenhanced']);

export const enhReply: readonly Case[] = [...offers, ...rtr, ...negotiation].map((entry) => ({
  ...entry,
  enhanced: !FOR_ALL.has(entry.id),
}));
