/**
 * Faults of `iwarp proxy`: the script's two forms, and what it does to one direction, judged by the naive
 * decoder. No sockets.
 */
// cspell:ignore sendd
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Agreement, FaultScript, type Operation } from '../../cli/proxy/fault-script.ts';
import { parseFault, planFaults, readFaults } from '../../cli/proxy/fault-spec.ts';
import { parseEndpoint, parseSettings } from '../../cli/proxy/settings.ts';
import { concat, conversation, type Conversation } from '../inspect/support.ts';
import { decodeFpdus } from '../support/naive/decoder.ts';

interface Played {
  /** Everything that passed. */
  readonly octets: Uint8Array;
  /** What happened, the octets counted. */
  readonly steps: readonly string[];
  readonly said: readonly string[];
}

/** Play the initiator's direction under `faults`, in pieces. */
function play(
  talk: Conversation,
  faults: readonly string[],
  piece = 1 << 20,
  how: 'end' | 'release' | 'open' = 'end',
): Played {
  const agreement = new Agreement();
  const planned = planFaults(faults.map(parseFault), 1, 1);
  const scripts = ([0, 1] as const).map(
    (direction) =>
      new FaultScript(
        direction,
        planned.filter(({ from }) => from === (direction === 0 ? 'client' : 'server')),
        agreement,
        true,
      ),
  );
  const operations: Operation[] = [];
  const push = (octets: Uint8Array): void => {
    for (let at = 0; at < octets.length; at += piece)
      operations.push(...scripts[0]!.push(octets, at, Math.min(octets.length, at + piece)));
  };
  push(talk.request);
  scripts[1]!.push(talk.reply, 0, talk.reply.length);
  push(talk.fromInitiator);
  if (how === 'end') operations.push(...scripts[0]!.end());
  if (how === 'release') operations.push(...scripts[0]!.release());
  return gather(operations);
}

function gather(operations: readonly Operation[]): Played {
  const passed: Uint8Array[] = [];
  const steps: string[] = [];
  const said: string[] = [];
  let run = 0;
  const flush = (): void => {
    if (run > 0) steps.push(`pass ${run}`);
    run = 0;
  };
  for (const operation of operations) {
    if (operation.do === 'pass') {
      passed.push(operation.bytes);
      run += operation.bytes.length;
    } else if (operation.do === 'say') said.push(operation.text);
    else {
      flush();
      steps.push(operation.do === 'delay' ? `delay ${operation.ms}` : operation.do);
    }
  }
  flush();
  return { octets: concat(...passed), steps, said };
}

const whole = (talk: Conversation): Uint8Array => concat(talk.request, talk.fromInitiator);
const VARIANTS = [
  { crc: true, markers: [false, false] },
  { crc: false, markers: [false, false] },
  { crc: true, markers: [true, false] },
  { crc: false, markers: [true, true] },
] as const;
const PIECES = [1, 13, 512, 1 << 20];

/** The ULPDUs of what passed; every FPDU must be faultless. */
function ulpdus(octets: Uint8Array, talk: Conversation, variant: (typeof VARIANTS)[number]): string[] {
  const fpdus = decodeFpdus(octets.slice(talk.request.length), {
    crc: variant.crc,
    markers: variant.markers[0],
  });
  for (const fpdu of fpdus) {
    expect(fpdu.padOk).toBe(true);
    if (variant.crc) expect(fpdu.crcOk).toBe(true);
    expect(fpdu.ulpdu.length).toBe(fpdu.ulpduLength);
  }
  return fpdus.map(({ ulpdu }) => Buffer.from(ulpdu).toString('hex'));
}

function differencesOf(a: Uint8Array, b: Uint8Array): { at: number; xor: number }[] {
  expect(b.length).toBe(a.length);
  return Array.from(a, (octet, at) => ({ at, xor: octet ^ b[at]! })).filter(({ xor }) => xor !== 0);
}

