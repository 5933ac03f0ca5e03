// MPA start-up as the initiator: what a responder makes of Requests, good and bad, and what its Replies look
// like. RFC 5044 7.1.1, 7.1.2, 8.

import { tagged } from '../probe/messages.ts';
import type { Connection, StartupArrival } from '../probe/connection.ts';
import { Deviation, brief, check, same, sameBytes } from '../probe/deviation.ts';
import type { StartupFields } from '../probe/startup.ts';
import { startupFrame } from '../probe/startup.ts';
import type { Trial } from '../probe/trial.ts';
import { REPLY_KEY, REQUEST_KEY } from '../probe/wire.ts';
import { fromHex, toHex } from '../profiles/protocol.ts';
import { AS_INITIATOR, range, hex2, scripted } from './define.ts';
import type { Case, CaseOptions } from './define.ts';

const roles = AS_INITIATOR;
const REFUSED = 'close without an accepting Reply';

/** Throw unless the peer ended without accepting; a rejecting Reply counts where `reject` allows it. */
export async function expectRefusal(connection: Connection, reject: boolean): Promise<StartupArrival> {
  const arrival = await connection.readStartup();
  if (arrival.kind === 'silence')
    throw new Deviation(REFUSED, arrival.octets.length > 0 ? brief(arrival.octets) : 'silence');
  if (arrival.kind === 'frame') {
    check(
      arrival.frame.reject && reject,
      REFUSED,
      arrival.frame.reject ? 'a Reply with R=1' : 'an accepting Reply',
    );
    const { end } = await connection.reaction();
    check(end !== null, 'close after the rejecting Reply', 'an open connection');
  } else if (arrival.octets.length > 0) {
    throw new Deviation(REFUSED, brief(arrival.octets));
  }
  return arrival;
}

/** A Request that must be refused. */
function refused(
  id: string,
  title: string,
  requirements: string,
  fields: Partial<StartupFields>,
  reject = false,
): Case {
  return scripted(
    `mpa.request.${id}`,
    title,
    requirements,
    reject ? `${REFUSED} (R=1 will do)` : REFUSED,
    async (trial) => {
      const connection = await trial.connect();
      await connection.sendStartup({ ...trial.requestFields({ revision: 1 }), ...fields });
      await expectRefusal(connection, reject);
    },
    { roles },
  );
}

/** A Request that must be accepted, after which the stream works. */
function accepted(
  id: string,
  title: string,
  requirements: string,
  fields: Partial<StartupFields>,
  cuts: readonly number[] = [],
): Case {
  return scripted(
    `mpa.request.${id}`,
    title,
    requirements,
    'an accepting Reply and normal operation',
    async (trial) => {
      const connection = await trial.connect();
      await connection.sendStartup({ ...trial.requestFields({ revision: 1 }), ...fields }, cuts);
      await expectAccepted(connection);
    },
    { roles },
  );
}

/** An accepting Reply, and an answer to a zero-length Read after it. */
async function expectAccepted(connection: Connection): Promise<void> {
  const reply = await connection.expectStartup();
  check(!reply.reject, 'an accepting Reply', 'a Reply with R=1');
  await connection.enter();
  await connection.ping();
}

function flipped(key: Uint8Array, octet: number): Uint8Array {
  const wrong = key.slice();
  wrong[octet]! ^= 0x01;
  return wrong;
}

const octets = (length: number): Uint8Array => Uint8Array.from({ length }, (_, i) => (i * 7 + 1) & 0xff);

const keys: Case[] = [
  ...range(16).map((i) =>
    refused(`key-flipped-octet-${i}`, `Request whose key differs in octet ${i}`, 'MPA-004 MPA-110 MPA-111', {
      key: flipped(REQUEST_KEY, i),
    }),
  ),
  refused('key-of-a-reply', 'Request with the key of a Reply', 'MPA-004', { key: REPLY_KEY }),
  refused('key-zero', 'Request whose key is 16 zero octets', 'MPA-004', { key: new Uint8Array(16) }),
];

const revisions: Case[] = [3, 4, 127, 128, 255].map((revision) =>
  refused(`revision-${revision}`, `Request with revision ${revision}`, 'MPA-015', { revision }, true),
);

