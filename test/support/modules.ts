/** The sources as modules: which files there are, and what each of them names in an import. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** The checkout. */
const ROOT: string = fileURLToPath(new URL('../..', import.meta.url));

/** The TypeScript files of a folder of the checkout, as paths from its root with slashes. What is fetched or built is left out. */
export function sourceFiles(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)).split(sep).join('/'))
    .filter((path) => !path.includes('/.cache/'));
}

/** The text of a file of the checkout. */
export const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

/** What a text imports, word for word: statements of every form, `export … from`, types alone, `import()`. */
export function specifiersIn(text: string): string[] {
  return ts.preProcessFile(text, true, true).importedFiles.map(({ fileName }) => fileName);
}

/** What a specifier means in `file`: a path from the root of the checkout, or the name of a module from outside as it is. */
export function resolved(file: string, specifier: string): string {
  return specifier.startsWith('.') ? join(dirname(file), specifier).split(sep).join('/') : specifier;
}
