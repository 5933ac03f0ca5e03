import type { Unshown } from '../../src/observe/control-socket.ts';

const WHY: Readonly<Record<Unshown, string>> = {
  silent: 'does not answer: its program may be computing',
  oversized: 'answers more than any state has',
  strange: 'answers what this version cannot show: it may be of another one',
};

/** Say which processes serve a control socket and are not shown, and why. */
export function tellUnshown(tool: string, processes: ReadonlyMap<number, Unshown>): void {
  for (const [pid, why] of processes) process.stderr.write(`${tool}: process ${pid} ${WHY[why]}\n`);
}
