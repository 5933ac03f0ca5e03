// Takes the catalogue's clause references apart: `RFC 5044 7.1.1, 7.1.2 (2,5), 8` names three sections of one
// document. Used by compliance.ts, which sorts the catalogue by section.

/** Documents of the catalogue, in the order of the report, with their titles. */
export const DOCUMENTS: Readonly<Record<string, string>> = {
  'RFC 5040': 'A Remote Direct Memory Access Protocol Specification (RDMAP)',
  'RFC 5041': 'Direct Data Placement over Reliable Transports (DDP)',
  'RFC 5042': 'DDP/RDMAP Security',
  'RFC 5044': 'Marker PDU Aligned Framing for TCP (MPA)',
  'RFC 6581': 'Enhanced RDMA Connection Establishment',
  'RFC 7306': 'RDMA Protocol Extensions',
  'verbs draft': 'RDMA Protocol Verbs Specification (draft-hilland-rddp-verbs-00)',
};

/** One section of one document. */
interface Clause {
  readonly document: string;
  /** `7.1.2`, `app. C.2.1`, … */
  readonly section: string;
  /** The text behind the number: `(2,5)`, `fig. 10`, … */
  readonly detail: string;
}

const DOCUMENT = /^(RFC \d{4}|verbs draft)\s+/;
const SECTION = /^((?:app\. )?(?:[A-Z]\.)?\d+(?:\.\d+)*|app\. [A-Z](?:\.\d+)*)\s*(.*)$/;

/**
 * The sections that `text` names, the leading one first; other references (errata, other RFCs, observations)
 * are left out.
 */
export function parseClauses(text: string): Clause[] {
  const found: Clause[] = [];
  let document = '';
  for (const part of splitOutside(text)) {
    const named = DOCUMENT.exec(part);
    if (named !== null) document = named[1]!;
    const section = SECTION.exec(named === null ? part : part.slice(named[0].length));
    if (section === null || !(document in DOCUMENTS)) continue;
    found.push({ document, section: section[1]!, detail: section[2]! });
  }
  return found;
}

/** Parts between commas and semicolons that stand outside parentheses. */
function splitOutside(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let part = '';
  for (const c of text) {
    if (c === '(') depth++;
    if (c === ')') depth--;
    if (depth === 0 && (c === ',' || c === ';')) {
      parts.push(part.trim());
      part = '';
    } else part += c;
  }
  return [...parts, part.trim()].filter((piece) => piece !== '');
}

/** Order of sections: by number, appendices last. */
export function compareSections(a: string, b: string): number {
  const key = (section: string): (number | string)[] =>
    section
      .replace('app. ', '')
      .split('.')
      .map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  const left = key(a);
  const right = key(b);
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const x = left[i] ?? -1;
    const y = right[i] ?? -1;
    if (x === y) continue;
    if (typeof x === typeof y) return x < y ? -1 : 1;
    return typeof x === 'number' ? -1 : 1;
  }
  return 0;
}
