// The defaults of a policy and of a device are written where each option is documented.
import { expect, it } from 'vitest';
import { DEFAULT_POLICY } from '../../src/mpa/policy.ts';
import { DEFAULT_LIMITS } from '../../src/verbs/device.ts';
import { textOf } from '../support/modules.ts';

/** The last "Default …." of each member of an interface. */
function documented(file: string, name: string): Record<string, string | undefined> {
  const [, body] = textOf(file).split(`export interface ${name} {`);
  const members = body!.split('\n}\n')[0]!.matchAll(/\/\*\*((?:(?!\*\/)[^])*)\*\/\n\s+readonly (\w+)[?:]/g);
  return Object.fromEntries(
    [...members].map(([, comment, member]) => {
      const text = comment!.replaceAll(/\s*\n\s*\*?\s*/g, ' ').replaceAll('`', '');
      const said = [...text.matchAll(/\bDefault ([^.]+?)(?:, the [^.]*)?\./g)].at(-1)?.[1];
      return [member!, said];
    }),
  );
}

function words(value: unknown): string {
  if (value === 2 ** 32 - 1) return '2^32 - 1';
  if (typeof value === 'number') return value.toLocaleString('en-US');
  return Array.isArray(value) ? value.join(', ') : String(value);
}

it.each([
  ['src/mpa/policy.ts', 'ConnectionPolicy', DEFAULT_POLICY],
  ['src/verbs/device.ts', 'DeviceLimits', DEFAULT_LIMITS],
] as const)('%s: %s says the default of each option', (file, name, defaults) => {
  const expected = Object.entries(defaults).map(([option, value]) => [option, words(value)]);
  const found = documented(file, name);
  expect(Object.fromEntries(expected.map(([option]) => [option, found[option!]]))).toEqual(
    Object.fromEntries(expected),
  );
});
