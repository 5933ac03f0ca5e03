/** The papers whose rows can be measured, and the runner, for commands. */
import { AZ_SDP, endClients } from './az-sdp.ts';
import { endStores } from './kv-ends.ts';
import type { PaperName } from './names.ts';
import { OSU } from './osu.ts';
import { runParts, type Paper, type PartResult, type RunOptions } from './paper.ts';
import { endQpip, QPIP } from './qpip.ts';
import { SROCE } from './sroce.ts';
import { STREAM_GOALS } from './stream-goals.ts';
import { STREAM_TABLE } from './stream-table.ts';
import { endPeer } from './subjects.ts';
import { endTrp } from './trp-peer.ts';
import { USIW } from './usiw.ts';

/** The papers by their names on the command line, in the order of the page. */
export const PAPERS: Readonly<Record<PaperName, Paper>> = {
  osu: OSU,
  'az-sdp': AZ_SDP,
  qpip: QPIP,
  sroce: SROCE,
  usiw: USIW,
};

/** The papers, and the goals and the table of byte streams, which have the same form. */
export const ROWS: readonly Paper[] = [STREAM_GOALS, STREAM_TABLE, ...Object.values(PAPERS)];

/** Measures parts by their ids or the papers' names, and ends the processes that took part. */
export async function runPapers(options: RunOptions): Promise<PartResult[]> {
  try {
    return await runParts(ROWS, options);
  } finally {
    endClients();
    endPeer();
    endStores();
    await endQpip();
    await endTrp();
  }
}
