// MPA start-up as the responder: what an initiator's Request looks like and what the initiator makes of
// Replies, good and bad. RFC 5044 7.1.1, 7.1.2, 8.

import type { Connection } from '../probe/connection.ts';
import { describeSegment } from '../probe/decode.ts';
import { Deviation, check, same, sameBytes } from '../probe/deviation.ts';
import { packedCode, tagged } from '../probe/messages.ts';
import type { StartupFields } from '../probe/startup.ts';
import { parseStartup, startupFrame } from '../probe/startup.ts';
import { TERM } from '../probe/terminate-codes.ts';
import type { Trial } from '../probe/trial.ts';
import { sameCode } from '../probe/trial.ts';
import { Watch } from '../probe/watch.ts';
import { OPCODE, REPLY_KEY, REQUEST_KEY } from '../probe/wire.ts';
import { fromHex, toHex } from '../profiles/protocol.ts';
import { AS_RESPONDER, hex2, range, scripted } from './define.ts';
import type { Case, CaseOptions } from './define.ts';

const roles = AS_RESPONDER;
const GIVEN_UP = 'close without an FPDU (a Terminate 2/0/04 will do)';

/** The peer must give up: no FPDU but perhaps a Terminate about the start-up frame, then the end. */
async function expectGivenUp(connection: Connection): Promise<void> {
  await connection.enter();
  // Without a good Reply nothing is settled about CRC.
  connection.watch = new Watch(false);
  const { terminate, end, segments } = await connection.reaction();
  if (terminate !== null && segments.length === 1) {
    check(sameCode(TERM.MPA_STARTUP_FRAME, packedCode(terminate)), GIVEN_UP, describeSegment(segments[0]!));
  } else if (segments.length > 0) {
    throw new Deviation(GIVEN_UP, describeSegment(segments[0]!));
  }
  check(end !== null, GIVEN_UP, 'an open connection');
}

/** A Reply that must end the connection. */
function refused(
  id: string,
  title: string,
  requirements: string,
  change: (fields: StartupFields) => StartupFields,
): Case {
  return scripted(
    `mpa.response.${id}`,
    title,
    requirements,
    GIVEN_UP,
    async (trial) => {
      const connection = await trial.connect();
      const request = await connection.expectStartup();
      await connection.sendStartup(change(trial.replyFields(request)));
      await expectGivenUp(connection);
    },
    { roles },
  );
}

/** A Reply that must be taken, after which the stream works. */
function taken(
  id: string,
  title: string,
  requirements: string,
  change: (fields: StartupFields) => StartupFields,
  cuts: readonly number[] = [],
): Case {
  return scripted(
    `mpa.response.${id}`,
    title,
    requirements,
    'normal operation',
    async (trial) => {
      const connection = await trial.connect();
      const request = await connection.expectStartup();
      await connection.sendStartup(change(trial.replyFields(request)), cuts);
      await connection.enter();
      if (request.enhanced?.a === true) await trial.takeRtr(connection);
      await connection.ping();
    },
    { roles },
  );
}

function flipped(octet: number): Uint8Array {
  const wrong = REPLY_KEY.slice();
  wrong[octet]! ^= 0x01;
  return wrong;
}

const octets = (length: number): Uint8Array => Uint8Array.from({ length }, (_, i) => (i * 11 + 3) & 0xff);

const bad: Case[] = [
  ...range(16).map((i) =>
    refused(`key-flipped-octet-${i}`, `Reply whose key differs in octet ${i}`, 'MPA-005 MPA-111', (f) => ({
      ...f,
      key: flipped(i),
    })),
  ),
  refused('key-of-a-request', 'A Request in place of the Reply', 'MPA-006 MPA-005', (f) => ({
    ...f,
    key: REQUEST_KEY,
  })),
  ...[3, 4, 255].map((revision) =>
    refused(`revision-${revision}`, `Reply with revision ${revision}`, 'MPA-015', (f) => ({
      ...f,
      revision,
    })),
  ),
  refused('revision-0', 'Reply of an RDMA Consortium peer: revision 0', 'MPA-049', (f) => ({
    ...f,
    revision: 0,
    enhanced: null,
  })),
  ...[513, 600, 0xffff].map((pdLength) =>
    refused(
      `pd-length-${pdLength}`,
      `Reply that announces ${pdLength} octets of private data`,
      'MPA-019 MPA-034 MPA-111',
      (f) => ({ ...f, pdLength, privateData: octets(600) }),
    ),
  ),
];

