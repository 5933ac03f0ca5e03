/** The counters of processes in the text format of Prometheus, version 0.0.4. */
import type { ProcessSnapshot } from '../../src/observe/snapshot.ts';

/** A family of samples: its name, its help, its type, and the samples with their labels. */
interface Family {
  readonly help: string;
  readonly type: 'counter' | 'gauge';
  readonly samples: { readonly labels: string; readonly value: number }[];
}

/** A label's value, with the three characters escaped that the format names. */
function quoted(value: string): string {
  const text = value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"');
  return `"${text}"`;
}

const words = (name: string): string => name.replaceAll('_', ' ');

/** One text for all devices; `countersOf` names the counters of a device as `iwarp stat` does. */
export function prometheusText(
  processes: readonly ProcessSnapshot[],
  countersOf: (device: ProcessSnapshot['devices'][number]) => Readonly<Record<string, number>>,
): string {
  const families = new Map<string, Family>();
  const add = (name: string, type: Family['type'], labels: string, value: number): void => {
    const family = families.get(name) ?? { help: words(name), type, samples: [] };
    families.set(name, family);
    family.samples.push({ labels, value });
  };
  for (const { pid, comm, devices } of processes) {
    for (const [index, device] of devices.entries()) {
      const name = quoted(device.attributes.name);
      const labels = `{device=${name},index="${index}",pid="${pid}",comm=${quoted(comm)}}`;
      for (const [counter, value] of Object.entries(countersOf(device)))
        add(`iwarp_${counter}_total`, 'counter', labels, value);
      for (const [object, count] of Object.entries(device.attributes.inUse))
        add(`iwarp_objects_${object.toLowerCase()}`, 'gauge', labels, Number(count));
      add('iwarp_connections', 'gauge', labels, device.connections.length);
      add('iwarp_listeners', 'gauge', labels, device.listeners.length);
    }
  }
  const lines = [...families].flatMap(([name, { help, type, samples }]) => [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${type}`,
    ...samples.map(({ labels, value }) => `${name}${labels} ${value}`),
  ]);
  return lines.map((line) => `${line}\n`).join('');
}
