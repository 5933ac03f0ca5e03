// Rules about the suite itself: names, requirements, coverage, the probe's codec against the golden vectors,
// repeatability, reports, waivers and captures.

import { describe, expect, it } from 'vitest';
import { cases } from '../cases/index.ts';
import { established, stimulus } from '../cases/define.ts';
import { exceptions } from '../catalogue/exceptions.ts';
import { isMandatory, isRequirement, requirement, requirements } from '../catalogue/index.ts';
import { NORMAL, terms } from '../probe/trial.ts';
import { tagged } from '../probe/messages.ts';
import { pcapOf } from '../probe/pcap.ts';
import { FpduReader, FpduWriter } from '../probe/fpdu.ts';
import { htmlReport } from '../report/html.ts';
import { markdownReport } from '../report/markdown.ts';
import { junitReport, jsonReport, tapReport } from '../report/machine.ts';
import { makeReport } from '../report/model.ts';
import { textReport } from '../report/text.ts';
import { parseWaivers } from '../runner/waivers.ts';
import { unobservable } from '../unobservable.ts';
import { checkVectors } from '../vectors-command.ts';
import type { EndpointOptions, Operations, TesterPort } from '../profiles/protocol.ts';
import { SelfTarget } from '../profiles/self-target.ts';
import { openSelf } from '../profiles/self.ts';
import type { Profile } from '../profiles/types.ts';
import type { Result } from '../runner/runner.ts';
import { caseNamed, faults, runAgainstSelf } from './support.ts';

describe('the cases', () => {
  it('have names that differ, requirements that exist, and a part of the probe', () => {
    const ids = cases.map((entry) => entry.id);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.length).toBeGreaterThanOrEqual(300);
    for (const entry of cases) {
      expect(entry.id).toMatch(/^[a-z]+(\.[a-z0-9-]+)+$/);
      expect(
        entry.requirements.filter((id) => !isRequirement(id)),
        entry.id,
      ).toEqual([]);
      expect(entry.roles.length, entry.id).toBeGreaterThan(0);
      expect(entry.title.length, entry.id).toBeGreaterThan(5);
    }
  });

  it('cover every MUST of kind wire below the verbs, or a reason says why not', () => {
    const covered = new Set(cases.flatMap((entry) => entry.requirements));
    const open = requirements.filter(
      (entry) =>
        entry.kind === 'wire' && entry.group !== 'VERBS' && isMandatory(entry) && !covered.has(entry.id),
    );
    expect(
      open
        .map((entry) => entry.id)
        .filter((id) => unobservable[id] === undefined && exceptions[id] === undefined),
    ).toEqual([]);
    for (const [id, reason] of Object.entries(unobservable)) {
      expect(covered.has(id), `${id} has a case after all`).toBe(false);
      expect(requirement(id)?.kind, id).toBe('wire');
      expect(reason.length, id).toBeGreaterThan(40);
    }
  });

  it.each([
    ['ULPDU_Length smaller than the header', 'mpa.fpdu.tagged-ulpdu-of-13'],
    ['a Read Response longer than the request', 'rdmap.response.longer-than-asked'],
    ['a Read Response to a wrong sink', 'rdmap.response.unknown-stag'],
    ['a Read Response with none outstanding', 'rdmap.response.unasked'],
    ['a malformed Request with data glued on', 'mpa.request.malformed-with-data-behind'],
    ['an unknown region with no octets', 'ddp.empty-write.unknown-stag'],
    ['an unknown region with octets', 'ddp.write.unknown-stag'],
    ['more Reads than IRD', 'rdmap.read.more-than-ird'],
    ['STag guessing', 'sec.guess.costs-the-connection'],
    ['a Terminate inside a half-received message', 'rdmap.terminate.inside-a-message'],
    ['start-up one octet at a time', 'mpa.request.one-octet-at-a-time'],
  ])('include the driver bug "%s" as %s', (_shape, id) => {
    expect(caseNamed(id).id).toBe(id);
  });
});

describe('the probe', () => {
  it('computes every golden vector', () => {
    const { text, good } = checkVectors([]);
    expect(text).toContain('all as the probe computes them');
    expect(good).toBe(true);
  });

  it.each([0, 1, 2, 3, 484, 487, 500, 1100, 70_000])(
    'reads back what it writes with markers, %i octets',
    (length) => {
      const writer = new FpduWriter(true, true);
      const reader = new FpduReader(true);
      for (let i = 0; i < 3; i++) {
        const ulpdu = tagged({
          opcode: 0,
          stag: 7,
          to: 9n,
          payload: new Uint8Array(Math.min(length, 60_000)).fill(i),
        });
        const octets = writer.encode(ulpdu);
        const step = octets.length > 4096 ? 997 : 1;
        for (let at = 0; at < octets.length; at += step) reader.push(octets.subarray(at, at + step));
        const fpdu = reader.next();
        expect(fpdu?.ulpdu).toEqual(ulpdu);
        expect(fpdu?.crcGood).toBe(true);
        expect(fpdu?.markers.every((marker) => marker.pointer === marker.expected)).toBe(true);
      }
      expect(reader.next()).toBeNull();
    },
  );
});

