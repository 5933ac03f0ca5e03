/**
 * Measurements of iWARP over UDP. `npx tsx bench/trp.ts figure [seeds] [file.svg]` runs the experiment that
 * the OSU report promised, in virtual time; `rows [rounds]` compares 64 bytes with `node:dgram` and with
 * iWARP over TCP, over loopback, `sizes [rounds]` has figures 6 and 7 of the paper USIW.
 */
import { writeFileSync } from 'node:fs';
import { figure, type LabResult } from './trp/figure.ts';
import { measureTrp } from './trp/main.ts';
import { plot } from './trp/plot.ts';

function print(title: string, results: readonly LabResult[]): void {
  console.log(`${title}\nreceiver      loss  order  place ms   turn ms  MB/s  held bytes`);
  for (const { receiver, loss, reordering, placement, turn, goodput, held } of results)
    console.log(
      receiver.padEnd(12) +
        `${loss} %`.padStart(7) +
        `${reordering} %`.padStart(7) +
        placement.toFixed(3).padStart(10) +
        turn.toFixed(3).padStart(10) +
        goodput.toFixed(2).padStart(7) +
        held.toFixed(0).padStart(10),
    );
}

const [what = 'figure', count, file] = process.argv.slice(2);
if (what === 'rows' || what === 'sizes') await measureTrp(Number(count ?? 5), [what]);
else {
  const { loss, reordering } = figure(Number(count ?? 5));
  print('loss', loss);
  print('reordering', reordering);
  if (file !== undefined) writeFileSync(file, plot(loss, reordering));
}
