/** The output of `iwarp bench --wire trp`: rows at 64 bytes, and two figures over sizes. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { rows, type Ports } from './rows.ts';
import { figure6, figure7 } from './sizes.ts';

/** A part of the output. */
type TrpPart = 'rows' | 'sizes';

/** The process of the servers, and their ports. */
export async function startTrpPeer(): Promise<{ readonly peer: ChildProcess; readonly ports: Ports }> {
  const file = fileURLToPath(new URL(`peer${import.meta.url.slice(-3)}`, import.meta.url));
  const peer = fork(file);
  const [ports] = (await once(peer, 'message')) as [Ports];
  return { peer, ports };
}

/** Measure and print; the sweeps over sizes have at most `SWEEP_ROUNDS` rounds. */
export async function measureTrp(
  rounds: number,
  parts: readonly TrpPart[] = ['rows', 'sizes'],
): Promise<void> {
  const SWEEP_ROUNDS = 5;
  const { peer, ports } = await startTrpPeer();
  try {
    if (parts.includes('rows')) await rows(ports, rounds);
    if (!parts.includes('sizes')) return;
    await figure6(peer, ports.echo, Math.min(rounds, SWEEP_ROUNDS));
    await figure7(peer, ports.bareSink, Math.min(rounds, SWEEP_ROUNDS));
  } finally {
    peer.kill();
  }
}
