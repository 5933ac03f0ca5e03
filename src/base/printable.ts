/**
 * Text that a peer or another process has chosen, made harmless for a terminal: control characters could move
 * the cursor or recolour what stands around, directional ones could reorder it.
 */

/** Controls, format characters, lone surrogates, line and paragraph separators. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** `text` with every unprintable character as `\x1b` or `\u{202e}`. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => {
    const code = character.codePointAt(0)!;
    return code <= 0xff ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
  });
}

/** Text of several lines with every unprintable character escaped but line ends and tabs. */
export function printableLines(text: string): string {
  return text
    .split('\n')
    .map((line) => line.split('\t').map(printable).join('\t'))
    .join('\n');
}

/** `text` between quotation marks, with quotation marks and backslashes inside it escaped. */
export function quoted(text: string): string {
  return `"${printable(text.replace(/["\\]/g, '\\$&'))}"`;
}

/** JSON text whose strings hold no unprintable character: JSON itself escapes only some of them. */
export function printableJson(json: string): string {
  return json.replace(/[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    Array.from(
      { length: character.length },
      (_, i) => `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`,
    ).join(''),
  );
}
