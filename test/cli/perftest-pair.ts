/** The perftest programs by their names, run as pairs in this process, and the figures that they print. */
import { perftest } from '../../cli/perftest.ts';
import { runPair, type PairResult } from './pair.ts';

export type Name = `${'write' | 'read' | 'send' | 'atomic'}_${'bw' | 'lat'}`;

export const PROGRAMS: Readonly<Record<Name, ReturnType<typeof perftest>>> = {
  write_bw: perftest('write', 'bw'),
  read_bw: perftest('read', 'bw'),
  send_bw: perftest('send', 'bw'),
  atomic_bw: perftest('atomic', 'bw'),
  write_lat: perftest('write', 'lat'),
  read_lat: perftest('read', 'lat'),
  send_lat: perftest('send', 'lat'),
  atomic_lat: perftest('atomic', 'lat'),
};

/** A server and a client with the same flags; the client has `more`. */
export async function run(name: Name, flags: string[], more: string[] = []): Promise<PairResult> {
  return await runPair(PROGRAMS[name], flags, PROGRAMS[name], (port) => [
    '-p',
    port,
    ...flags,
    ...more,
    '127.0.0.1',
  ]);
}

/** The rows of figures: lines that begin with a blank and a digit. */
export function rows(out: string): number[][] {
  return out
    .split('\n')
    .filter((line) => /^ \d/.test(line))
    .map((line) => line.trim().split(/\s+/).map(Number));
}
