/** The text of `iwarp stat --prometheus`, by the grammar of the format. */
import { expect, it } from 'vitest';
import { prometheusText } from '../../cli/support/prometheus.ts';
import type { ProcessSnapshot } from '../../src/observe/snapshot.ts';

it('has HELP and TYPE once for each family, before its samples, and escapes labels', () => {
  const device = {
    attributes: { name: 'iwarp"0\\', inUse: { qp: 3, mr: 2 } },
    connections: [1, 2],
    listeners: [1],
  };
  const processes = [
    { pid: 7, comm: 'a\nb', devices: [device, device] },
  ] as unknown as readonly ProcessSnapshot[];
  const text = prometheusText(processes, () => ({ in_octets: 5 }));
  expect(text.endsWith('\n')).toBe(true);
  const seen = new Set<string>();
  for (const line of text.trimEnd().split('\n')) {
    const [, kind, name] = /^# (HELP|TYPE) ([a-z_]+) .+$/.exec(line) ?? [];
    if (kind !== undefined) {
      expect(seen.has(`${kind} ${name}`)).toBe(false);
      seen.add(`${kind} ${name}`);
      continue;
    }
    const sample = /^([a-z_]+)\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\} \d+$/.exec(line);
    expect(sample, line).not.toBeNull();
    expect(seen.has(`TYPE ${sample![1]}`)).toBe(true);
  }
  expect(text).toContain('iwarp_in_octets_total{device="iwarp\\"0\\\\",index="1",pid="7",comm="a\\nb"} 5\n');
  expect(text).toContain('iwarp_objects_qp{');
  expect(text.match(/^iwarp_connections\{/gm)).toHaveLength(2);
});
