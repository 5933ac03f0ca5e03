/** The end of a stream that the peer's TCP has thrown away is known by what that TCP has counted. */
import { describe, expect, it } from 'vitest';
import { lostTailFault, resetsAtClose } from './lost-tail.ts';

const NETSTAT = `TcpExt: ListenDrops TCPAbortOnData TCPAbortOnClose TCPAbortOnMemory
TcpExt: 1 20 300 4000
IpExt: InNoRoutes TCPAbortOnData
IpExt: 7 8
`;
const SAID =
  'our client: status 1: rstream: the peer ended the connection with 2048 bytes to come\n; stock server: ok';

describe('what a kernel has counted', () => {
  it('is read by its name, wherever it stands', () => {
    expect(resetsAtClose(NETSTAT)).toBe(20);
    expect(resetsAtClose('TcpExt: TCPAbortOnClose TCPAbortOnData\nTcpExt: 5 6\n')).toBe(6);
  });

  it('is 0 of a kernel that does not count, or of none', () => {
    expect(resetsAtClose('TcpExt: ListenDrops\nTcpExt: 9\n')).toBe(0);
    expect(resetsAtClose('')).toBe(0);
  });
});

describe('the fault', () => {
  it('is proved by missing octets and a reset together', () => {
    expect(lostTailFault(SAID, 1)).toMatch(/^the last 2048 octets did not come, .* reset 1 connection at /);
    expect(lostTailFault(SAID, 2)).toContain('reset 2 connections at');
  });

  it.each([
    ['no reset', SAID, 0],
    ['fewer resets than before, in another guest', SAID, -3],
    ['an end of another kind', 'our client: status 1: rstream: octet 7 is wrong', 1],
    ['octets that were written to nowhere', 'the connection was reset', 1],
  ])('is not proved by %s', (_what, said, resets) => {
    expect(lostTailFault(said, resets)).toBeNull();
  });
});
