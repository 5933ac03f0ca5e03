/** The tables of start-up that every lower layer shares: they list what the types name, and no more. */
import { expect, it } from 'vitest';
import { RTR_KINDS, STARTUP_FAILURES, type RtrKind, type StartupFailure } from '../../src/llp/startup.ts';
import { resolvePolicy } from '../../src/mpa/policy.ts';

/** The compiler asks for each reason here, and for no other. */
const REASONS: Readonly<Record<StartupFailure, true>> = {
  'bad-key': true,
  'tls-record': true,
  'private-data-too-long': true,
  'unusable-revision': true,
  'enhanced-data-missing': true,
  truncated: true,
  reset: true,
  timeout: true,
  'markers-refused': true,
  'extra-octets': true,
  displaced: true,
};
const KINDS: Readonly<Record<RtrKind, true>> = { write: true, read: true, send: true };

it('the failures are those of the type, each once', () => {
  expect([...STARTUP_FAILURES].sort()).toEqual(Object.keys(REASONS).sort());
});

it('the kinds of RTR message are those of RFC 6581 9.2, which a policy takes and no other', () => {
  expect([...RTR_KINDS].sort()).toEqual(Object.keys(KINDS).sort());
  for (const kind of RTR_KINDS) expect(resolvePolicy({ rtrOffered: [kind] }).rtrOffered).toEqual([kind]);
  expect(() => resolvePolicy({ rtrOffered: ['' as RtrKind] })).toThrow('rtrOffered');
});