const revisionZero = scripted(
  'mpa.request.revision-0',
  'Request of an RDMA Consortium peer: revision 0, M and C set',
  'MPA-048 MPA-050',
  'Reply with revision 1 then FIN, or close, or a Reply with revision 0 and M and C set',
  async (trial) => {
    const connection = await trial.connect();
    await connection.sendStartup({ kind: 'request', revision: 0, markers: true, crc: true });
    const arrival = await connection.readStartup();
    if (arrival.kind === 'end') return;
    if (arrival.kind === 'silence') throw new Deviation('an answer or close', 'silence');
    if (arrival.frame.revision === 0) {
      check(
        arrival.frame.reject || (arrival.frame.markers && arrival.frame.crc),
        'M and C in a Reply with revision 0',
        `flags 0x${hex2(arrival.frame.flags)}`,
      );
      return;
    }
    same('revision', arrival.frame.revision, 1);
    check((await connection.reaction()).end !== null, 'close after the Reply', 'an open connection');
  },
  { roles },
);

const flags: Case[] = [
  ...[0x01, 0x02, 0x04, 0x08, 0x0f].map((bits) =>
    accepted(`reserved-flags-${hex2(bits)}`, `Request with reserved flag bits 0x${hex2(bits)}`, 'MPA-011', {
      extraFlags: bits,
    }),
  ),
  accepted('reject-bit-set', 'Request with R=1', 'MPA-013', { reject: true }),
];

const lengths: Case[] = [
  ...[513, 514, 1024, 0x8000, 0xffff].map((pdLength) =>
    refused(
      `pd-length-${pdLength}`,
      `Request that announces ${pdLength} octets of private data`,
      'MPA-019 MPA-110',
      { pdLength, privateData: octets(64) },
    ),
  ),
  ...[0, 1, 2, 3, 4, 5, 16, 252, 253, 255, 256, 511, 512].map((length) =>
    accepted(
      `private-data-${length}`,
      `Request with ${length} octets of private data`,
      'MPA-020 MPA-040 MPA-041',
      { privateData: octets(length) },
    ),
  ),
];

/** A prefix of a frame, then FIN. */
function truncated(id: string, title: string, octetsSent: number, fields: Partial<StartupFields>): Case {
  return scripted(
    `mpa.request.${id}`,
    title,
    'MPA-021',
    REFUSED,
    async (trial) => {
      const connection = await trial.connect();
      connection.sendOctets(
        startupFrame({ ...trial.requestFields({ revision: 1 }), ...fields }).subarray(0, octetsSent),
        `the first ${octetsSent} octets of a Request`,
      );
      connection.channel.finish();
      await expectRefusal(connection, true);
    },
    { roles },
  );
}

const cut: Case[] = [
  ...[1, 8, 15, 16, 17, 18, 19].map((n) =>
    truncated(`truncated-after-${n}`, `FIN after ${n} octets of a Request`, n, {}),
  ),
  truncated('truncated-private-data', 'FIN after 4 of 10 announced octets of private data', 24, {
    privateData: octets(10),
  }),
  truncated('truncated-before-private-data', 'FIN after a header that announces 10 octets', 20, {
    privateData: octets(10),
  }),
  accepted(
    'one-octet-at-a-time',
    'Request in pieces of one octet',
    'MPA-023',
    { privateData: octets(5) },
    range(25),
  ),
  ...[1, 9, 16, 17, 18, 19, 20, 22].map((n) =>
    accepted(`cut-behind-${n}`, `Request cut after octet ${n}`, 'MPA-023', { privateData: octets(5) }, [n]),
  ),
];

