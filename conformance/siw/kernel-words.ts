/**
 * The lines of a kernel's complaint that a maintainer looks for: what, where, on whose behalf, and the
 * functions under way.
 */
export function kernelWords(log: string): string {
  const plain = log.split('\n').map((line) =>
    line
      .replace(/^\[\s*\d+\.\d+\]\s?/, '')
      .replace(/ at \/\S*\/(?=\w+\.c:)/, ' at ')
      .trimEnd(),
  );
  const end = plain.findIndex((line) => line.includes('end trace'));
  const wanted = plain
    .slice(0, end < 0 ? undefined : end)
    .filter(
      (line) =>
        /^(kernel BUG|BUG:|WARNING:|refcount_t:|Oops:|RIP:|CPU:|Workqueue:)/.test(line) ||
        /^ (?!\?)[\w.]+\+0x/.test(line),
    );
  return wanted.slice(0, 14).join('\n');
}
