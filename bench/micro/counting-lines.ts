/**
 * Finds the lines of the build that count messages and octets: for the copy without them that `counters.ts`
 * sets beside it.
 */

/**
 * File of `src/` without its ending, a line that counts, the line without counting, and how often it occurs.
 */
const LINES: readonly (readonly [file: string, line: RegExp, left: string, times: number])[] = [
  ['rdmap/sender', /\belse\s+this\.fpdus\+\+;/g, 'else;', 1],
  ['rdmap/work-segments', /^\s*out\.payloadOctets \+= (payload|octets);$/gm, '', 2],
  ['rdmap/response-segments', /^\s*out\.payloadOctets \+= payload;$/gm, '', 1],
  ['rdmap/work-segments', /^\s*if \((last|octets === left)\)\s*out\.count\(.*\);$/gm, '', 2],
  ['rdmap/response-segments', /^\s*if \(last\)\s*out\.count\(.*\);$/gm, '', 1],
  ['rdmap/message-writer', /^\s*this\.count\(.*\);$/gm, '', 2],
  ['rdmap/receiver', /^\s*this\.segments\+\+;$/gm, '', 1],
  [
    'rdmap/receiver',
    /^\s*if \(row\.qn <= QN\.SEND\)\s*this\.payloadOctets \+= segment\.payloadLength;.*$/gm,
    '',
    1,
  ],
  ['rdmap/receiver', /^\s*if \(segment\.last\)\s*countReceived\(this\.messages, opcode\);$/gm, '', 1],
  ['stream/stream', /^\s*this\.#octetsIn \+= .*;$/gm, '', 1],
];

/** The files of `src/` in which something is counted. */
export const COUNTING_FILES: readonly string[] = [...new Set(LINES.map(([file]) => file))];

/**
 * The text of one of them, source or compiled, without its lines that count. Throws if they are not where
 * they were.
 */
export function withoutCounting(file: string, text: string): string {
  let bare = text;
  for (const [name, line, left, times] of LINES) {
    if (name !== file) continue;
    const found = bare.match(line)?.length ?? 0;
    if (found !== times)
      throw new Error(
        `${file}: ${found} lines match ${String(line)} instead of ${times}: say anew what counts`,
      );
    bare = bare.replace(line, left);
  }
  return bare;
}
