/**
 * Writes docs/errors.md from the table of error codes in src/base/errors.ts: `npx tsx scripts/docs-errors.ts`. With `--check` it writes
 * nothing and ends with status 1 if the page is out of date.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { ERROR_CODES } from '../src/base/errors.ts';

/** Where the page is. */
export const ERRORS_PAGE: string = fileURLToPath(new URL('../docs/errors.md', import.meta.url));

const INTRODUCTION = `# Errors

<!-- Made by scripts/docs-errors.ts from src/base/errors.ts; change that, not this. -->

Every error of this package is an \`IwarpError\` with a \`code\` from this table. Codes are part of the interface: they keep their names and
their meanings. Messages are for people, and may change.

\`\`\`
catch (error) {
  if (error instanceof IwarpError && error.code === 'ERR_TIMEOUT') …
}
\`\`\`

Misuse is told by the call itself: a function throws, an async one rejects, before anything is sent. What the network does arrives as a
completion, an event or a rejected promise. \`TerminateError\` (\`ERR_TERMINATED\`) and \`RejectedError\` (\`ERR_REJECTED\`) carry what the peer
said: \`terminate\` and \`privateData\`. The cause, where there is one, is in \`cause\`.

| Code | Meaning |
|---|---|
`;

/** The page as it should be. */
export function renderErrorsPage(): string {
  const rows = Object.entries(ERROR_CODES).map(([code, meaning]) => `| \`${code}\` | ${meaning.replaceAll('|', '\\|')} |\n`);
  return INTRODUCTION + rows.join('');
}

function main(args: readonly string[]): number {
  const page = renderErrorsPage();
  if (!args.includes('--check')) {
    writeFileSync(ERRORS_PAGE, page);
    return 0;
  }
  if (readFileSync(ERRORS_PAGE, 'utf8') === page) return 0;
  process.stderr.write('docs/errors.md is out of date: npx tsx scripts/docs-errors.ts\n');
  return 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main(process.argv.slice(2));