const wrong = stimulus(
  'test.expects-the-impossible',
  'A zero-length Write that must end in an error',
  'DDP-026',
  terms(0x1100),
  (_trial, connection) => connection.send(tagged({ opcode: 0, stag: 1, to: 0n })),
);
const right = stimulus(
  'test.expects-nothing-special',
  'A zero-length Write',
  'DDP-026',
  [NORMAL],
  (_trial, connection) => connection.send(tagged({ opcode: 0, stag: 1, to: 0n })),
);
const thrower = established('test.throws', 'A case that is broken itself', 'DDP-026', 'nothing', async () => {
  throw new Error('out of <order> & broken');
});

/** Time limits so short that a case which waits for what never comes does not take long. */
const HURRIED = { slow: 0.05 };

describe('the runner', () => {
  it('sends the same octets again for the same seed and others for another', async () => {
    const chosen = [
      'mpa.fpdu.pad-2-not-zero',
      'mpa.fpdu.cut-at-random',
      'ddp.write.unaligned',
      'rdmap.read.written-long',
    ].map(caseNamed);
    const sent = async (seed: number): Promise<string> => {
      const results = await runAgainstSelf(chosen, ['initiator'], { seed });
      expect(faults(results)).toEqual([]);
      return results
        .map((r) =>
          r.log
            .filter((e) => e.from === 'probe')
            .map((e) => Buffer.from(e.octets).toString('hex'))
            .join('\n'),
        )
        .join('\n\n');
    };
    const first = await sent(7);
    expect(await sent(7)).toBe(first);
    expect(await sent(8)).not.toBe(first);
  });

  it('distinguishes failures, passes and errors, and counts unexpected results', async () => {
    const results = await runAgainstSelf([wrong, right, thrower], ['initiator'], HURRIED);
    expect(results.map((r) => r.verdict)).toEqual(['fail', 'pass', 'error']);
    expect(results.map((r) => r.unexpected)).toEqual([true, false, true]);
    expect(results[0]).toMatchObject({ expected: 'Terminate 1/1/00 (DDP: invalid STag)', actual: 'silence' });
  });

  it('expects what a waiver covers, and reports a waived case that passes', async () => {
    const waivers = parseWaivers(
      '# known\n\ntest.expects-the-* answers nothing\ntest.expects-nothing-special@initiator once failed\n',
    );
    const results = await runAgainstSelf([wrong, right], ['initiator'], { ...HURRIED, waivers });
    expect(results.map((r) => [r.verdict, r.unexpected, r.waiver])).toEqual([
      ['fail', false, 'answers nothing'],
      ['pass', true, 'once failed'],
    ]);
    expect(waivers.reasonFor('test.expects-nothing-special', 'responder')).toBeNull();
    expect(waivers.idle(['test.expects-nothing-special']).map((w) => w.pattern)).toEqual([
      'test.expects-the-*',
    ]);
    expect(() => parseWaivers('no-reason')).toThrow('line 1');
    const unsteady = await runAgainstSelf([right], ['initiator'], {
      waivers: parseWaivers('~test.expects-nothing-special comes and goes'),
    });
    expect(unsteady.map((r) => [r.verdict, r.unexpected])).toEqual([['pass', false]]);
  });

  it('lays waivers over others, and takes some of those back', () => {
    const below = parseWaivers('a.* of the first\nb known\nb-2 known\n');
    const waivers = parseWaivers('-a.1@initiator mended\nb worse\n~c new\n', below);
    const of = (id: string): (string | null)[] =>
      (['initiator', 'responder'] as const).map((role) => waivers.reasonFor(id, role));
    expect(of('a.1')).toEqual([null, 'of the first']);
    expect(of('a.2')).toEqual(['of the first', 'of the first']);
    expect([of('b')[0], of('b-2')[0], of('c')[0]]).toEqual(['worse', 'known', 'new']);
    expect(waivers.mayPass('c', 'initiator')).toBe(true);
    expect(waivers.mayPass('a.1', 'initiator')).toBe(false);
  });

  it('repeats a case with an unexpected result on demand, and says how often', async () => {
    let runs = 0;
    const unsteady = {
      ...right,
      run: async (trial: Parameters<typeof right.run>[0]) =>
        ++runs === 1 ? wrong.run(trial) : right.run(trial),
    };
    const [result] = await runAgainstSelf([unsteady], ['initiator'], { ...HURRIED, retries: 2 });
    expect(result).toMatchObject({ verdict: 'pass', unexpected: false, tries: 2 });
    const [still] = await runAgainstSelf([wrong], ['initiator'], { ...HURRIED, retries: 1 });
    expect(still).toMatchObject({ verdict: 'fail', unexpected: true, tries: 2 });
  });

  it.each([
    ['at once without retries', 0, 1, ['fail 1', 'pass 1'], 1],
    ['but with retries it may show that it was not at fault', 1, 1, ['pass 2', 'pass 1'], 1],
    ['and with retries once the peer is gone again', 1, 9, ['fail 1', 'pass 1'], 2],
  ])(
    'blames a case for a peer that no longer connects after it: %s',
    async (_, retries, deadly, outcome, revivals) => {
      const self = await openSelf();
      let dead = false;
      let runs = 0;
      let revived = 0;
      const killer = {
        ...right,
        run: async (trial: Parameters<typeof right.run>[0]) => {
          await right.run(trial);
          dead = ++runs <= deadly;
        },
      };
      const profile: Profile = {
        name: self.name,
        capabilities: self.capabilities,
        roles: self.roles,
        listen: self.listen,
        description: self.description,
        close: () => self.close(),
        begin: async (options) => {
          const session = await self.begin(options);
          const invite = session.invite.bind(session);
          return Object.assign(session, {
            invite: async (address: Parameters<typeof invite>[0]) => void (dead || (await invite(address))),
          });
        },
      };
      const revive = async (): Promise<void> => {
        dead = false;
        revived++;
      };
      try {
        const results = await runAgainstSelf(
          [killer, right],
          ['responder'],
          { ...HURRIED, retries, revive },
          profile,
        );
        expect(results.map(({ verdict, tries }) => `${verdict} ${tries}`)).toEqual(outcome);
        if (outcome[0] === 'fail 1')
          expect(results[0]).toMatchObject({
            actual: 'as expected; then the peer no longer connects',
            unexpected: true,
          });
        expect(revived).toBe(revivals);
      } finally {
        await profile.close();
      }
    },
  );

  it('accepts a peer that goes without Reads, RTR kinds, markers, or CRC', async () => {
    // As implementations of another kind would set their endpoints up, whatever a case asks for.
    const variants: [given: EndpointOptions, ids: string[], leftOut: string[]][] = [
      [
        { ird: 1, maxIrd: 1 },
        ['rdmap.read.unaligned', 'rdmap.read.three-in-order', 'ext.atomic.in-order'],
        ['rdmap.read.three-in-order', 'ext.atomic.in-order'],
      ],
      [
        { rtr: ['read'] },
        ['mpa.markers.tx-first', 'enh.request.rtr-bc-one-bit', 'rdmap.read.ord-one'],
        ['enh.request.rtr-bc-one-bit'],
      ],
      [
        { rtr: ['send'] },
        ['ddp.msn.first-send-2', 'ddp.msn.skipped', 'ddp.tx.queues-count-apart', 'ext.immediate.sent-imm'],
        ['ddp.msn.first-send-2'],
      ],
      [
        { markers: false },
        ['mpa.markers.rx-crc-without-markers', 'mpa.markers.rx-cut-2'],
        ['mpa.markers.rx-crc-without-markers', 'mpa.markers.rx-cut-2'],
      ],
      [{ crc: true }, ['mpa.crc.neither', 'mpa.crc.neither-anything'], ['mpa.crc.neither-anything']],
    ];
    for (const [given, ids, leftOut] of variants) {
      const target = new SelfTarget();
      const call = target.call.bind(target);
      const port: TesterPort = {
        close: () => target.close(),
        call: (op, args) =>
          call(op, 'options' in args ? { ...args, options: { ...args.options, ...given } } : args),
      };
      const profile = await openSelf({ tester: port });
      const results = await runAgainstSelf(
        ids.map(caseNamed),
        ['initiator', 'responder'],
        { strict: false, slow: 0.2 },
        profile,
      );
      await profile.close();
      const wrongly = results.filter(
        (r) => r.verdict !== 'pass' && !(r.verdict === 'skip' && leftOut.includes(r.case.id)),
      );
      expect(faults(wrongly), JSON.stringify(given)).toEqual([]);
      expect(
        results.some((r) => r.verdict === 'skip'),
        JSON.stringify(given),
      ).toBe(true);
    }
  });

  it.each([
    'ddp.error.nothing-behind-it-counts',
    'mpa.fpdu.crc-wrong-nothing-later-delivered',
    'ddp.segments.last-held-back',
  ])('notices a wrong delivery, also a late one: %s', async (id) => {
    const target = new SelfTarget();
    const message = {
      queue: 'receive',
      opcode: 'receive',
      status: 'success',
      length: 4,
      data: '00000000',
      solicited: false,
    } as const;
    const port: TesterPort = {
      close: () => target.close(),
      call: async (op, args) => {
        const began = performance.now();
        const answer = await target.call(op, args);
        // A target whose program hears of a message 30 ms after it has come.
        return op === 'completions' && performance.now() - began > 30
          ? ({
              completions: [...(answer as Operations['completions']['answer']).completions, message],
            } as typeof answer)
          : answer;
      },
    };
    const profile = await openSelf({ tester: port });
    const results = await runAgainstSelf([caseNamed(id)], ['initiator', 'responder'], {}, profile);
    await profile.close();
    expect(results.map(({ verdict }) => verdict)).toEqual(['fail', 'fail']);
  });

  it('leaves out what the profile cannot do, saying why', async () => {
    const profile = {
      name: 'bare',
      capabilities: new Set<never>(),
      roles: ['initiator'] as const,
      listen: { host: '127.0.0.1', port: 0 },
      description: 'bare',
      begin: () => Promise.reject(new Error('not reached')),
      close: async () => undefined,
    };
    const [result] = await runAgainstSelf([caseNamed('ddp.write.other-pd')], ['initiator'], {}, profile);
    expect(result).toMatchObject({
      verdict: 'skip',
      unexpected: false,
      reason: 'profile bare has no tester',
    });
  });
});

