/** The entries of the package, and the source that each is compiled from. */
import { readFileSync } from 'node:fs';

type Entry = string | { readonly default: string };

/** From `iwarp`, `iwarp/verbs` and so on to the path of its source in the checkout. */
export function packageSources(): Readonly<Record<string, string>> {
  const { name, exports } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    readonly name: string;
    readonly exports: Readonly<Record<string, Entry>>;
  };
  return Object.fromEntries(
    Object.entries(exports).flatMap(([key, entry]) =>
      typeof entry === 'string'
        ? []
        : [[name + key.slice(1), entry.default.replace(/^\.\/dist\/(.*)\.js$/, 'src/$1.ts')]],
    ),
  );
}
