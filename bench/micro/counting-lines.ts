/** Which lines of the build count messages and octets: for the copy without them that `counters.ts` sets beside it. */

/** File of `rdmap/`, a line that counts, what is left of it, and how often it stands there. */
const LINES: readonly (readonly [file: string, line: RegExp, left: string, times: number])[] = [
  ['sender', /(this\.#step\(stage\)\)\s*)this\.fpdus\+\+;/g, '$1;', 1],
  ['sender', /^\s*this\.payloadOctets \+= payload;$/gm, '', 2],
  ['sender', /^\s*this\.count\(.*\);$/gm, '', 2],
  ['message-writer', /^\s*this\.count\(.*\);$/gm, '', 2],
  ['receiver', /^\s*this\.segments\+\+;$/gm, '', 1],
  ['receiver', /^\s*if \(row\.qn <= QN\.SEND\)\s*this\.payloadOctets \+= segment\.payloadLength;.*$/gm, '', 1],
  ['receiver', /^\s*if \(segment\.last\)\s*countReceived\(this\.messages, opcode\);$/gm, '', 1],
  ['stream', /^\s*this\.#octetsIn \+= .*;$/gm, '', 1],
  ['stream-outputs', /^\s*this\.octetsOut \+= .*;$/gm, '', 1],
];

/** The files of `rdmap/` in which something is counted. */
export const COUNTING_FILES: readonly string[] = [...new Set(LINES.map(([file]) => file))];

/** The text of one of them, source or compiled, without its lines that count. Throws if they are not where they were. */
export function withoutCounting(file: string, text: string): string {
  let bare = text;
  for (const [name, line, left, times] of LINES) {
    if (name !== file) continue;
    const found = bare.match(line)?.length ?? 0;
    if (found !== times) throw new Error(`${file}: ${found} lines match ${String(line)} instead of ${times}: say anew what counts`);
    bare = bare.replace(line, left);
  }
  return bare;
}
