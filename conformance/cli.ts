// `iwarp conformance`: list the cases, run them against a peer, show what they cover, print and check the
// golden vectors. README.md in this folder explains the commands and how to test another peer.

import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { cases } from './cases/index.ts';
import { Refusal, UsageError } from './command-line.ts';
import { coverageText, listText } from './report/lists.ts';
import { runCommand } from './run-command.ts';
import { selectCases } from './runner/select.ts';
import { runTrpCommand, TRP_USAGE } from './trp/run.ts';
import { checkVectors, printVectors, vectorNames } from './vectors-command.ts';

const USAGE = `Usage: iwarp conformance <command>
  list [--by case|requirement|section] [prefix...]
  run [prefix...] [options]
      --profile self|rping|command   kind of peer (self: our own stack in this process, or --control)
      --target HOST:PORT             the peer listens there; the probe is the initiator
      --listen [HOST:]PORT           the peer connects to the probe, which is the responder
      --control HOST:PORT            the peer speaks the tester protocol there (profile self)
      --role initiator|responder|both   the probe's part; both with profile self
      --peer NAME                    what the reports call the peer; default: its address or command
      --start COMMAND                run for each case; {host} and {port} are filled in (rping, command)
      --size N                       the -S of the peer's rping (23 to 65535; 64)
      --all                          include the slow cases
      --strict                       accept only the first of several lawful outcomes
      --seed N  --repeat N           choose the bytes; run everything again with the next seeds
      --slow N                       stretch all time limits, for peers on emulators
      --settle MS                    wait between a start-up frame and the first FPDU; send an owed RTR
                                     message before dropping a connection
      --gap MS                       wait between cases
      --exclude PREFIX               leave out these cases; may be repeated
      --retries N                    run a case with an unexpected result again, for peers on busy
                                     machines (0)
      --canary                       check after each case that the peer still accepts a lawful connection
      --revive COMMAND               command to run if it does not (implies --canary)
      --quirk NAME                   ignore a deviation that affects everything: swapped-terminate
      --waivers FILE                 known deviations with their reasons
      --report FORMAT[:FILE]         text, tap, junit, json, html or markdown; may be repeated
      --captures DIR                 a pcap file for every case that does not pass
      --bail                         stop at the first unexpected result
      --anyway                       run the cases even if the first lawful start-up fails, and go on if
                                     no connection can be made
${TRP_USAGE}  coverage [--missing]
  vectors [--print|--check] [name...]
Exit status: 0 all as expected, 1 something unexpected, 2 wrong usage or nothing that could be run,
130 or 143 interrupted (the reports are written).
`;

/** Run the command line; settles with the exit status. */
export async function run(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args;
  if (rest.includes('--help') || rest.includes('-h')) {
    process.stdout.write(USAGE);
    return 0;
  }
  try {
    switch (command) {
      case 'list':
        return list(rest);
      case 'run':
        return isOverUdp(rest) ? await runTrpCommand(rest) : await runCommand(rest);
      case 'coverage':
        return coverage(rest);
      case 'vectors':
        return vectors(rest);
      case undefined:
      case 'help':
      case '--help':
      case '-h':
        process.stdout.write(USAGE);
        return command === undefined ? 2 : 0;
      default:
        throw new UsageError(`no command ${JSON.stringify(command)}`);
    }
  } catch (error) {
    if (error instanceof Refusal) {
      process.stderr.write(`conformance: ${error.message}\n`);
      return error.status;
    }
    if (!(error instanceof UsageError) && !isParseError(error)) throw error;
    process.stderr.write(`conformance: ${(error as Error).message}\n${USAGE}`);
    return 2;
  }
}

/** `--wire trp`, which has its own runner. */
function isOverUdp(args: readonly string[]): boolean {
  return args.includes('--wire=trp') || args[args.indexOf('--wire') + 1] === 'trp';
}

/** Whether an error is parseArgs' (node:util) report of an argument that it does not understand. */
function isParseError(error: unknown): boolean {
  return (
    error instanceof TypeError && String((error as NodeJS.ErrnoException).code).startsWith('ERR_PARSE_ARGS')
  );
}

function list(args: readonly string[]): number {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: { by: { type: 'string', default: 'case' } },
  });
  const by = values.by;
  if (by !== 'case' && by !== 'requirement' && by !== 'section')
    throw new UsageError(`--by ${by}: case, requirement or section`);
  for (const word of positionals)
    if (selectCases([word], true).length === 0) throw new UsageError(`no case begins with ${word}`);
  process.stdout.write(listText(selectCases(positionals, true), by));
  return 0;
}

function coverage(args: readonly string[]): number {
  const { values } = parseArgs({
    args: [...args],
    options: { missing: { type: 'boolean', default: false } },
  });
  const { text, complete } = coverageText(cases, values.missing);
  process.stdout.write(text);
  return complete ? 0 : 1;
}

function vectors(args: readonly string[]): number {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: { print: { type: 'boolean' }, check: { type: 'boolean' } },
  });
  const known = vectorNames();
  for (const prefix of positionals)
    if (!known.some((name) => name.startsWith(prefix)))
      throw new UsageError(`no vector begins with ${prefix}`);
  if (values.print === true) process.stdout.write(printVectors(positionals));
  const { text, good } = checkVectors(positionals);
  if (values.check === true || values.print !== true) process.stdout.write(text);
  return good ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await run(process.argv.slice(2));
