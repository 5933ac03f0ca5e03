/** The process of servers over UDP that the papers' rows share. */
import { startTrpPeer } from '../trp/main.ts';

type TrpPeer = Awaited<ReturnType<typeof startTrpPeer>>;
let running: Promise<TrpPeer> | null = null;

export function trp(): Promise<TrpPeer> {
  return (running ??= startTrpPeer());
}

export async function endTrp(): Promise<void> {
  await running?.then(({ peer }) => peer.kill('SIGKILL'));
  running = null;
}
