/** How a tool with a stock counterpart begins and ends: options, usage, device, exit status. */
import { IwarpError } from '../../src/base/errors.ts';
import type { ConnectionPolicy } from '../../src/mpa/policy.ts';
import { COMMON_USAGE, parseOptions, UsageError, type LongOption, type ParsedOptions } from './options.ts';
import { POLICY_USAGE } from './policy-flags.ts';
import { Tool, type ToolIo } from './tool.ts';

/** A tool before it runs; `Settings` are its options, read and checked. */
interface ToolEntry<Settings> {
  readonly name: string;
  readonly usage: string;
  /** What `--help` says behind the usage and the options of all tools. */
  readonly moreUsage?: string;
  /** Short options, as getopt has them, and long ones beside those of all tools. */
  readonly shorts: string;
  readonly longs?: Readonly<Record<string, LongOption>>;
  /** The policy that the tool needs. */
  readonly policy?: Partial<ConnectionPolicy>;
  /** Exit status of wrong options. Default 1. */
  readonly wrongOptions?: number;
  /** @throws UsageError, IwarpError */
  readonly settings: (options: ParsedOptions) => Settings;
  /** Returns the exit status. */
  readonly run: (tool: Tool, settings: Settings) => Promise<number>;
  /** Reports a failed run, and returns the exit status. Default: a line with the name of the tool, and 1. */
  readonly failed?: (tool: Tool, settings: Settings, error: IwarpError) => number;
  /** The last words, after the device is closed; they get the exit status as a signed number. */
  readonly farewell?: (tool: Tool, status: number) => void;
}

/** A value that is refused in these words alone, without the usage. */
export class ValueError extends UsageError {}

/** Runs a tool; the result is the exit status. */
export async function runTool<Settings>(
  entry: ToolEntry<Settings>,
  args: readonly string[],
  io: ToolIo,
): Promise<number> {
  const { name, usage, moreUsage = '', shorts, longs = { help: {} } } = entry;
  let settings: Settings;
  let tool: Tool;
  try {
    const options = parseOptions(args, shorts, longs);
    if (options.flags.has(longs['help']?.short ?? 'help')) {
      io.out(`${usage}${COMMON_USAGE}${moreUsage}${POLICY_USAGE}`);
      return 0;
    }
    settings = entry.settings(options);
    tool = new Tool(io, options, entry.policy);
  } catch (error) {
    if (!(error instanceof UsageError) && !(error instanceof IwarpError)) throw error;
    if (error instanceof ValueError) io.err(`${error.message}\n`);
    else {
      io.err(`${name}: ${error.message}\n`);
      io.out(usage);
    }
    return entry.wrongOptions ?? 1;
  }
  let status: number;
  try {
    status = await entry.run(tool, settings);
  } catch (error) {
    if (!(error instanceof IwarpError)) {
      await tool.close();
      throw error;
    }
    if (entry.failed !== undefined) status = entry.failed(tool, settings, error);
    else {
      tool.complain(`${name}: ${error.message}`);
      status = 1;
    }
  }
  await tool.close();
  entry.farewell?.(tool, status);
  return status & 0xff;
}