describe.each(VARIANTS)('one direction, CRC $crc, markers $markers', (variant) => {
  const talk = conversation(variant);
  const before = ulpdus(whole(talk), talk, variant);
  /** Index of the nth Send among the FPDUs: Write, Write, Send, three times over, then a Read Request. */
  const send = (n: number): number => 3 * n - 1;

  it.each(PIECES)('passes everything unchanged where no fault strikes, in pieces of %i', (piece) => {
    for (const faults of [
      [],
      ['drop,opcode=Send,fpdu=99'],
      ['drop,opcode=Send,from=server'],
      ['flip,at=1000000'],
    ]) {
      expect(play(talk, faults, piece).octets).toEqual(whole(talk));
    }
  });

  it.each(PIECES)('drops the FPDU and no other, in pieces of %i', (piece) => {
    const { octets, said } = play(talk, ['drop,opcode=Send,fpdu=2'], piece);
    expect(ulpdus(octets, talk, variant)).toEqual(before.filter((_, i) => i !== send(2)));
    expect(said).toEqual(['fault drop,from=client,opcode=Send,fpdu=2 strikes Send, FPDU 6']);
  });

  it.each(PIECES)('repeats the FPDU, in pieces of %i', (piece) => {
    const { octets } = play(talk, ['duplicate,fpdu=1'], piece);
    expect(ulpdus(octets, talk, variant)).toEqual([before[0], ...before]);
  });

  it.each(PIECES)('lets FPDUs overtake, in pieces of %i', (piece) => {
    const { octets } = play(talk, ['reorder,fpdu=2,by=3'], piece);
    expect(ulpdus(octets, talk, variant)).toEqual([
      before[0],
      ...before.slice(2, 5),
      before[1],
      ...before.slice(5),
    ]);
  });

  it('lets an FPDU go that none overtakes, on demand or at the end', () => {
    for (const how of ['release', 'end'] as const) {
      expect(ulpdus(play(talk, ['reorder,opcode=ReadReq'], 100, how).octets, talk, variant)).toEqual(before);
    }
    expect(ulpdus(play(talk, ['reorder,opcode=ReadReq'], 100, 'open').octets, talk, variant)).toEqual(
      before.slice(0, -1),
    );
  });

  it('flips one bit of one octet', () => {
    const { octets } = play(talk, ['flip,opcode=Send,fpdu=2,byte=20,bit=3'], 50);
    const differences = differencesOf(whole(talk), octets);
    expect(differences).toHaveLength(1);
    expect(differences[0]!.xor).toBe(8);
    const fpdus = decodeFpdus(octets.slice(talk.request.length), {
      crc: variant.crc,
      markers: variant.markers[0],
    });
    if (variant.crc) expect(fpdus.map(({ crcOk }) => crcOk)).toEqual(before.map((_, i) => i !== send(2)));
    // Octet 20 counts from ULPDU_Length: the first octet after the 18 octets of header.
    expect(fpdus[send(2)]!.ulpdu[18]! ^ Buffer.from(before[send(2)]!, 'hex')[18]!).toBe(8);
  });

  it('makes the CRC right again with crc=fix', () => {
    const { octets } = play(talk, ['flip,opcode=Send,fpdu=1,byte=20,crc=fix']);
    const after = ulpdus(octets, talk, variant);
    expect(after.filter((ulpdu, i) => ulpdu !== before[i])).toHaveLength(1);
  });

  it.each(['delay', 'stall', 'cut', 'reset'])(
    '%s at an octet of the stream, of an FPDU, and of the start-up frame',
    (kind) => {
      const step = kind === 'delay' ? 'delay 1000' : kind;
      const all = whole(talk).length;
      for (const piece of PIECES) {
        expect(play(talk, [`${kind},at=100`], piece).steps).toEqual(['pass 100', step, `pass ${all - 100}`]);
        expect(play(talk, [`${kind},fpdu=0,byte=5`], piece).steps).toEqual([
          'pass 5',
          step,
          `pass ${all - 5}`,
        ]);
        expect(play(talk, [`${kind},fpdu=1`], piece).steps).toEqual([
          `pass ${talk.request.length}`,
          step,
          `pass ${all - talk.request.length}`,
        ]);
        expect(play(talk, [`${kind},opcode=ReadReq,byte=-1`], piece).steps).toEqual([
          `pass ${all - 1}`,
          step,
          'pass 1',
        ]);
      }
    },
  );

  it('plays several faults, each once', () => {
    const { octets, said } = play(
      talk,
      ['drop,opcode=Send,fpdu=1', 'duplicate,opcode=Send,fpdu=3', 'drop,stag=11223344,fpdu=2'],
      77,
    );
    expect(ulpdus(octets, talk, variant)).toEqual([
      before[0],
      ...before.slice(3, 9),
      before[8],
      ...before.slice(9),
    ]);
    expect(said).toHaveLength(3);
  });
});

