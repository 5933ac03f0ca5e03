/** Files that the benchmark has written. */
import { readFileSync } from 'node:fs';
import { withFile } from '../cli/support/system-errors.ts';

/** Reads a file that this program has written. */
export function readJson<T extends { readonly schema: string }>(
  path: string,
  schema: T['schema'],
  what: string,
): T {
  const text = withFile(path, () => readFileSync(path, 'utf8'));
  let value: Partial<T> | null = null;
  try {
    value = JSON.parse(text) as Partial<T> | null;
  } catch {
    // Then it holds nothing of ours either.
  }
  if (value?.schema !== schema) throw new Error(`${path} holds no ${what} of this program`);
  return value as T;
}
