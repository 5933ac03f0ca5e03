/** Colour for events on a terminal: the opcode by its kind, broken rules and Terminates in red. */
import type { InspectEvent } from '../../src/inspect/decode/types.ts';
import { shortName } from '../../src/inspect/render/text.ts';

/** Select Graphic Rendition (ECMA-48 8.3.117): colours that are readable on light and dark terminals. */
const SGR = { red: '31', green: '32', magenta: '35', cyan: '36', faint: '2' } as const;
type Tone = keyof typeof SGR;

/** True if `stream` is a terminal that shows colour and the user has not refused it (no-color.org). */
export function wantsColour(
  stream: { readonly isTTY?: boolean | undefined },
  environment: Readonly<Record<string, string | undefined>>,
): boolean {
  return stream.isTTY === true && (environment['NO_COLOR'] ?? '') === '' && environment['TERM'] !== 'dumb';
}

function paint(tone: Tone, text: string): string {
  return `\u001b[${SGR[tone]}m${text}\u001b[0m`;
}

function toneOf(name: string): Tone {
  if (name === 'Terminate') return 'red';
  if (name.startsWith('Send') || name.startsWith('Imm')) return 'cyan';
  if (name.startsWith('Read') || name.startsWith('Atomic')) return 'magenta';
  return name === 'Write' ? 'green' : 'faint';
}

/** The text of an event, as `renderEvent` makes it, with colour. */
export function painted(text: string, event: InspectEvent): string {
  const [first = '', ...rest] = text.split('\n');
  const broken = event.problems[0];
  const at = broken === undefined ? -1 : first.indexOf(`  [${broken.id} `);
  const [front, tail] = at < 0 ? [first, ''] : [first.slice(0, at), paint('red', first.slice(at))];
  const head = event.kind === 'note' ? paint('faint', front) : withName(front, shortName(event.opcode));
  const lines = rest.map((line) => (/^\s+Problem: /.test(line) ? paint('red', line) : line));
  return [head + tail, ...lines].join('\n');
}

/** The line with the name in its opcode column painted. */
function withName(line: string, name: string): string {
  const at = line.indexOf(name);
  if (at < 0) return line;
  return `${line.slice(0, at)}${paint(toneOf(name), name)}${line.slice(at + name.length)}`;
}
