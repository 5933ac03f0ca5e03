/**
 * Why something could not be measured, in one line, and without the folders of the machine: reports are
 * passed on.
 */
import { fileURLToPath } from 'node:url';

/** The repository's folder, or that of its build. */
const BUILD = fileURLToPath(new URL('..', import.meta.url));

export function reasonOf(error: unknown): string {
  const [first = ''] = (error instanceof Error ? error.message : String(error)).split('\n', 1);
  return withoutFolders(first);
}

/** Node's message about a missing module ends with the importing file, which is left out. */
export function withoutFolders(text: string): string {
  return text.replace(/^(Cannot find (?:package|module) .*) imported from .*$/, '$1').replaceAll(BUILD, '');
}
