// `iwarp conformance run --wire trp`: cases of iWARP over UDP against our own stack, or a target of yours.

import { parseArgs } from 'node:util';
import { UsageError } from '../command-line.ts';
import { TRP_CASES, type TrpCase } from './cases.ts';
import { Failure, Probe, type Profile, type Role, type Target } from './probe.ts';

export const TRP_USAGE = `  run --wire trp [NAME…]   cases of iWARP over UDP
    --target HOST:PORT     a target that listens there, not our own stack; it echoes each Send, and its
                           private data names a region: STag u32, offset u64, length u32
    --peer NAME            what the result calls the target; default: its address
    --dialer COMMAND       makes the target connect: run with the probe's port as its last argument
    --wire-profile NAME    fixed or urdma (both)
    --role NAME            role of the target: passive or active (both)
    --list                 names and clauses
`;

interface TrpResult {
  readonly name: string;
  readonly clause: string;
  /** Undefined if the case is passed. */
  readonly failure: string | undefined;
}

/** Cases that run at a time: most of them wait. */
const AT_ONCE = 12;

/** Run cases against a target; `done` sees each result. */
export async function runTrpCases(
  cases: readonly TrpCase[],
  profile: Profile,
  roles: readonly Role[],
  target: Target,
  done: (result: TrpResult) => void,
): Promise<TrpResult[]> {
  const work = cases
    .filter(({ profiles }) => profiles.includes(profile))
    .flatMap((one) => one.roles.filter((role) => roles.includes(role)).map((role) => ({ one, role })));
  const results: TrpResult[] = [];
  const next = async (): Promise<void> => {
    for (let job = work.shift(); job !== undefined; job = work.shift()) {
      const { one, role } = job;
      const probe = new Probe(target, profile, role);
      const name = `trp.${one.name}.${role}.${profile}`;
      const failure = await one.run(probe).then(
        () => undefined,
        (error: unknown) => {
          if (error instanceof Failure) return error.message;
          throw error;
        },
      );
      probe.end();
      const result = { name, clause: one.clause, failure };
      results.push(result);
      done(result);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  return results;
}

/** The command; the result is the exit status. */
export async function runTrpCommand(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      wire: { type: 'string' },
      target: { type: 'string' },
      dialer: { type: 'string' },
      peer: { type: 'string' },
      'wire-profile': { type: 'string' },
      role: { type: 'string' },
      list: { type: 'boolean', default: false },
    },
  });
  const profiles = oneOf('--wire-profile', values['wire-profile'], ['fixed', 'urdma'] as const);
  const roles = oneOf('--role', values.role, ['passive', 'active'] as const);
  const cases = TRP_CASES.filter(
    ({ name }) => positionals.length === 0 || positionals.some((word) => `trp.${name}`.startsWith(word)),
  );
  if (cases.length === 0) throw new UsageError(`no case begins with ${positionals.join(' or ')}`);
  if (values.list) {
    for (const { name, clause, roles: all, profiles: both } of cases)
      process.stdout.write(`trp.${name} [${clause}] ${all.join(', ')}; ${both.join(', ')}\n`);
    return 0;
  }
  let [passed, failed] = [0, 0];
  for (const profile of profiles) {
    const target = await openTarget(profile, values.target, values.dialer, roles);
    await runTrpCases(cases, profile, roles, target, ({ name, clause, failure }) => {
      if (failure === undefined) passed++;
      else failed++;
      process.stdout.write(
        failure === undefined ? `ok   ${name} [${clause}]\n` : `FAIL ${name} [${clause}]: ${failure}\n`,
      );
    });
    target.close();
  }
  const peer = values.peer ?? values.target ?? 'our own stack, in this process';
  process.stdout.write(`iWARP over UDP against ${peer}: ${passed} passed, ${failed} failed\n`);
  return failed === 0 ? 0 : 1;
}

function oneOf<T extends string>(name: string, value: string | undefined, all: readonly T[]): readonly T[] {
  if (value === undefined) return all;
  const found = all.find((one) => one === value);
  if (found === undefined) throw new UsageError(`${name} takes ${all.join(' or ')}, got ${value}`);
  return [found];
}

/** Our stack comes from the package `iwarp`, which a tester of another stack need not have. */
async function ownStack(profile: Profile): Promise<Target & { close(): void }> {
  try {
    const { openSelf } = await import('./self.ts');
    return await openSelf(profile);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ERR_MODULE_NOT_FOUND' && code !== 'ERR_PACKAGE_PATH_NOT_EXPORTED') throw error;
    throw new UsageError(
      'without --target it tries the package iwarp, which is not installed: npm install iwarp, or ' +
        'name a target',
      { cause: error },
    );
  }
}

async function openTarget(
  profile: Profile,
  where: string | undefined,
  dialer: string | undefined,
  roles: readonly Role[],
): Promise<Target & { close(): void }> {
  if (where === undefined && dialer === undefined) return await ownStack(profile);
  const match = /^(?:\[(.+)\]|([^:]+)):(\d+)$/.exec(where ?? '');
  if (match === null) throw new UsageError('--target takes HOST:PORT');
  if (dialer === undefined && roles.includes('active'))
    throw new UsageError('a target that connects needs --dialer; --role passive leaves those cases out');
  const { spawn } = await import('node:child_process');
  return {
    host: match[1] ?? match[2]!,
    port: Number(match[3]),
    connect: (port) => void spawn(`${dialer} ${port}`, { shell: true, stdio: 'ignore' }).unref(),
    close: () => undefined,
  };
}
