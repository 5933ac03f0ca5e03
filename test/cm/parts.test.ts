/**
 * Parts of the connection manager by themselves: targets and their defaults, what a failed connect is
 * reported as, and what a device counts.
 */
import { describe, expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { connectFailure, startupFailure, startupStatus } from '../../src/cm/connect-failure.ts';
import { ConnectionStats } from '../../src/cm/connection-stats.ts';
import type { CmConnection } from '../../src/cm/connection.ts';
import type { CmEvent } from '../../src/cm/events.ts';
import { checkBind, checkTarget, type BindOptions, type TargetOptions } from '../../src/cm/target.ts';
import type { StartupFailure } from '../../src/llp/startup.ts';
import { noCounters } from '../../src/rdmap/counters.ts';

const codeOf = (run: () => unknown): unknown => {
  try {
    return run();
  } catch (error) {
    return error instanceof IwarpError ? `${error.code}: ${error.message.split(' ')[0]}` : error;
  }
};

describe('a target to connect to', () => {
  const check = (options: object, host?: string): unknown =>
    codeOf(() => checkTarget(options as TargetOptions, host));

  it('has what was given and nothing else', () => {
    expect(check({ host: 'a', port: 1 })).toEqual({ host: 'a', port: 1 });
    expect(check({ port: 65_535 }, 'b')).toEqual({ host: 'b', port: 65_535 });
    expect(check({ host: 'a', port: 1 }, 'b')).toEqual({ host: 'a', port: 1 });
    const all = { host: 'a', port: 1, localAddress: '::1', localPort: 0, family: 6 };
    expect(check(all)).toEqual(all);
    expect(check({ ...all, family: 4, localAddress: '10.0.0.1' })).toMatchObject({ family: 4 });
    const none = { localAddress: undefined, localPort: undefined, family: undefined };
    expect(Object.keys(check({ host: 'a', port: 1, ...none }) as object)).toEqual(['host', 'port']);
    expect(Object.keys(check({ host: 'a', port: 1, family: 0 }) as object)).toEqual(['host', 'port']);
  });

  it('is refused with the option that is wrong', () => {
    const wrong = (options: object): unknown => check({ host: 'a', port: 1, ...options });
    for (const host of ['', 5, null, undefined])
      expect(wrong({ host })).toBe('ERR_INVALID_ARGUMENT: options.host');
    for (const port of [0, 65_536, 1.5, '1'])
      expect(wrong({ port })).toBe('ERR_INVALID_ARGUMENT: options.port');
    for (const localPort of [-1, 65_536, null])
      expect(wrong({ localPort })).toBe('ERR_INVALID_ARGUMENT: options.localPort');
    for (const family of [1, 5, '4', null])
      expect(wrong({ family })).toBe('ERR_INVALID_ARGUMENT: options.family');
    for (const localAddress of ['localhost', '', 7, null])
      expect(wrong({ localAddress })).toBe('ERR_INVALID_ARGUMENT: options.localAddress');
  });
});

describe('an address to listen on', () => {
  const check = (options: object): unknown => codeOf(() => checkBind(options as BindOptions));

  it('has defaults for port and backlog, and the rest as given', () => {
    expect(check({})).toEqual({ port: 0, backlog: 511 });
    expect(
      Object.keys(check({ host: undefined, ipv6Only: undefined, reusePort: undefined }) as object),
    ).toEqual([...['port', 'backlog']]);
    const tls = { key: 'k', cert: 'c' };
    const all = { host: '::', port: 5, backlog: 1, ipv6Only: false, reusePort: true, tls };
    expect(check(all)).toEqual(all);
    expect(check({ tls: false })).toEqual({ port: 0, backlog: 511 });
  });

  it('is refused with the option that is wrong', () => {
    for (const [name, values] of [
      ['host', ['', 5, null]],
      ['port', [-1, 65_536]],
      ['backlog', [0, 65_536]],
      ['ipv6Only', [0, 'yes']],
      ['reusePort', [1, null]],
    ] as const)
      for (const value of values)
        expect(check({ [name]: value })).toBe(`ERR_INVALID_ARGUMENT: options.${name}`);
  });
});

describe('a connect that failed', () => {
  const failed = (code: string | undefined): Error =>
    Object.assign(new Error('x'), code === undefined ? {} : { code });

  it("is reported as the kernel's connection manager does, with the system's status", () => {
    const rows: [string | undefined, string][] = [
      ['ECONNREFUSED', 'rejected'],
      ['ECONNRESET', 'rejected'],
      ['ETIMEDOUT', 'unreachable'],
      ['ENOTFOUND', 'address-error'],
      ['EADDRINUSE', 'address-error'],
      ['EHOSTUNREACH', 'connect-error'],
      [undefined, 'connect-error'],
    ];
    for (const [status, type] of rows) {
      const error = failed(status);
      expect(connectFailure(error)).toMatchObject({ type, status, error });
    }
    expect(connectFailure(failed('ECONNREFUSED'))).toMatchObject({ markersAsked: false });
    expect(connectFailure(failed('EPIPE'))).toMatchObject({ reason: 'connect' });
  });

  it('has the status of the error behind ours, or of the first of several attempts', () => {
    const behind = new IwarpError('ERR_CONNECT', 'x', { cause: failed('ETIMEDOUT') });
    expect(connectFailure(behind)).toMatchObject({ type: 'unreachable', status: 'ETIMEDOUT' });
    const several = new AggregateError([failed('ECONNREFUSED'), failed('ETIMEDOUT')]);
    expect(connectFailure(several)).toMatchObject({ type: 'rejected', status: 'ECONNREFUSED' });
    const text = Object.assign(new Error('x'), { cause: 'ETIMEDOUT' });
    expect(connectFailure(text)).toMatchObject({ type: 'connect-error', status: undefined });
  });

  it('after TCP was connected has the status of a call that a system fails alike', () => {
    const rows: [StartupFailure, string][] = [
      ['timeout', 'ETIMEDOUT'],
      ['reset', 'ECONNRESET'],
      ['truncated', 'ECONNRESET'],
      ['displaced', 'ECONNRESET'],
      ['bad-key', 'EPROTO'],
      ['unusable-revision', 'EPROTO'],
    ];
    expect(rows.map(([reason]) => startupStatus(reason))).toEqual(rows.map(([, status]) => status));
    const types = { ETIMEDOUT: 'unreachable', ECONNRESET: 'rejected', EPROTO: 'connect-error' } as const;
    for (const [reason, status] of rows) {
      const error = expect.objectContaining({ systemCode: status });
      expect(startupFailure(reason, 'active')).toMatchObject({
        type: types[status as keyof typeof types],
        ...{ reason, status, error },
      });
      // The side that is connected to has not been rejected, and the kernel has no event for it.
      expect(startupFailure(reason, 'passive')).toEqual({ type: 'connect-error', reason, status, error });
    }
  });
});

describe('what a device counts', () => {
  const connection = (fields: object = {}): CmConnection =>
    ({
      role: 'active',
      negotiated: {},
      counters: () => ({ ...noCounters(), fpdusIn: 3 }),
      ...fields,
    }) as never;
  const counted = (events: [object, CmConnection?][]): object => {
    const stats = new ConnectionStats();
    for (const [event, of = connection()] of events) stats.note(of, event as CmEvent);
    const { established, rejected, refused, failed: failures, closed, broken } = stats.counters();
    return { established, rejected, refused, failed: failures, closed, broken };
  };
  const NONE = { established: 0, rejected: 0, refused: 0, failed: 0, closed: 0, broken: 0 };

  it('is each event of a connection, once, by its kind', () => {
    expect(counted([])).toEqual(NONE);
    expect(counted([[{ type: 'established' }], [{ type: 'terminate' }]])).toEqual({
      ...NONE,
      established: 1,
    });
    expect(counted([[{ type: 'rejected' }]])).toEqual({ ...NONE, rejected: 1 });
    for (const event of [
      { type: 'rejected', error: new Error('x') },
      { type: 'unreachable' },
      { type: 'address-error' },
      { type: 'connect-error' },
    ])
      expect(counted([[event]])).toEqual({ ...NONE, failed: 1 });
  });

  it('is an end by its cause, and of one that was never established only a rejection of our own', () => {
    const end = (cause: string, of: object = {}): object =>
      counted([[{ type: 'disconnected', cause }, connection(of)]]);
    expect(end('graceful')).toEqual({ ...NONE, closed: 1 });
    for (const cause of ['reset', 'terminated', 'lost']) expect(end(cause)).toEqual({ ...NONE, broken: 1 });
    const never = { negotiated: undefined };
    expect(end('rejected', { ...never, role: 'passive' })).toEqual({ ...NONE, rejected: 1 });
    expect(end('rejected', { ...never, role: 'active' })).toEqual(NONE);
    expect(end('graceful', { ...never, role: 'passive' })).toEqual(NONE);
  });

  it('goes on counting what ended connections have counted, each once', () => {
    const stats = new ConnectionStats();
    const seen: unknown[] = [];
    stats.observer = (of, { type }) => void seen.push([of === one, type]);
    const [one, two, unknown] = [connection(), connection(), connection()];
    stats.begin(one);
    stats.begin(two);
    expect(stats.counters().fpdusIn).toBe(6);
    const end = { type: 'disconnected', cause: 'graceful' } as CmEvent;
    stats.note(one, end);
    stats.note(one, end);
    stats.note(unknown, end);
    expect([stats.counters().fpdusIn, stats.live.size, stats.counters().closed]).toEqual([6, 1, 3]);
    stats.refuse();
    expect(stats.counters().refused).toBe(1);
    expect(seen).toEqual([
      [true, 'disconnected'],
      [true, 'disconnected'],
      [false, 'disconnected'],
    ]);
  });
});