const good: Case[] = [
  ...[0x01, 0x02, 0x04, 0x08, 0x0f].map((bits) =>
    taken(
      `reserved-flags-${hex2(bits)}`,
      `Reply with reserved flag bits 0x${hex2(bits)}`,
      'MPA-011',
      (f) => ({ ...f, extraFlags: bits }),
    ),
  ),
  ...[1, 2, 3, 4, 128, 252, 253, 508].map((length) =>
    taken(
      `private-data-${length}`,
      `Reply with ${length} octets of private data of the program above`,
      'MPA-020 MPA-041',
      (f) => ({ ...f, privateData: octets(length) }),
    ),
  ),
  taken(
    'one-octet-at-a-time',
    'Reply in pieces of one octet',
    'MPA-023',
    (f) => ({ ...f, privateData: octets(3) }),
    range(27),
  ),
  ...[1, 9, 16, 17, 18, 19, 20, 22, 24].map((n) =>
    taken(
      `cut-behind-${n}`,
      `Reply cut after octet ${n}`,
      'MPA-023',
      (f) => ({ ...f, privateData: octets(5) }),
      [n],
    ),
  ),
];

/** A prefix of the Reply, then FIN or RST. */
function lost(
  id: string,
  title: string,
  requirements: string,
  sent: (frame: Uint8Array) => Uint8Array,
  how: 'fin' | 'rst',
): Case {
  return scripted(
    `mpa.response.${id}`,
    title,
    requirements,
    'close, and nothing sent',
    async (trial) => {
      const connection = await trial.connect();
      const request = await connection.expectStartup();
      connection.sendOctets(
        sent(startupFrame({ ...trial.replyFields(request), privateData: octets(8) })),
        'the beginning of a Reply',
      );
      if (how === 'rst') {
        connection.channel.reset();
        return;
      }
      connection.channel.finish();
      const arrival = await connection.readStartup();
      check(
        arrival.kind === 'end' && arrival.octets.length === 0,
        'close, and nothing sent',
        arrival.kind === 'end' ? `${arrival.octets.length} octets` : arrival.kind,
      );
    },
    { roles },
  );
}

const broken: Case[] = [
  ...[1, 16, 19, 20, 27].map((n) =>
    lost(
      `truncated-after-${n}`,
      `FIN after ${n} octets of a Reply`,
      'MPA-021 ENH-047',
      (frame) => frame.subarray(0, n),
      'fin',
    ),
  ),
  lost('fin-instead', 'FIN in place of a Reply', 'MPA-021 ENH-047', (frame) => frame.subarray(0, 0), 'fin'),
  scripted(
    'mpa.response.rst-instead',
    'RST in place of a Reply',
    'ENH-047',
    'the program above learns of the failure',
    async (trial) => {
      const connection = await trial.connect();
      await connection.expectStartup();
      connection.channel.reset();
      const events = await trial.tester.events('disconnected');
      check(
        !events.some((event) => event.type === 'established'),
        'no established connection',
        'established',
      );
      check(
        events.some((event) => event.type === 'disconnected'),
        'a report to the program above',
        'none',
      );
    },
    { roles, needs: ['tester'] },
  ),
];

const noTerminate = scripted(
  'mpa.response.bad-key-without-terminate',
  'A Reply with a wrong key',
  'MPA-112 MPA-111',
  'close, and no octet: no FPDU may be sent yet',
  async (trial) => {
    const connection = await trial.connect();
    const request = await connection.expectStartup();
    await connection.sendStartup({ ...trial.replyFields(request), key: flipped(0) });
    const arrival = await connection.readStartup();
    check(
      arrival.kind === 'end' && arrival.octets.length === 0,
      'close, and no octet',
      arrival.kind === 'end' ? `${arrival.octets.length} octets` : arrival.kind,
    );
  },
  { roles },
);

