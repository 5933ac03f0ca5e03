// Enhanced connection set-up as the initiator: what a responder answers to the four octets. RFC 6581 6, 9,
// 10.

import type { Connection } from '../probe/connection.ts';
import { Deviation, Unsuited, check, same } from '../probe/deviation.ts';
import { untagged } from '../probe/messages.ts';
import type { Enhanced, ParsedStartup, StartupFields } from '../probe/startup.ts';
import { startupFrame } from '../probe/startup.ts';
import type { RtrKind, Trial } from '../probe/trial.ts';
import { OPCODE } from '../probe/wire.ts';
import { AS_INITIATOR, range, scripted } from './define.ts';
import type { Case, CaseOptions } from './define.ts';
import { expectRefusal } from './mpa-request.ts';

const roles = AS_INITIATOR;
const PLAIN: Enhanced = { a: false, b: false, c: false, d: false, ird: 4, ord: 4 };

/** An enhanced Request, and what its accepting Reply must say. */
function reply(
  id: string,
  title: string,
  requirements: string,
  expected: string,
  enhanced: Partial<Enhanced>,
  look: (reply: ParsedStartup, trial: Trial, connection: Connection) => void | Promise<void>,
  options: CaseOptions = {},
): Case {
  return scripted(
    `enh.request.${id}`,
    title,
    requirements,
    expected,
    async (trial) => {
      const connection = await trial.connect();
      await connection.sendStartup({ ...trial.requestFields(), enhanced: { ...PLAIN, ...enhanced } });
      const got = await connection.expectStartup();
      check(!got.reject, 'an accepting Reply', 'a Reply with R=1');
      await look(got, trial, connection);
      // A peer that waits for an RTR message gets one: silence is another case.
      if (!connection.operational) await goOn(trial, connection);
    },
    { roles, ...options },
  );
}

/** The four octets of a Reply, or a Deviation. */
function octetsOf(reply: ParsedStartup): Enhanced {
  if (reply.enhanced === null)
    throw new Deviation('a Reply with S=1 and the four octets', `flags 0x${reply.flags.toString(16)}`, [
      'ENH-009',
    ]);
  return reply.enhanced;
}

const kinds = (e: Enhanced): string =>
  [e.b && 'B', e.c && 'C', e.d && 'D'].filter(Boolean).join('') || 'none';

/** Go on after the Reply, with the RTR it asks for, and prove that the stream works. */
async function goOn(trial: Trial, connection: Connection): Promise<void> {
  await connection.enter();
  await trial.sendRtr(connection);
  await connection.ping();
}

const format: Case[] = [
  reply(
    'answered-in-kind',
    'An enhanced Request',
    'ENH-001 ENH-002 ENH-003 ENH-009',
    'a Reply with revision 2, S=1 and the four octets',
    {},
    async (got, trial, connection) => {
      same('revision', got.revision, 2);
      same('S', got.s, true);
      check(got.pdLength >= 4, 'PD_Length of at least 4', String(got.pdLength), ['ENH-004']);
      octetsOf(got);
      await goOn(trial, connection);
    },
  ),
  reply(
    'private-data-behind',
    'An enhanced Request with private data for the program above',
    'ENH-004 ENH-006',
    'the program sees its own octets',
    {},
    async (_got, trial) => {
      const [request] = await trial.tester.events('request');
      same('private data', request?.privateData ?? '', '');
      same('IRD seen by the program', request?.ird ?? -1, 4);
      same('ORD seen by the program', request?.ord ?? -1, 4);
    },
    { needs: ['tester'] },
  ),
  ...[1, 3, 508].map((length) =>
    scripted(
      `enh.request.private-data-${length}`,
      `An enhanced Request with ${length} octets for the program above`,
      'ENH-004 ENH-006 MPA-022',
      'exactly these octets reach it',
      async (trial) => {
        const data = trial.random.octets(length);
        await trial.establish({ privateData: data });
        const [request] = await trial.tester.events('request');
        same('private data', request?.privateData ?? '', Buffer.from(data).toString('hex'));
      },
      { roles, needs: ['tester'] },
    ),
  ),
  ...[0, 1, 2, 3].map((length) =>
    scripted(
      `enh.request.s-with-pd-length-${length}`,
      `A Request with S=1 and PD_Length ${length}`,
      'ENH-005',
      'close, or a Reply with R=1',
      async (trial) => {
        const connection = await trial.connect();
        await connection.sendStartup({
          ...trial.requestFields({ revision: 1 }),
          revision: 2,
          extraFlags: 0x10,
          privateData: new Uint8Array(length),
        });
        await expectRefusal(connection, true);
      },
      { roles },
    ),
  ),
  scripted(
    'enh.request.plain-revision-1',
    'A revision 1 Request',
    'ENH-008 ENH-010',
    'a Reply with revision 1 and S=0',
    async (trial) => {
      const connection = await trial.connect();
      await connection.sendStartup(trial.requestFields({ revision: 1 }));
      const got = await connection.expectStartup();
      same('revision', got.revision, 1);
      same('S', got.s, false);
    },
    { roles },
  ),
  scripted(
    'enh.request.plain-revision-2',
    'A revision 2 Request with S=0',
    'ENH-010',
    'a Reply with S=0',
    async (trial) => {
      const connection = await trial.connect();
      await connection.sendStartup({ ...trial.requestFields({ revision: 1 }), revision: 2 });
      same('S', (await connection.expectStartup()).s, false);
      await connection.enter();
      await connection.ping();
    },
    { roles },
  ),
  scripted(
    'enh.request.to-a-peer-without',
    'An enhanced Request to a peer that knows only revision 1',
    'ENH-011 MPA-015',
    'close',
    async (trial) => {
      const connection = await trial.connect();
      await connection.sendStartup(trial.requestFields({ revision: 2 }));
      await expectRefusal(connection, false);
    },
    { roles, setup: { revision: 1 } },
  ),
  scripted(
    'enh.request.one-octet-at-a-time',
    'An enhanced Request in pieces of one octet',
    'MPA-023 ENH-009',
    'an enhanced Reply',
    async (trial) => {
      const connection = await trial.connect();
      const fields: StartupFields = { ...trial.requestFields(), privateData: Uint8Array.of(1, 2, 3) };
      await connection.sendStartup(fields, range(startupFrame(fields).length));
      octetsOf(await connection.expectStartup());
      await goOn(trial, connection);
    },
    { roles },
  ),
];

