/**
 * The options that say what of a capture or of a live stream is shown, and how: the same in `iwarp dissect`
 * and `iwarp proxy`.
 */
import { createFilter, type EventFilter } from '../../src/inspect/render/filter.ts';
import type { EventStyle } from '../../src/inspect/render/views.ts';

interface Flag {
  readonly type: 'boolean';
  readonly short?: string;
  readonly default: false;
}

interface Texts {
  readonly type: 'string';
  readonly multiple: true;
  readonly default: string[];
}

/** For `parseArgs` of node:util. */
export const VIEW_OPTIONS: {
  readonly json: Flag;
  readonly verbose: Flag;
  readonly bytes: Flag;
  readonly octets: Flag;
  readonly summary: Flag;
  readonly errors: Flag;
  readonly help: Flag;
  readonly connection: Texts;
  readonly opcode: Texts;
  readonly stag: Texts;
} = {
  json: { type: 'boolean', default: false },
  verbose: { type: 'boolean', short: 'V', default: false },
  bytes: { type: 'boolean', short: 'x', default: false },
  // The former name of --bytes.
  octets: { type: 'boolean', default: false },
  summary: { type: 'boolean', default: false },
  errors: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false },
  connection: { type: 'string', multiple: true, default: [] },
  opcode: { type: 'string', multiple: true, default: [] },
  stag: { type: 'string', multiple: true, default: [] },
};

/** The values that `parseArgs` gives for the options of style and filter. */
interface ViewValues {
  readonly json: boolean;
  readonly verbose: boolean;
  readonly bytes: boolean;
  readonly octets: boolean;
  readonly errors: boolean;
  readonly connection: readonly string[];
  readonly opcode: readonly string[];
  readonly stag: readonly string[];
}

/** How events are shown: the option that shows most wins. */
export function styleOf(values: ViewValues): EventStyle {
  if (values.json) return 'json';
  if (values.bytes || values.octets) return 'octets';
  return values.verbose ? 'tree' : 'line';
}

/** The filter of the events to show. Throws ERR_INVALID_ARGUMENT for a name that means nothing. */
export function filterOf(values: ViewValues): EventFilter {
  return createFilter({
    connections: values.connection,
    opcodes: values.opcode,
    stags: values.stag,
    errorsOnly: values.errors,
  });
}
