/** `iwarp bench`: starts the benchmark, which lives beside src/ (bench/main.ts) with its development dependencies and is not in the package. */

type Bench = { readonly run: (args: string[]) => Promise<number> };

export async function run(args: string[]): Promise<number> {
  const where = new URL(`../../bench/main${import.meta.url.slice(-3)}`, import.meta.url);
  try {
    return await ((await import(where.href)) as Bench).run(args);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    process.stderr.write('bench: the benchmark is part of the repository, not of the package: clone it, npm ci, npm run build\n');
    return 1;
  }
}