/** Octets after the Request in the same write. */
function glued(
  id: string,
  title: string,
  requirements: string,
  tail: (trial: Trial) => Uint8Array,
  mayWork: boolean,
): Case {
  return scripted(
    `mpa.request.${id}`,
    title,
    requirements,
    mayWork ? 'close, or normal operation' : REFUSED,
    async (trial) => {
      const connection = await trial.connect();
      const fields = trial.requestFields({ revision: 1 });
      const frame = startupFrame(fields);
      const rest = tail(trial);
      connection.request = null;
      connection.sendOctets(Uint8Array.of(...frame, ...rest), 'a Request with more octets after it');
      const arrival = await connection.readStartup();
      if (arrival.kind === 'end') return;
      if (arrival.kind === 'silence') throw new Deviation('an answer or close', 'silence');
      if (arrival.frame.reject) return;
      check(mayWork, REFUSED, 'an accepting Reply');
    },
    { roles },
  );
}

const gluedOn: Case[] = [
  glued(
    'one-octet-behind',
    'One more octet after the Request, in the same write',
    'MPA-026',
    () => Uint8Array.of(0),
    true,
  ),
  glued(
    'fpdu-behind',
    'A whole FPDU after the Request, in the same write',
    'MPA-026',
    (trial) => {
      void trial;
      const ulpdu = tagged({ opcode: 0, stag: 1, to: 0n });
      return Uint8Array.of(0, ulpdu.length, ...ulpdu, 0xeb, 0xd3, 0x4c, 0x5f);
    },
    true,
  ),
  glued(
    'second-request-behind',
    'Two Requests in one write',
    'MPA-026',
    (trial) => startupFrame(trial.requestFields({ revision: 1 })),
    true,
  ),
  scripted(
    'mpa.request.malformed-with-data-behind',
    'A Request with a wrong key and 1000 octets glued on',
    'MPA-004 MPA-111',
    REFUSED,
    async (trial) => {
      const connection = await trial.connect();
      const frame = startupFrame({ ...trial.requestFields({ revision: 1 }), key: flipped(REQUEST_KEY, 9) });
      connection.sendOctets(
        Uint8Array.of(...frame, ...trial.random.octets(1000)),
        'a malformed Request with 1000 octets after it',
      );
      await expectRefusal(connection, false);
    },
    { roles },
  ),
  scripted(
    'mpa.request.too-long-with-data-behind',
    'A Request that announces 65535 octets and brings 2000',
    'MPA-019 MPA-111',
    REFUSED,
    async (trial) => {
      const connection = await trial.connect();
      const frame = startupFrame({ ...trial.requestFields({ revision: 1 }), pdLength: 0xffff });
      connection.sendOctets(
        Uint8Array.of(...frame, ...trial.random.octets(2000)),
        'a Request with PD_Length 65535 and 2000 octets after it',
      );
      await expectRefusal(connection, false);
    },
    { roles },
  ),
];

const waiting: Case[] = [
  scripted(
    'mpa.request.none',
    'Connect and stay silent',
    'MPA-007 MPA-027',
    'no octet, then close within the time limit',
    async (trial) => {
      const connection = await trial.connect();
      await expectTimedOut(trial, connection);
    },
    { roles, setup: { requestTimeout: 300 } },
  ),
  scripted(
    'mpa.request.half',
    'Half a Request, then silence',
    'MPA-008 MPA-027',
    'no octet, then close within the time limit',
    async (trial) => {
      const connection = await trial.connect();
      connection.sendOctets(
        startupFrame(trial.requestFields({ revision: 1 })).subarray(0, 19),
        'the first 19 octets of a Request',
      );
      await expectTimedOut(trial, connection);
    },
    { roles, setup: { requestTimeout: 300 } },
  ),
  scripted(
    'mpa.request.none-stock',
    'Connect and stay silent for the time a stock peer takes',
    'MPA-007',
    'no octet, then close within the time limit',
    async (trial) => {
      await expectTimedOut(trial, await trial.connect());
    },
    { roles, slow: true },
  ),
  scripted(
    'mpa.request.no-reply-before-its-end',
    'A Request whose last octet comes late',
    'MPA-027',
    'nothing before the last octet, then a Reply',
    async (trial) => {
      const connection = await trial.connect();
      const frame = startupFrame({ ...trial.requestFields({ revision: 1 }), privateData: octets(3) });
      connection.sendOctets(frame.subarray(0, -1), 'all but the last octet of a Request');
      const early = await connection.readStartup(trial.limits.quiet);
      check(
        early.kind === 'silence' && early.octets.length === 0,
        'nothing before the Request is complete',
        early.kind,
      );
      connection.sendOctets(frame.subarray(-1), 'the last octet');
      check(!(await connection.expectStartup()).reject, 'an accepting Reply', 'a Reply with R=1');
    },
    { roles },
  ),
];