const depths: Case[] = [
  ...[0, 1, 2, 5, 16].map((ird) =>
    reply(
      `ird-${ird}`,
      `A Request with IRD ${ird}`,
      'ENH-015 ENH-016',
      `ORDr at most ${ird}`,
      { ird },
      (got) => {
        const { ord } = octetsOf(got);
        check(ord <= ird, `ORD of at most ${ird}`, String(ord));
      },
    ),
  ),
  ...[1, 4, 8].map((ord) =>
    reply(
      `ord-${ord}`,
      `A Request with ORD ${ord} to a peer that can serve 16`,
      'ENH-017',
      `IRDr at least ${ord}`,
      { ord },
      (got) => {
        const { ird } = octetsOf(got);
        check(ird >= ord, `IRD of at least ${ord}`, String(ird));
      },
      { setup: { ird: 16 } },
    ),
  ),
  reply(
    'ird-below-ord',
    'A Request with ORD 8 to a peer that serves 2',
    'ENH-017',
    'IRDr names what the peer serves',
    { ord: 8 },
    (got) => {
      const { ird } = octetsOf(got);
      check(ird >= 1 && ird <= 0x3ffe, 'an IRD between 1 and 0x3FFE', String(ird));
    },
    { setup: { ird: 2, maxIrd: 2 } },
  ),
  reply('ord-not-negotiated', 'A Request with ORD 0x3FFF', 'ENH-024', 'IRDr 0x3FFF', { ord: 0x3fff }, (got) =>
    same('IRD', octetsOf(got).ird, 0x3fff),
  ),
  reply('ird-not-negotiated', 'A Request with IRD 0x3FFF', 'ENH-025', 'ORDr 0x3FFF', { ird: 0x3fff }, (got) =>
    same('ORD', octetsOf(got).ord, 0x3fff),
  ),
  reply(
    'ird-largest',
    'A Request with IRD and ORD 0x3FFE',
    'ENH-014',
    'values clipped, or the Request refused',
    { ird: 0x3ffe, ord: 0x3ffe },
    (got) => {
      const { ird, ord } = octetsOf(got);
      check(ird < 0x3fff && ord <= 0x3ffe, 'negotiated values', `IRD ${ird} ORD ${ord}`);
    },
  ),
  reply(
    'read-rtr-without-ord',
    'A Request with A=1, D=1 and ORD 0',
    'ENH-018',
    'D with IRDr of at least 1, or another kind',
    { a: true, d: true, ord: 0 },
    (got) => {
      const e = octetsOf(got);
      if (e.d) check(e.ird >= 1, 'an IRD of at least 1', String(e.ird));
    },
  ),
  scripted(
    'enh.request.required-ord',
    'A Request with IRD 1 to a peer that needs an ORD of 4',
    'ENH-019',
    'a Reply with R=1 and ORD 4',
    async (trial) => {
      const connection = await trial.connect();
      await connection.sendStartup({ ...trial.requestFields(), enhanced: { ...PLAIN, ird: 1 } });
      const got = await connection.expectStartup();
      same('R', got.reject, true);
      same('ORD', octetsOf(got).ord, 4);
    },
    { roles, setup: { requiredOrd: 4 } },
  ),
  ...(
    [
      ['ord', 'ENH-024'],
      ['ird', 'ENH-025'],
    ] as const
  ).map(([open, requirement]) =>
    scripted(
      `enh.request.rejected-${open}-not-negotiated`,
      `A Request with ${open.toUpperCase()} 0x3FFF to a peer that rejects`,
      requirement,
      '0x3FFF in the rejecting Reply too',
      async (trial) => {
        const connection = await trial.connect();
        await connection.sendStartup({ ...trial.requestFields(), enhanced: { ...PLAIN, [open]: 0x3fff } });
        const got = await connection.expectStartup();
        same('R', got.reject, true);
        if (open === 'ord') same('IRD', octetsOf(got).ird, 0x3fff);
        else same('ORD', octetsOf(got).ord, 0x3fff);
      },
      { roles, setup: { reject: true } },
    ),
  ),
  scripted(
    'enh.request.ord-limited-by-ird',
    'The peer posts three Reads to a probe that offered IRD 1',
    'ENH-015 RDMAP-051',
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
    'enh.request.ord-unlimited',
    'The peer posts three Reads to a probe that left IRD open',
    'ENH-025',
    'its own ORD of 3 holds',
    async (trial) => {
      const connection = await trial.establish({ ird: 0x3fff });
      await trial.tester.post({ kind: 'read', length: 4, stag: 9, to: '0', count: 5 });
      for (let i = 0; i < 3; i++) await connection.expectOpcode(OPCODE.READ_REQUEST, `Read Request ${i + 1}`);
      await connection.expectQuiet('no fourth Read Request');
    },
    { roles, setup: { ord: 3 } },
  ),
];