/** Cases about the time while the Reply is awaited. */
const waiting: Case[] = [
  scripted(
    'mpa.response.delayed',
    'A Reply that comes late',
    'MPA-024 MPA-025',
    'nothing between Request and Reply, then normal operation',
    async (trial) => {
      const connection = await trial.connect();
      const request = await connection.expectStartup();
      if (trial.hasTester) await trial.tester.post({ kind: 'send', length: 10 });
      const early = await connection.readStartup(2 * trial.limits.quiet);
      check(
        early.kind === 'silence' && early.octets.length === 0,
        'nothing before the Reply',
        early.kind === 'silence' ? `${early.octets.length} octets` : early.kind,
      );
      await connection.sendStartup(trial.replyFields(request));
      await connection.enter();
      if (request.enhanced?.a === true) await trial.takeRtr(connection);
      await connection.ping();
    },
    { roles },
  ),
  scripted(
    'mpa.response.none',
    'No Reply at all',
    'MPA-008',
    'close within the time limit, and nothing sent',
    async (trial) => expectTimeout(trial, 0),
    { roles, setup: { replyTimeout: 300 } },
  ),
  scripted(
    'mpa.response.half',
    'Half a Reply, then silence',
    'MPA-008',
    'close within the time limit, and nothing sent',
    async (trial) => expectTimeout(trial, 19),
    { roles, setup: { replyTimeout: 300 } },
  ),
  scripted(
    'mpa.response.none-stock',
    'No Reply for the time a stock peer waits',
    'MPA-008',
    'close within the time limit, and nothing sent',
    async (trial) => expectTimeout(trial, 0),
    { roles, slow: true },
  ),
];

async function expectTimeout(trial: Trial, sent: number): Promise<void> {
  const connection = await trial.connect();
  const request = await connection.expectStartup();
  if (sent > 0)
    connection.sendOctets(
      startupFrame(trial.replyFields(request)).subarray(0, sent),
      `the first ${sent} octets of a Reply`,
    );
  const arrival = await connection.readStartup(trial.limits.patience);
  check(
    arrival.kind === 'end' && arrival.octets.length === 0,
    'close within the time limit, and nothing sent',
    arrival.kind,
  );
}

const rejected = scripted(
  'mpa.response.rejecting',
  'A Reply with R=1 and private data',
  'MPA-033',
  'no FPDU, the data given to the program above, close',
  async (trial) => {
    const connection = await trial.connect();
    const request = await connection.expectStartup();
    await connection.sendStartup({ ...trial.replyFields(request), reject: true, privateData: octets(7) });
    await connection.enter();
    connection.channel.finish();
    const { segments, end } = await connection.reaction();
    same('FPDUs after a rejecting Reply', segments.length, 0);
    check(end !== null, 'close', 'an open connection');
    if (!trial.hasTester) return;
    const event = (await trial.tester.events('rejected')).find((e) => e.type === 'rejected');
    sameBytes('private data given to the program above', fromHex(event?.privateData ?? ''), octets(7));
  },
  { roles },
);

const gluedFpdu = scripted(
  'mpa.response.fpdu-behind',
  'A Reply with an FPDU in the same write',
  'MPA-037 MPA-036',
  'normal operation, or close',
  async (trial) => {
    const connection = await trial.connect();
    const request = await connection.expectStartup();
    const fields = trial.replyFields(request);
    const frame = startupFrame(fields);
    connection.note('probe', 'startup', 'a Reply with a zero-length Write after it', frame);
    connection.reply = parseStartup(frame);
    await connection.enter();
    const fpdu = connection.encode(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n }));
    connection.channel.write(Uint8Array.of(...frame, ...fpdu));
    // Without an RTR message the peer may have nothing to say by itself.
    if (request.enhanced?.a !== true)
      connection.send(connection.makeRead({ sinkStag: 1, sinkTo: 1n, size: 0, sourceStag: 1, sourceTo: 0n }));
    const first = await connection.receive();
    if (first.kind === 'end') return;
    if (first.kind === 'segment' && first.segment.opcode === OPCODE.TERMINATE) return;
    check(first.kind === 'segment', 'normal operation, or close', 'silence');
  },
  { roles },
);

