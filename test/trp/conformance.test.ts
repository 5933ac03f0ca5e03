// Some cases of the conformance suite opposite the peer in Python, both roles, both profiles. All of them:
// `python3 test/trp/peer.py --echo --port 7399 listen`, and `iwarp conformance run --wire trp --target …`.
import { spawn, type ChildProcess } from 'node:child_process';
import { afterEach, expect, it } from 'vitest';
import { TRP_CASES } from '../../conformance/trp/cases.ts';
import { runTrpCases } from '../../conformance/trp/run.ts';
import { PEER, PythonPeer } from './python-peer.ts';

const HOST = '127.0.0.1';
const CASES = ['setup.accept.wrong', 'pieces.that', 'data.reordered', 'fin.form', 'rdma.write-and'];

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

it.each(['fixed', 'urdma'] as const)(
  'a peer in Python passes, profile %s',
  async (profile) => {
    const options = ['--profile', profile, '--echo'];
    const peer = new PythonPeer([...options, 'listen']);
    ends.push(() => peer.stop());
    const { port } = await peer.next('listening');
    const connect = (to: number): void => {
      const args = [PEER, ...options, 'connect', HOST, String(to)];
      const child: ChildProcess = spawn('python3', args, { stdio: 'ignore' });
      ends.push(() => child.kill());
    };
    const target = { host: HOST, port: port as number, connect };
    const cases = TRP_CASES.filter(({ name }) => CASES.some((prefix) => name.startsWith(prefix)));
    const results = await runTrpCases(cases, profile, ['passive', 'active'], target, () => undefined);
    expect(results.filter(({ failure }) => failure !== undefined)).toEqual([]);
    expect(results.length).toBeGreaterThanOrEqual(6);
  },
  60_000,
);