async function expectTimedOut(trial: Trial, connection: Connection): Promise<void> {
  const early = await connection.readStartup(trial.limits.patience);
  check(
    early.kind === 'end',
    'close within the time limit',
    early.kind === 'silence' ? 'silence' : 'a frame',
  );
  check(early.octets.length === 0, 'no octet before the close', brief(early.octets));
}

const privateData: Case[] = [1, 3, 255, 512].map((length) =>
  scripted(
    `mpa.request.private-data-delivered-${length}`,
    `${length} octets of private data reach the program above, and nothing else does`,
    'MPA-022 MPA-047',
    'exactly the octets sent',
    async (trial) => {
      const data = trial.random.octets(length);
      await trial.establish({ revision: 1, privateData: data });
      const [request] = await trial.tester.events('request');
      sameBytes('private data', fromHex(request?.privateData ?? ''), data);
    },
    { roles, needs: ['tester'] },
  ),
);

/** A case about the form of a Reply. */
function reply(
  id: string,
  title: string,
  requirements: string,
  expected: string,
  options: CaseOptions,
  look: (trial: Trial, connection: Connection) => Promise<void>,
): Case {
  return scripted(
    `mpa.reply.${id}`,
    title,
    requirements,
    expected,
    async (trial) => {
      const connection = await trial.connect();
      await connection.sendStartup({ ...trial.requestFields(options.startup ?? { revision: 1 }) });
      await connection.expectStartup();
      await look(trial, connection);
    },
    { roles, ...options },
  );
}

const replies: Case[] = [
  reply(
    'key',
    'The key of a Reply',
    'MPA-003',
    '4d 50 41 20 49 44 20 52 65 70 20 46 72 61 6d 65',
    {},
    async (_trial, { reply: got }) => sameBytes('key', got!.key, REPLY_KEY),
  ),
  reply(
    'reserved-bits',
    'Reserved flag bits of a Reply to a revision 1 Request',
    'MPA-010',
    'zeros',
    {},
    async (_trial, { reply: got }) => same('reserved flag bits', got!.flags & 0x1f, 0),
  ),
  reply(
    'reserved-bits-enhanced',
    'Reserved flag bits of an enhanced Reply',
    'MPA-010',
    'zeros',
    { startup: { revision: 2 }, enhanced: true },
    async (_trial, { reply: got }) => same('reserved flag bits', got!.flags & 0x0f, 0),
  ),
  ...[
    [1, 0x1f],
    [2, 0x0f],
  ].map(([revision, bits]) =>
    scripted(
      `mpa.reply.reserved-bits-not-echoed-revision-${revision}`,
      `Reserved flag bits of the Reply to a revision ${revision} Request that has them all set`,
      'MPA-010 MPA-011',
      'zeros',
      async (trial) => {
        const connection = await trial.connect();
        await connection.sendStartup({
          ...trial.requestFields({ revision: revision as 1 | 2 }),
          extraFlags: bits!,
        });
        const got = await connection.expectStartup();
        same('reserved flag bits', got.flags & bits!, 0);
      },
      { roles, enhanced: revision === 2 },
    ),
  ),
  reply(
    'revision-1',
    'Revision of the Reply to a revision 1 Request',
    'MPA-014 ENH-008',
    'revision 1',
    {},
    async (_trial, { reply: got }) => same('revision', got!.revision, 1),
  ),
  reply('crc-by-default', 'C of a default Reply', 'MPA-052', 'C=1', {}, async (_trial, { reply: got }) =>
    same('C', got!.crc, true),
  ),
  reply('accepts', 'A good Request', 'MPA-030', 'a Reply with R=0', {}, async (_trial, { reply: got }) =>
    same('R', got!.reject, false),
  ),
  ...[0, 1, 2, 3, 5, 64, 512].map((length) =>
    reply(
      `private-data-${length}`,
      `A Reply with ${length} octets of private data, and the FPDU after it`,
      'MPA-017 MPA-040 MPA-041 MPA-047',
      'PD_Length counts exactly the data, and the first FPDU follows at once',
      { setup: { privateData: toHex(octets(length)) } },
      async (_trial, connection) => {
        same('PD_Length', connection.reply!.pdLength, length);
        sameBytes('private data', connection.reply!.privateData, octets(length));
        await connection.enter();
        await connection.ping();
      },
    ),
  ),
  reply(
    'nothing-behind',
    'Wait after the Reply with sends posted',
    'MPA-028',
    'nothing before an FPDU has been received, then the Sends',
    { setup: {} },
    async (trial, connection) => {
      await connection.enter();
      await trial.tester.post({ kind: 'send', length: 20, count: 2 });
      await connection.expectQuiet('nothing before the first FPDU of the initiator');
      await connection
        .ping()
        .then((others) => check(others.length <= 2, 'two Sends', `${others.length} messages`));
      await expectBothSends(trial);
    },
  ),
];

