/**
 * `iwarp write_bw`, `read_bw`, `send_bw`, `atomic_bw`, `write_lat`, `read_lat`, `send_lat`, `atomic_lat`:
 * perftest over rdma_cm (`-R`), client and server, opposite the stock programs or each other. Flags in
 * perftest/flags.ts and settings.ts, messages in perftest/wire.ts.
 */
import { IwarpError } from '../src/base/errors.ts';
import { PerftestRun, describeFailure } from './perftest/run.ts';
import { LINE } from './perftest/report.ts';
import { LONG_OPTIONS, SHORT_OPTIONS } from './perftest/flags.ts';
import type { Kind, Program, Verb } from './perftest/program.ts';
import { readSettings, type Settings } from './perftest/settings.ts';
import { usage } from './perftest/usage.ts';
import { OUR_VERSION } from './perftest/wire.ts';
import { COMMON_USAGE, parseOptions, UsageError } from './support/options.ts';
import { OutputFile } from './support/output-file.ts';
import { POLICY_USAGE } from './support/policy-flags.ts';
import { withFile } from './support/system-errors.ts';
import { PROCESS_IO, Tool, type ToolIo } from './support/tool.ts';

type Run = (args: string[], io?: ToolIo) => Promise<number>;

/** The entry point of one program. */
export function perftest(verb: Verb, kind: Kind): Run {
  const program: Program = { name: `${verb}_${kind}`, verb, kind };
  return (args, io = PROCESS_IO) => run(program, args, io);
}

async function run(program: Program, args: string[], io: ToolIo): Promise<number> {
  let settings: Settings;
  let tool: Tool;
  let json: OutputFile | null = null;
  try {
    const options = parse(program, args, io);
    if (options.flags.has('h')) {
      io.out(`${usage(program, `${COMMON_USAGE}${POLICY_USAGE}`)}`);
      return 0; // the stock programs end with 1: a script would take help for a failure
    }
    if (options.flags.has('V')) {
      io.out(`Version: ${OUR_VERSION}\n`);
      return 0;
    }
    settings = readSettings(program, options);
    const { jsonFile } = settings;
    if (jsonFile !== null) json = withFile(jsonFile, () => new OutputFile(jsonFile));
    // The server of write_lat, and that of a test the other way, send first, which RFC 5044 (MPA-028) lets no
    // responder do.
    const relaxed = options.flags.has('reversed') || (program.verb === 'write' && program.kind === 'lat');
    tool = new Tool(io, options, relaxed ? { responder: 'relaxed' } : {});
  } catch (error) {
    json?.discard();
    if (!(error instanceof UsageError) && !(error instanceof IwarpError)) throw error;
    // Stock words stand alone; what only these programs know has their name.
    io.err(
      `${error instanceof UsageError ? '' : `${program.name}:`} ${error.message}\n` +
        ' Parser function exited with Error\n',
    );
    return 1;
  }
  if (settings.notes.length > 0) io.out(`${[LINE, ...settings.notes].join('\n')}\n`);
  try {
    return await new PerftestRun(tool, settings, json).run();
  } catch (error) {
    if (!(error instanceof IwarpError)) throw error;
    tool.complain(describeFailure(error));
    return 1;
  } finally {
    json?.discard();
    await tool.close();
  }
}

/** A word that is no option at all is answered with the usage, as the stock programs do. */
function parse(program: Program, args: string[], io: ToolIo): ReturnType<typeof parseOptions> {
  try {
    return parseOptions(args, SHORT_OPTIONS, LONG_OPTIONS);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    io.err(`${program.name}: ${error.message}\n Invalid Command or flag.\n`);
    io.out(usage(program, ''));
    throw new UsageError('Please check command line and run again.\n');
  }
}
