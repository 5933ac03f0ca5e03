/**
 * The kernels that the guest can boot, from the table that build-guest.sh reads as well, and the one that
 * `SIW_KERNEL` names.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readWaivers, type Waivers } from '../runner/waivers.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));

interface Kernel {
  /** As Linux counts its releases: 6.1. */
  readonly line: string;
  /** The folder of everything that is built for it. */
  readonly cache: string;
}

/** The rows of the table; the default is the first. */
export const KERNELS: readonly Kernel[] = parseKernels(readFileSync(join(HERE, 'kernels.txt'), 'utf8'));

/** @internal */
export function parseKernels(table: string): Kernel[] {
  return table
    .split('\n')
    .filter((row) => /^[^#\s]/.test(row))
    .map((row) => {
      const [line, , , , cache] = row.trim().split(/\s+/);
      if (cache === undefined) throw new Error(`a row of kernels.txt lacks columns: ${row}`);
      return { line: line!, cache: join(HERE, cache) };
    });
}

/** What this run cannot have, in one line for its user. */
export class LabProblem extends Error {}

/** The kernel that the environment asks for. */
export function kernelOf(environment: Readonly<Record<string, string | undefined>>): Kernel {
  const line = environment['SIW_KERNEL'] || KERNELS[0]!.line;
  const found = KERNELS.find((kernel) => kernel.line === line);
  if (found !== undefined) return found;
  const known = KERNELS.map((kernel) => kernel.line).join(' or ');
  throw new LabProblem(`there is no guest with a kernel ${line}: set SIW_KERNEL to ${known}`);
}

/** The known deviations of siw in a kernel: those of the first one, and the differences. */
export function waiversOf({ line }: Kernel): Waivers {
  const file = (of: string): string => join(HERE, `../waivers/linux-siw-${of}.txt`);
  const base = readWaivers(file(KERNELS[0]!.line));
  return line === KERNELS[0]!.line ? base : readWaivers(file(line), base);
}

/** Run a command line of the lab; a problem that its user can mend is one line and status 2. */
export async function runLab(main: () => Promise<number>): Promise<number> {
  try {
    return await main();
  } catch (error) {
    if (!(error instanceof LabProblem)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 2;
  }
}
