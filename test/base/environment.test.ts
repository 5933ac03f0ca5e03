import { afterEach, describe, expect, it, vi } from 'vitest';
import { defaultEngine, openRnic } from '../../src/api/environment.ts';
import { environmentVariable } from '../../src/base/environment.ts';
import { environmentCrc32c } from '../../src/crc32c/engine.ts';
import { resolveBusyPoll } from '../../src/transport/busy-poll.ts';
import { resolveReceive } from '../../src/transport/tcp.ts';
import { sourceFiles, textOf } from '../support/modules.ts';

/** What Deno gives without --allow-env: every access throws. */
function refuse(): never {
  throw new Error('NotCapable: requires env access');
}
const REFUSED = new Proxy(
  {},
  { get: refuse, has: refuse, ownKeys: refuse, getOwnPropertyDescriptor: refuse },
);

afterEach(() => vi.unstubAllGlobals());

describe('environmentVariable', () => {
  it('returns the value, and undefined where there is none', () => {
    vi.stubEnv('IWARP_TRIAL', 'yes');
    expect(environmentVariable('IWARP_TRIAL')).toBe('yes');
    vi.unstubAllEnvs();
    expect(environmentVariable('IWARP_TRIAL')).toBeUndefined();
  });

  it('counts a refused environment as empty: every setting has its default', () => {
    const real = process;
    const without = Object.create(real, { env: { value: REFUSED } }) as typeof process;
    vi.stubGlobal('process', without);
    expect(() => process.env['PATH']).toThrow(/NotCapable/);
    expect(defaultEngine()).toBe('thread');
    expect(environmentCrc32c()).toBe('auto');
    expect(['onread', 'data']).toContain(resolveReceive());
    expect(resolveBusyPoll(undefined)).toBeGreaterThanOrEqual(0);
    expect(openRnic().device.state).toBe('open');
  });

  it('is the only way to the environment in the library', () => {
    const others = sourceFiles('src').filter((file) => /process\??\.env\b/.test(textOf(file)));
    expect(others).toEqual(['src/base/environment.ts']);
  });
});