describe('streams without FPDUs to strike', () => {
  const faults = ['drop,fpdu=1'];

  it('passes octets that are not MPA at once', () => {
    const text = new TextEncoder().encode('GET / HTTP/1.1');
    const script = new FaultScript(0, planFaults(faults.map(parseFault), 1, 1), new Agreement(), true);
    const played = gather(script.push(text, 0, 1).concat(script.push(text, 1, text.length)));
    expect(played.octets).toEqual(text);
    expect(played.said).toEqual([
      'no further fault of FPDUs can strike: the stream does not begin with an MPA start-up frame',
    ]);
  });

  it('passes what follows an FPDU with a wrong CRC as it is', () => {
    const talk = conversation();
    const damaged = {
      ...talk,
      fromInitiator: talk.fromInitiator.map((octet, i) => (i === 30 ? octet ^ 1 : octet)),
    };
    const { octets, said } = play(damaged, ['drop,fpdu=3']);
    expect(octets).toEqual(whole(damaged));
    expect(said).toEqual(['no further fault of FPDUs can strike: an FPDU came with a wrong CRC']);
  });

  it('passes what follows a rejection as it is', () => {
    const talk = conversation({ reply: { reject: true } });
    expect(play(talk, faults).octets).toEqual(whole(talk));
  });

  it('passes the front of an FPDU that never becomes whole', () => {
    const talk = conversation();
    const short = { ...talk, fromInitiator: talk.fromInitiator.subarray(0, 50) };
    expect(play(short, faults, 7).octets).toEqual(whole(short));
  });
});