const RTR: readonly (readonly [name: string, asked: Partial<Enhanced>])[] = [
  ['b', { b: true }],
  ['c', { c: true }],
  ['d', { d: true }],
  ['bc', { b: true, c: true }],
  ['bd', { b: true, d: true }],
  ['cd', { c: true, d: true }],
  ['bcd', { b: true, c: true, d: true }],
];

const rtr: Case[] = [
  ...RTR.map(([name, asked]) =>
    reply(
      `rtr-${name}`,
      `A Request with A=1 and RTR kinds ${name.toUpperCase()}`,
      'ENH-032 ENH-033 ENH-034 ENH-035',
      'A=1 and at least one kind; the stream works after it',
      { a: true, ...asked },
      async (got, trial, connection) => {
        const e = octetsOf(got);
        same('A', e.a, true);
        check(e.b || e.c || e.d, 'at least one of B, C, D', kinds(e));
        const common = (e.b && asked.b === true) || (e.c && asked.c === true) || (e.d && asked.d === true);
        if (common) await goOn(trial, connection);
      },
    ),
  ),
  ...RTR.filter(([name]) => name.length > 1).map(([name, asked]) =>
    reply(
      `rtr-${name}-one-bit`,
      `A Request with A=1 and RTR kinds ${name.toUpperCase()}`,
      'ENH-037 ENH-034',
      'exactly one bit, a requested one',
      { a: true, ...asked },
      (got) => {
        const e = octetsOf(got);
        same('kinds', kinds(e).length, 1);
        // ENH-036: a peer that supports none of them names another.
        if (!((e.b && asked.b === true) || (e.c && asked.c === true) || (e.d && asked.d === true)))
          throw new Unsuited(`the peer supports no requested kind, but ${kinds(e)}`);
      },
    ),
  ),
  reply(
    'rtr-none-in-common',
    'A Request with only B to a peer that knows C',
    'ENH-036',
    'a kind the peer supports',
    { a: true, b: true },
    (got) => {
      const e = octetsOf(got);
      same('kinds', kinds(e), 'C');
    },
    { setup: { rtr: ['write'] } },
  ),
  reply(
    'rtr-none-asked',
    'A Request with A=1 and no kind',
    'ENH-036 ENH-033',
    'A=1 and a kind the peer supports',
    { a: true },
    (got) => {
      const e = octetsOf(got);
      same('A', e.a, true);
      check(e.b || e.c || e.d, 'at least one of B, C, D', kinds(e));
    },
  ),
  reply(
    'client-server',
    'A Request with A=0',
    'ENH-032 ENH-029',
    'A=0, and the stream works',
    {},
    async (got, trial, connection) => {
      same('A', octetsOf(got).a, false);
      await goOn(trial, connection);
    },
  ),
  reply(
    'client-server-with-kinds',
    'A Request with A=0 and C, D set',
    'ENH-030 ENH-031',
    'A=0 without kinds, and no wait for an RTR',
    { c: true, d: true },
    async (got, _trial, connection) => {
      const e = octetsOf(got);
      same('A', e.a, false);
      same('kinds', kinds(e), 'none');
      await connection.enter();
      await connection.ping();
    },
  ),
  ...(['write', 'read', 'send'] as const).map((kind) => throughRtr(kind)),
  ...(['fin', 'rst'] as const).map((how) =>
    scripted(
      `enh.request.${how}-before-the-rtr`,
      `${how.toUpperCase()} where the RTR message is awaited`,
      'ENH-047 MPA-107',
      'close; the peer lives on',
      async (trial) => {
        const connection = await trial.connect();
        await connection.sendStartup(trial.requestFields());
        check((await connection.expectStartup()).enhanced?.a === true, 'a Reply with A=1', 'another');
        if (how === 'rst') {
          connection.channel.reset();
          return;
        }
        connection.channel.finish();
        await connection.enter();
        check((await connection.reaction()).end !== null, 'close', 'an open connection');
      },
      { roles },
    ),
  ),
  ...(['queue', 'stag'] as const).map((what) =>
    scripted(
      `enh.request.rtr-with-bad-${what}-behind`,
      `The RTR message and a ${what === 'queue' ? 'Send on queue 4' : 'Write to an unknown STag'} in ` +
        'one TCP write',
      'ENH-045 DDP-039 RDMAP-091',
      'Terminate, or close; the peer lives on',
      async (trial) => {
        const connection = await trial.connect();
        await connection.sendStartup(trial.requestFields());
        if ((await connection.expectStartup()).enhanced?.c !== true)
          throw new Unsuited('the peer does not grant a Write RTR');
        await connection.enter();
        const rtrMessage = connection.makeWrite(1, 0n, new Uint8Array(0));
        const bad =
          what === 'queue'
            ? untagged({ opcode: OPCODE.SEND, qn: 4, msn: 1 })
            : connection.makeWrite(0x0707_0700, 0n, Uint8Array.of(1));
        connection.sendTogether([rtrMessage, bad]);
        const { end } = await connection.reaction();
        check(end !== null, 'Terminate, or close', 'an open connection');
      },
      { roles },
    ),
  ),
  reply(
    'rtr-second-fpdu',
    'A zero-length Read after a Read RTR',
    'ENH-042 ENH-044',
    'both are answered: MSN 2 follows the RTR',
    { a: true, d: true },
    async (got, trial, connection) => {
      const e = octetsOf(got);
      if (!e.d) return;
      await goOn(trial, connection);
      same('next MSN of queue 1', connection.msn[1]!, 3);
    },
  ),
];

