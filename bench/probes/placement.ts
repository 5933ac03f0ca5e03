/**
 * The figure that the OSU report promised and never made: what becomes of segments above a hole, in virtual
 * time, so that it is the same on every machine.
 */
import { figure, type LabResult } from '../trp/figure.ts';
import { plot } from '../trp/plot.ts';
import type { ProbeResult } from '../types.ts';
import { cell, ratioOf, type Probe, type Progress } from './probe.ts';

const ID = 'placement';
const TITLE = 'Placement before the turn of a segment, with loss and reordering';
const MOST_SEEDS = 5;
const SECONDS_A_SEED = 4;

const label = ({ receiver, loss, reordering }: LabResult): string =>
  reordering > 0 ? `reordering ${reordering} %, ${receiver}` : `loss ${loss} %, ${receiver}`;

async function measure(seeds: number, progress: Progress): Promise<ProbeResult> {
  progress(`${ID}: ${seeds} seeds`);
  const { loss, reordering } = figure(seeds);
  const rate = (percent: number): number =>
    loss.find((one) => one.receiver === 'placing' && one.loss === percent)!.goodput;
  const results = [...loss, ...reordering.filter((one) => one.reordering > 0)];
  return {
    id: ID,
    title: TITLE,
    about:
      'iWARP over UDP with a receiver that places each segment when it arrives, with one that keeps it ' +
      'until its turn, and iWARP over a byte stream as TCP gives it, on one simulated link of 100 Mb/s ' +
      'with a millisecond each way, in virtual time. All three have the same window and repair losses ' +
      'alike. RDMA Writes of 64 KiB, 6 MiB in all.',
    columns: ['to placement, ms', 'to its turn, ms', 'MB/s', 'held, KB'],
    rows: results.map((one) => ({
      label: label(one),
      cells: [cell(one.placement, 3), cell(one.turn, 3), cell(one.goodput), cell(one.held / 1000, 1)],
    })),
    charts: [],
    picture: {
      caption: 'Time from arrival to placement and to completion, memory held, and goodput.',
      see:
        'A placing receiver has every segment in its place when it arrives and holds a kilobyte or two of ' +
        'headers, where the others hold a hundred kilobytes of payload for as long as a hole is open; ' +
        'completion and goodput are the same for all, since the same hole keeps them back.',
      svg: plot(loss, reordering),
    },
    ratios: [ratioOf(`${ID}/1 % loss : no loss`, 'more', [rate(1) / rate(0)])],
    missing: [],
    disturbed: false,
  };
}

export const placement: Probe = {
  id: ID,
  title: TITLE,
  seconds: ({ rounds }) => Math.min(rounds, MOST_SEEDS) * SECONDS_A_SEED,
  run: async ({ rounds }, progress) => measure(Math.min(rounds, MOST_SEEDS), progress),
};