describe('the reports', () => {
  const results = (): Promise<Result[]> => runAgainstSelf([wrong, right, thrower], ['initiator'], HURRIED);
  const report = async (): Promise<ReturnType<typeof makeReport>> =>
    makeReport(await results(), {
      profile: 'self',
      peer: 'a <peer>',
      strict: false,
      quirks: [],
      seed: 1,
      began: '2000-01-01T00:00:00.000Z',
      seconds: 1,
      replayOptions: '--profile self',
      pcapOf: () => null,
    });

  it('show a failure with expected, actual, clause, decoded octets and the command to repeat', async () => {
    const text = textReport(await report());
    expect(text).toContain('FAIL test.expects-the-impossible [probe is initiator]');
    expect(text).toMatch(/expected Terminate 1\/1\/00 \(DDP: invalid STag\)\n {2}actual {3}silence/);
    expect(text).toContain('DDP-026 (RFC 5041 5.2, MUST NOT)');
    expect(text).toMatch(/0004 {2}00 00 00 01 +STag: 0x00000001/);
    expect(text).toContain(
      'iwarp conformance run test.expects-the-impossible --role initiator --seed 1 --profile self',
    );
    expect(text).toContain('3 run: 1 passed, 1 failed, 0 waived, 1 errors; 0 left out; 2 unexpected');
  });

  it('name the peer, in every format', async () => {
    const made = { ...(await report()), peer: 'NIC 7,\nfirmware <1>' };
    expect(tapReport(made)).toContain('\n# peer: NIC 7, firmware <1>\n');
    expect(junitReport(made)).toContain('name="iwarp conformance: NIC 7,\nfirmware &#60;1&#62;"');
    for (const text of [textReport(made), markdownReport(made)]) expect(text).toContain(made.peer);
    expect(htmlReport(made)).toContain('firmware &#60;1&#62;');
    expect(JSON.parse(jsonReport(made))).toMatchObject({ peer: made.peer });
  });

  it('say how many octets there are, however few they show', async () => {
    const long = stimulus(
      'test.long-payload',
      'A long Write that must end in an error',
      'DDP-026',
      terms(0x1100),
      (_trial, connection) =>
        connection.send(tagged({ opcode: 0, stag: 1, to: 0n, payload: new Uint8Array(4096).fill(0x5a) })),
    );
    const [result] = await runAgainstSelf(
      [{ ...long, run: async (trial) => (await long.run(trial), Promise.reject(new Error('shown'))) }],
      ['initiator'],
    );
    const made = makeReport([result!], {
      profile: 'self',
      peer: 'p',
      strict: false,
      quirks: [],
      seed: 1,
      began: '',
      seconds: 1,
      replayOptions: '',
      pcapOf: () => null,
    });
    expect(textReport(made)).toMatch(/Payload: 4096 octets\n.*\n +… 4064 more octets\n/);
    expect(htmlReport(made)).toMatch(/… 4072 more +Payload: 4096 octets/);
    const field = made.results[0]!.events.flatMap((event) => event.fields).find(
      ({ name }) => name === 'Payload',
    )!;
    expect([field.length, field.octets.length]).toEqual([4096, 128]);
  });

  it('carry clause and octets of a failure into JUnit XML and TAP as well', async () => {
    const made = await report();
    for (const text of [junitReport(made), tapReport(made)]) {
      expect(text).toContain('DDP-026 (RFC 5041 5.2, MUST NOT)');
      expect(text).toMatch(/0004 {2}00 00 00 01 +STag: 0x00000001/);
      expect(text).toContain(
        'iwarp conformance run test.expects-the-impossible --role initiator --seed 1 --profile self',
      );
    }
  });

  it('say that a run ended early', async () => {
    const made = { ...(await report()), stopped: 'interrupted by SIGINT: 3 of 9 runs made' };
    expect(textReport(made)).toContain('\nstopped: interrupted by SIGINT: 3 of 9 runs made\n');
    expect(tapReport(made)).toContain('\nBail out! interrupted by SIGINT: 3 of 9 runs made\n');
    const junit = junitReport(made);
    expect(junit).toContain('tests="4" failures="1" errors="2"');
    expect(junit.match(/<testcase /g)).toHaveLength(4);
    for (const text of [junit, htmlReport(made), markdownReport(made)])
      expect(text).toContain('interrupted by SIGINT: 3 of 9 runs made');
  });

  it('are well-formed TAP, JUnit XML, JSON and one HTML page', async () => {
    const made = await report();
    const tap = tapReport(made).split('\n');
    expect(tap[1]).toBe('1..3');
    expect(tap.filter((line) => /^(not )?ok /.test(line))).toHaveLength(3);
    const junit = junitReport(made);
    expect(junit.match(/<testcase /g)).toHaveLength(3);
    expect(junit).not.toMatch(/<order>| & /);
    expect(JSON.parse(jsonReport(made))).toEqual(JSON.parse(JSON.stringify(made)));
    expect(markdownReport(made)).toContain(
      '| test.expects-the-impossible | initiator | Terminate 1/1/00 (DDP: invalid STag) | silence |',
    );
    const html = htmlReport(made);
    expect(html).toContain('a &#60;peer&#62;');
    expect(html.match(/<details>/g)).toHaveLength(2);
    expect(html).not.toMatch(/(?:src|href)=/);
  });

  it('count as failures in TAP and JUnit XML what counts for the exit status', async () => {
    const waivers = parseWaivers('test.expects-the-* known\ntest.expects-nothing-special once failed\n');
    const run = await runAgainstSelf([wrong, right, thrower], ['initiator'], { ...HURRIED, waivers });
    const made = makeReport(run, {
      profile: 'self',
      peer: 'peer',
      strict: false,
      quirks: [],
      seed: 1,
      began: '2000-01-01T00:00:00.000Z',
      seconds: 1,
      replayOptions: '',
      pcapOf: () => null,
    });
    expect(made.results.map((r) => r.unexpected)).toEqual([false, true, true]);
    expect(
      tapReport(made)
        .split('\n')
        .filter((line) => /^(not )?ok /.test(line)),
    ).toEqual([
      'not ok 1 - test.expects-the-impossible [initiator] # TODO known',
      'not ok 2 - test.expects-nothing-special [initiator]',
      expect.stringMatching(/^not ok 3 - [^#]*$/),
    ]);
    const junit = junitReport(made);
    expect(junit).toContain('<testsuites name="iwarp conformance: peer" tests="3" failures="1" errors="1"');
    expect(
      [junit.match(/<failure /g), junit.match(/<error /g), junit.match(/<skipped /g)].map(
        (found) => found?.length,
      ),
    ).toEqual([1, 1, 1]);
  });

  it('write a capture that begins with the three segments of a TCP connection', async () => {
    const [result] = await results();
    const octets = pcapOf(result!.capture, 0);
    const view = new DataView(octets.buffer);
    expect(view.getUint32(0)).toBe(0xa1b2c3d4);
    const flags: number[] = [];
    for (let at = 24; at < octets.length; at += 16 + view.getUint32(at + 8))
      flags.push(octets[at + 16 + 33]!);
    expect(flags.slice(0, 4)).toEqual([0x02, 0x12, 0x10, 0x18]);
  });
});
