// `iwarp proxy --wire trp`: loss, repetition, delay and reordering between two ends, and the lines it prints.
import { describe, expect, it } from 'vitest';
import { proxy } from '../../cli/proxy.ts';
import { DatagramScript, parseDatagramFault } from '../../cli/proxy/datagram-faults.ts';
import { connect, createServer, openRnic } from '../../src/index.ts';
import type { DecodedDatagram } from '../../src/inspect/index.ts';

/** A message there and back through the proxy with these options. */
async function through(options: readonly string[], octets = 60_000) {
  const rnic = openRnic({ wire: 'trp' });
  const server = await createServer({ rnic }, async (connection) => {
    for await (const message of connection) await connection.send(message.data.slice());
  }).listen({ host: '127.0.0.1', port: 0 });
  const said = { out: '', err: '' };
  const abort = new AbortController();
  let status: Promise<number> | undefined;
  const port = await new Promise<number>((resolve) => {
    status = proxy(['0', String(server.address().port), '--wire', 'trp', ...options], {
      out: (text) => void (said.out += text),
      err: (text) => void (said.err += text),
      listening: resolve,
      signal: abort.signal,
    });
  });
  const connection = await connect({ host: '127.0.0.1', port, rnic });
  const data = Uint8Array.from({ length: octets }, (_, i) => i * 7);
  for (let at = 0; at < octets; at += 4000) {
    const piece = data.subarray(at, Math.min(octets, at + 4000));
    await connection.send(piece);
    using message = await connection.receive();
    expect(Buffer.compare(message!.data, piece)).toBe(0);
  }
  await connection.close();
  await server.close();
  abort.abort();
  expect(await status!).toBe(0);
  return said;
}

describe('iwarp proxy --wire trp', () => {
  it('passes a connection on, to the port that it moves to, and shows it', async () => {
    const { out, err } = await through([]);
    expect(err).toMatch(/listening on 127\.0\.0\.1 UDP port \d+/);
    expect(out).toMatch(/→ .*TRP Req/);
    expect(out).toMatch(/← .*TRP Acc/);
    expect(out).toMatch(/Send +MSN 1/);
    expect(out).toMatch(/Connection 1: .*\n.*over UDP, repeated → \d+ ← \d+/);
  }, 60_000);

  it('loses, repeats, delays and reorders, and everything arrives', async () => {
    const faults = ['drop,rate=5', 'duplicate,rate=5', 'delay,rate=5,ms=1..20', 'reorder,rate=5,by=2,ms=30'];
    const { out, err } = await through([
      ...faults.flatMap((one) => ['--fault', one]),
      '--seed',
      '7',
      '--sent',
    ]);
    expect(err).toContain('seed 7');
    for (const one of faults) expect(err).toMatch(new RegExp(`fault ${one} struck [1-9]`));
    expect(out).toMatch(/fault drop,rate=5 strikes/);
    expect(out).toMatch(/ {2}repeated/);
  }, 60_000);

  it('strikes a datagram of set-up by its name', async () => {
    const { err } = await through(
      ['--fault', 'drop,opcode=Accept,nth=1', '--fault', 'drop,opcode=Request,nth=1', '-q'],
      4000,
    );
    expect(err).toContain('fault drop,opcode=Accept,nth=1 struck 1 time\n');
    expect(err).toContain('fault drop,opcode=Request,nth=1 struck 1 time\n');
  }, 60_000);

  it('draws the same from the same seed', () => {
    const event = { kind: 'trp', direction: 0, opcode: 'Send' } as DecodedDatagram;
    const draw = (seed: number): string => {
      const script = new DatagramScript([parseDatagramFault('drop,rate=30')], seed);
      return Array.from({ length: 200 }, () => script.decide(event).copies).join('');
    };
    expect(draw(1)).toBe(draw(1));
    expect(draw(1)).not.toBe(draw(2));
    expect(draw(1).split('0').length - 1).toBeGreaterThan(30);
    expect(draw(1).split('0').length - 1).toBeLessThan(90);
  });

  it.each([
    'lose',
    'drop,rate=101',
    'drop,from=both',
    'drop,rate=5,rate=6',
    'delay,ms=9..1',
    'drop,at=4',
    'drop,nth',
  ])('refuses the fault %s', async (fault) => {
    let err = '';
    const io = { out: () => undefined, err: (text: string) => void (err += text) };
    expect(await proxy(['0', '1', '--wire', 'trp', '--fault', fault], io)).toBe(2);
    expect(err).toMatch(/^iwarp proxy: --fault /);
  });
});