describe('the script', () => {
  it.each([
    ['explode,at=1', 'the kind must be one of'],
    ['flip', 'the place is missing'],
    ['flip,at', 'is not KEY=VALUE'],
    ['flip,at=1,at=2', 'given twice'],
    ['flip,at=-1', 'at must be'],
    ['flip,at=9..3', 'at must be'],
    ['flip,at=1,bit=8', 'bit must be'],
    ['flip,at=1,fpdu=1', 'at excludes'],
    ['flip,at=1,from=me', 'from must be'],
    ['flip,at=1,crc=break', 'crc takes'],
    ['flip,at=1,colour=red', 'there is no key "colour"'],
    ['cut,toString=1', 'there is no key "toString"'],
    ['cut,at=1,__proto__=1', 'there is no key "__proto__"'],
    ['drop,at=1', 'drop needs'],
    ['drop,fpdu=1,byte=3', 'drop takes no byte'],
    ['cut,at=1,ms=3', 'cut takes no ms'],
    ['drop,opcode=Sendd', '--opcode needs'],
    ['drop,stag=xyz', '--stag needs'],
    ['drop,opcode=Send,fpdu=0', 'fpdu counts from 1'],
    ['drop,fpdu=1,connection=1..2', 'connection takes one number'],
  ])('%s is refused: %s', (text, message) => {
    expect(() => parseFault(text)).toThrow(message);
  });

  it('draws the same from the same seed, and differently for each connection', () => {
    const specs = ['any', 'flip,at=0..999999,bit=0..7', 'delay,fpdu=3..90,ms=5..500'].map(parseFault);
    const texts = (seed: number, connection: number): string[] =>
      planFaults(specs, seed, connection).map(({ text }) => text);
    expect(texts(7, 1)).toEqual(texts(7, 1));
    expect(texts(7, 1)).not.toEqual(texts(8, 1));
    expect(texts(7, 2)).not.toEqual(texts(7, 1));
  });

  it('draws within the ranges', () => {
    for (let seed = 0; seed < 200; seed++) {
      const [flip, any] = planFaults(['flip,at=10..12,bit=2..3', 'any'].map(parseFault), seed, 1);
      expect([10, 11, 12]).toContain(flip!.place.unit === 'octet' ? flip!.place.at : -1);
      expect([2, 3]).toContain(flip!.bit);
      expect(any!.place.unit === 'fpdu' && any!.place.nth <= 16).toBe(true);
    }
  });

  it('strikes only the connection that it names', () => {
    const specs = ['drop,fpdu=1,connection=2', 'drop,fpdu=9'].map(parseFault);
    expect([1, 2, 3].map((number) => planFaults(specs, 1, number).length)).toEqual([1, 2, 1]);
  });

  it('is read from JSON, with its seed', () => {
    const folder = mkdtempSync(join(tmpdir(), 'faults-'));
    try {
      const file = join(folder, 'faults.json');
      writeFileSync(
        file,
        JSON.stringify({
          seed: 9,
          faults: [{ kind: 'flip', from: 'server', opcode: 'Send', octet: '0..9' }, 'cut,at=7'],
        }),
      );
      expect(readFaults(file)).toEqual({
        seed: 9,
        faults: [parseFault('flip,from=server,opcode=Send,byte=0..9'), parseFault('cut,at=7')],
      });
      expect(parseSettings(['1', '2', '--faults', file])).toMatchObject({ seed: 9, drawn: true });
      for (const wrong of ['[1]', '{}', '[{"kind":"flip","at":true}]', '[', '{"faults":[],"seed":"x"}']) {
        writeFileSync(file, wrong);
        expect(() => readFaults(file)).toThrow(/faults/);
      }
      expect(() => readFaults(join(folder, 'missing'))).toThrow('ENOENT');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('the command line', () => {
  it.each([
    ['7174', { host: '127.0.0.1', port: 7174 }],
    ['0.0.0.0:0', { host: '0.0.0.0', port: 0 }],
    ['[::1]:80', { host: '::1', port: 80 }],
    ['rnic.example:1', { host: 'rnic.example', port: 1 }],
  ])('%s is an end', (text, endpoint) => {
    expect(parseEndpoint(text, 0)).toEqual(endpoint);
  });

  it.each(['', 'host', '::1:80', 'host:70000', ':80', '[::1]', '1.2.3.4:'])('%j is none', (text) => {
    expect(() => parseEndpoint(text, 0)).toThrow('is not [HOST:]PORT');
  });

  it.each([
    [[], 'LISTEN and TARGET'],
    [['1', '2', '3'], 'LISTEN and TARGET'],
    [['1', '0'], 'is not [HOST:]PORT'],
    [['1', '2', '--once', '--connections', '3'], 'exclude each other'],
    [['1', '2', '--connections', '0'], '--connections'],
    [['1', '2', '--page', '99999'], '--page'],
    [['1', '2', '--seed', '-1'], '--seed'],
    [['1', '2', '--nonsense'], 'nonsense'],
    [['1', '2', '--opcode', 'Nothing'], '--opcode'],
  ])('%j is refused: %s', (args, message) => {
    expect(() => parseSettings(args)).toThrow(message);
  });
});
