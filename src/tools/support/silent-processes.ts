/** Say which processes serve a control socket and do not answer: their programs compute, and their counters can be seen later. */
export function tellSilent(tool: string, pids: readonly number[]): void {
  for (const pid of pids) process.stderr.write(`${tool}: process ${pid} does not answer: its program may be computing\n`);
}