/** A case about the form of a Request. */
function request(
  id: string,
  title: string,
  requirements: string,
  expected: string,
  options: CaseOptions,
  look: (trial: Trial, connection: Connection) => void | Promise<void>,
): Case {
  return scripted(
    `mpa.initiator.${id}`,
    title,
    requirements,
    expected,
    async (trial) => {
      const connection = await trial.connect();
      await connection.expectStartup();
      await look(trial, connection);
    },
    { roles, ...options },
  );
}

const requests: Case[] = [
  request(
    'key',
    'The key of a Request',
    'MPA-001 MPA-002',
    '4d 50 41 20 49 44 20 52 65 71 20 46 72 61 6d 65',
    {},
    (_trial, { request: got }) => sameBytes('key', got!.key, REQUEST_KEY),
  ),
  request('reject-bit', 'R of a Request', 'MPA-012', 'R=0', {}, (_trial, { request: got }) =>
    same('R', got!.reject, false),
  ),
  request(
    'reserved-bits',
    'Reserved flag bits of a Request',
    'MPA-010',
    'zeros',
    {},
    (_trial, { request: got }) => same('reserved flag bits', got!.flags & (got!.s ? 0x0f : 0x1f), 0),
  ),
  request(
    'reserved-bits-revision-1',
    'Reserved flag bits of a revision 1 Request',
    'MPA-010 MPA-014 ENH-007',
    'zeros, revision 1, S=0',
    { setup: { revision: 1 } },
    (_trial, { request: got }) => {
      same('revision', got!.revision, 1);
      same('reserved flag bits', got!.flags & 0x1f, 0);
    },
  ),
  request('crc-by-default', 'C of a default Request', 'MPA-052', 'C=1', {}, (_trial, { request: got }) =>
    same('C', got!.crc, true),
  ),
  ...[0, 1, 5, 508].map((length) =>
    request(
      `private-data-${length}`,
      `A Request with ${length} octets of private data, and the FPDUs after it`,
      'MPA-017 MPA-040 MPA-041 MPA-047 ENH-004',
      'PD_Length counts exactly the data and the enhanced octets',
      { setup: { privateData: toHex(octets(length)) } },
      async (trial, connection) => {
        const got = connection.request!;
        same('PD_Length', got.pdLength, length + (got.enhanced === null ? 0 : 4));
        sameBytes('private data', got.privateData, octets(length));
        await finish(trial, connection);
      },
    ),
  ),
  request(
    'nothing-behind',
    'Sends posted while the Request is on its way',
    'MPA-024 MPA-025',
    'nothing after the Request',
    { setup: {} },
    async (trial, connection) => {
      await trial.tester.post({ kind: 'send', length: 10, count: 3 });
      const early = await connection.readStartup(trial.limits.quiet);
      check(early.kind === 'silence' && early.octets.length === 0, 'nothing after the Request', early.kind);
    },
  ),
];

async function finish(trial: Trial, connection: Connection): Promise<void> {
  await connection.sendStartup(trial.replyFields(connection.request!));
  await connection.enter();
  if (connection.request!.enhanced?.a === true) await trial.takeRtr(connection);
  await connection.ping();
}

const delivered: Case[] = [1, 3, 255, 508].map((length) =>
  scripted(
    `mpa.response.private-data-delivered-${length}`,
    `${length} octets of private data of a Reply reach the program above`,
    'MPA-022 MPA-047 ENH-006',
    'exactly the octets sent',
    async (trial) => {
      const data = trial.random.octets(length);
      await trial.establish({ privateData: data });
      const event = (await trial.tester.events('established')).find((e) => e.type === 'established');
      sameBytes('private data', fromHex(event?.privateData ?? ''), data);
    },
    { roles, needs: ['tester'] },
  ),
);

export const mpaReply: readonly Case[] = [
  ...bad,
  ...good,
  ...broken,
  noTerminate,
  ...waiting,
  rejected,
  gluedFpdu,
  ...requests,
  ...delivered,
];
