/**
 * `iwarp bench`: starts the benchmark, which lives beside src/ (bench/main.ts) with its development
 * dependencies and is not in the package.
 */

const NEEDS_CLONE =
  'the benchmark is part of the repository, not of the package: clone it, npm ci, npm run build';
/** The usage text, for installations where the benchmark itself cannot print it. */
const USAGE = `usage: iwarp bench [--quick | --full | --only PARTS | --scenario NAMES | --list] [options]
  --quick                  the goals and the inner loops, about five minutes (default)
  --full                   everything, about 25 minutes
  --only PARTS, --scenario NAMES
                           some parts, or the experiments of papers; --list prints their names
  --paper NAME             the rows of osu, az-sdp, qpip, sroce, usiw, or all; --page FILE writes them
  --wire trp               iWARP over UDP beside TCP and node:dgram
  --json FILE, --html FILE write the figures, or the report
${NEEDS_CLONE};
there, "iwarp bench --help" prints all options.
`;

type Bench = { readonly run: (args: string[]) => Promise<number> };

export async function run(args: string[]): Promise<number> {
  const where = new URL(`../bench/main${import.meta.url.slice(-3)}`, import.meta.url);
  try {
    return await ((await import(where.href)) as Bench).run(args);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    if (args.includes('--help') || args.includes('-h')) {
      process.stdout.write(USAGE);
      return 0;
    }
    process.stderr.write(`bench: ${NEEDS_CLONE}\n`);
    return 1;
  }
}
