/**
 * Programs that stand in pages of docs/: blocks of JavaScript whose first line is a comment with a file name.
 */

/** A program. */
export interface Program {
  /** Its name, `redis.mjs`. */
  readonly file: string;
  /** Its text. */
  readonly code: string;
}

/** The programs of a page, in order. */
export function programsOf(page: string): Program[] {
  return [...page.matchAll(/^```js\n\/\/ (\S+\.mjs)\n([^]*?)^```$/gm)].map(([, file, code]) => ({
    file: file!,
    code: code!,
  }));
}

/** The lines that a program says it prints: the comments after its calls of console.log. */
export function announced(code: string): string[] {
  return [...code.matchAll(/^.*console\.log\(.*\); \/\/ (.+)$/gm)].map((match) => match[1]!);
}
