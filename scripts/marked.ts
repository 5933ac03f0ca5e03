/** Pages with a part that is made: what stands between two marks, and texts for its tables. */

/** `page` with `text` between the marks, which stay; `name` is what an error calls the page. */
export function between(
  page: string,
  name: string,
  [begin, end]: readonly [begin: string, end: string],
  text: string,
): string {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${name} has lost the markers of what is made there`);
  return `${page.slice(0, from)}${begin}\n\n${text}\n\n${page.slice(to)}`;
}

/** A text as a cell of a Markdown table. */
export const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ');
