/**
 * Writes docs/errors.md from the table of error codes in src/base/errors.ts and the advice in
 * scripts/error-advice.ts: `npx tsx scripts/docs-errors.ts`. With `--check` it writes nothing and ends with
 * status 1 if the page is out of date.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { ERROR_CODES, type IwarpErrorCode } from '../src/base/errors.ts';
import { ERROR_ADVICE } from './error-advice.ts';

/** Where the page is. */
export const ERRORS_PAGE: string = fileURLToPath(new URL('../docs/errors.md', import.meta.url));

const INTRODUCTION = `# Errors

<!-- Made by scripts/docs-errors.ts from src/base/errors.ts; change that, not this. -->

Every error of this package is an \`IwarpError\` with a \`code\` from this table. Codes are part of the
interface: their names and meanings stay. Messages are for people and may change.

\`\`\`
catch (error) {
  if (error instanceof IwarpError && error.code === 'ERR_TIMEOUT') …
}
\`\`\`

Misuse fails in the call itself, before anything is sent: a function throws, an async one rejects. What the
network does arrives as a completion, an event or a rejected promise. Two errors carry what the peer said:
\`TerminateError\` (\`ERR_TERMINATED\`) in \`terminate\`, \`RejectedError\` (\`ERR_REJECTED\`) in
\`privateData\`. If another error caused it, \`cause\` has that one.

Errors of byte streams (\`iwarp/sockets\`) are those of Node's sockets: their \`code\` is the system's
(\`ECONNREFUSED\`, \`ECONNRESET\`, \`EPIPE\`, \`EPROTO\`, \`ETIMEDOUT\`, \`EADDRINUSE\`), with \`errno\`,
\`syscall\`, \`address\` and \`port\`, and an error of this page is the \`cause\`. Errors of the stream
itself are Node's: \`ERR_STREAM_WRITE_AFTER_END\` for a write after \`end()\`, \`ABORT_ERR\` for an aborted
\`signal\`.

| Code | Meaning | Raised by | What to do |
|---|---|---|---|
`;

const BEHIND = `
## "A message announces 16 bytes where 0 were offered"

A byte stream over rsockets ends with \`EPROTO\` and these words, with any number of bytes, when the peer
has written into memory that was not its to fill. No wrong byte reaches the program: the connection ends
first.

The peers that do so are stock rsocket programs (librdmacm) on the Linux driver siw, where the kernel's
copy stores 16 bytes twice: Linux 6.12 on processors without fast short \`rep movsb\` (FSRM), and 6.1 if
it is booted with \`clearcpuid=112,297\`. Half a receive buffer is granted by an entry of 16 bytes in the
peer's list of targets. If the peer uses the entry up between the two stores, the second one brings it
back, and the peer fills the same half again ([how a capture proves
it](../conformance/reports/linux-siw-6.12.md#m2)).

What helps is a larger receive buffer on our side (\`-B\` of the tools, \`receiveBuffer\` of a stream):
fewer grants meet a store in the middle. It has not been seen with Linux 6.1 as it boots by itself.
`;

/** The page as it should be. */
export function renderErrorsPage(): string {
  const rows = Object.entries(ERROR_CODES).map(([code, meaning]) => {
    const { raisedBy, whatToDo } = ERROR_ADVICE[code as IwarpErrorCode];
    const cells = [meaning, raisedBy, whatToDo].map((cell) => cell.replaceAll('|', '\\|'));
    return `| \`${code}\` | ${cells.join(' | ')} |\n`;
  });
  return INTRODUCTION + rows.join('') + BEHIND;
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