/** The responder's direction opens after the RTR, which no program above sees. */
function throughRtr(kind: RtrKind): Case {
  const bits = { a: true, b: kind === 'send', c: kind === 'write', d: kind === 'read' };
  return reply(
    `rtr-${kind}-opens`,
    `The peer has a Send waiting; a ${kind} RTR arrives`,
    'ENH-041 ENH-042 ENH-045 MPA-029',
    'nothing before it, the Send after it, no completion for the RTR',
    bits,
    async (_got, trial, connection) => {
      await connection.enter();
      await trial.tester.post({ kind: 'send', length: 9 });
      await connection.expectQuiet('nothing before the RTR message');
      if (kind === 'read')
        connection.send(
          connection.makeRead({ sinkStag: 0, sinkTo: 0n, size: 0, sourceStag: 1, sourceTo: 0n }),
        );
      else await trial.sendRtr(connection);
      for (let got = 0; got < (kind === 'read' ? 2 : 1); ) {
        const segment = await connection.expectSegment('the waiting Send');
        if (segment.opcode === OPCODE.SEND || segment.opcode === OPCODE.READ_RESPONSE) got++;
      }
      const done = await trial.tester.completions(1, trial.limits.quiet);
      same('receive completions', done.filter((wc) => wc.queue === 'receive').length, 0);
    },
    { setup: { rtr: [kind] } },
  );
}

/** Cases that a peer without the enhancement can show as well. */
const FOR_ALL: ReadonlySet<string> = new Set([
  'enh.request.plain-revision-1',
  'enh.request.to-a-peer-without',
]);

export const enhRequest: readonly Case[] = [...format, ...depths, ...rtr].map((entry) => ({
  ...entry,
  enhanced: !FOR_ALL.has(entry.id),
}));