async function expectBothSends(trial: Trial): Promise<void> {
  const done = await trial.tester.completions(2);
  const sends = done.filter((wc) => wc.queue === 'send' && wc.status === 'success');
  check(sends.length === 2, 'two completed Sends', `${sends.length}`);
}

const opening: Case[] = [
  [
    'zero-length-write',
    'a zero-length Write',
    () => tagged({ opcode: 0, stag: 0xffff_ff00, to: 0n }),
  ] as const,
  ['send', 'a Send', (connection: Connection) => connection.makeSend(Uint8Array.of(1, 2, 3))] as const,
  [
    'zero-length-read',
    'a zero-length Read Request',
    (connection: Connection) =>
      connection.makeRead({ sinkStag: 5, sinkTo: 6n, size: 0, sourceStag: 7, sourceTo: 8n }),
  ] as const,
].map(([name, words, make]) =>
  reply(
    `opened-by-${name}`,
    `The responder's direction is opened by ${words}`,
    'MPA-028 MPA-029',
    'output starts after the first FPDU',
    { setup: {} },
    async (trial, connection) => {
      await connection.enter();
      await trial.tester.post({ kind: 'send', length: 12 });
      await connection.expectQuiet('nothing before the first FPDU of the initiator');
      connection.send(make(connection));
      for (;;) {
        const segment = await connection.expectSegment('the Send that was waiting');
        if (segment.opcode === 3) return;
      }
    },
  ),
);

const rejecting: Case[] = [
  reply(
    'rejects',
    'The program above rejects, with private data',
    'MPA-031 MPA-032 MPA-038',
    'a Reply with R=1 and the data, then FIN',
    { setup: { reject: true, privateData: '6e6f' } },
    async (_trial, connection) => {
      const got = connection.reply!;
      same('R', got.reject, true);
      sameBytes('private data', got.privateData, fromHex('6e6f'));
      await connection.enter();
      // MPA has been left: the other side can no longer interpret an FPDU.
      connection.send(
        connection.makeRead({ sinkStag: 1, sinkTo: 0n, size: 0, sourceStag: 1, sourceTo: 0n }, false),
      );
      const { segments } = await connection.reaction();
      same('FPDUs after a rejecting Reply', segments.length, 0);
    },
  ),
  reply(
    'rejects-with-fin',
    'A rejecting Reply is delivered and followed by FIN, not RST',
    'MPA-038',
    'a Reply with R=1, then FIN',
    { setup: { reject: true, privateData: '00' } },
    async (_trial, connection) => {
      same('R', connection.reply!.reject, true);
      await connection.enter();
      const { end } = await connection.reaction();
      same('the end', end ?? 'none', 'fin');
    },
  ),
];

export const mpaRequest: readonly Case[] = [
  ...keys,
  ...revisions,
  revisionZero,
  ...flags,
  ...lengths,
  ...cut,
  ...gluedOn,
  ...waiting,
  ...privateData,
  ...replies,
  ...opening,
  ...rejecting,
];
