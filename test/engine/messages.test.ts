// Errors between two threads: what a program reads of them is the same on the other side.
import { expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { packError, unpackError } from '../../src/engine/channel/messages.ts';

/** As the message port would bring it. */
const over = (error: Error): Error => unpackError(structuredClone(packError(error)));

it('an error keeps its class, its code, what the system said, and its cause', () => {
  const refused = (address: string): Error =>
    Object.assign(new Error(`connect ECONNREFUSED ${address}:1`), {
      errno: -111,
      code: 'ECONNREFUSED',
      syscall: 'connect',
      address,
      port: 1,
    });
  const unknown = Object.assign(new Error('getaddrinfo ENOTFOUND x'), {
    errno: -3008,
    code: 'ENOTFOUND',
    syscall: 'getaddrinfo',
    hostname: 'x',
  });
  // Node's, where a name has several addresses and none of them answers.
  const several = Object.assign(new AggregateError([refused('::1'), refused('127.0.0.1')]), {
    code: 'ECONNREFUSED',
  });
  for (const cause of [refused('127.0.0.1'), unknown, several]) {
    const error = new IwarpError('ERR_CONNECT', 'cannot connect to x:1', { cause });
    const copy = over(error);
    expect(copy).toBeInstanceOf(IwarpError);
    expect(copy).toEqual(error);
    expect({ ...(copy.cause as Error) }).toEqual({ ...cause });
    expect(copy.cause).toBeInstanceOf(cause.constructor);
  }
  expect((over(several) as AggregateError).errors).toEqual(several.errors);
  expect(Object.keys(over(new Error('plain')))).toEqual([]);
});
