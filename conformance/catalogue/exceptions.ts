// Requirements that have neither a test nor a conformance case, and why none can exist or none would say
// anything. An entry whose id a test or a case proves after all is stale: test/requirements.test.ts then
// fails.

const IPSEC =
  'IPsec and its key exchange live in the operating system below TCP; a program on sockets can neither ' +
  'provide nor see it.';
const ULP_POLICY =
  'A rule for the program that uses the stack: which memory it offers to which peer, and for how long.';
const FREEDOM =
  'A freedom of the implementation: taking it and not taking it are both right, so no outcome could fail.';
const SINGLE_USER =
  'The stack is a library inside one process of one user: no privileged resource manager stands ' +
  'between several users.';

/** Requirement id to the reason why nothing tests it. */
export const exceptions: Readonly<Record<string, string>> = {
  'MPA-009':
    'A rule for the program above: it sets the time limits of its own messages, and MPA never learns ' +
    'of them.',
  'MPA-044':
    'Only the program above knows whether more streaming-mode data is expected; MPA sees just the switch.',
  'MPA-046':
    'Retransmission and order are done by the TCP of the operating system, before and after the switch ' +
    'alike.',
  'MPA-053':
    'Advice to the administrator about the path; the strength of integrity checks on a path is not visible.',
  'MPA-075': 'Above sockets there are no TCP segments that could be dropped unacknowledged.',
  'MPA-089': FREEDOM,
  'MPA-093': 'Sockets deliver octets in order, so a ULPDU that arrives out of order never reaches MPA.',
  'MPA-105': FREEDOM,
  'MPA-113': IPSEC,
  'MPA-114': IPSEC,

  'DDP-031': FREEDOM,
  'DDP-038': 'Says what a completion at the source does not promise; nothing observable follows from it.',
  'DDP-060': 'After its FIN a TCP peer cannot send data in that direction, so the situation does not arise.',
  'DDP-061':
    'The verbs draft decides otherwise and we follow it: a FIN that cuts work off ends the stream with ' +
    'Terminate 0/2/07 (VERBS-040).',
  'DDP-063':
    'The verbs draft decides otherwise and we follow it: a segment after our FIN resets the connection ' +
    '(VERBS-043).',
  'DDP-071': 'Denies a promise between streams; no order of arrival could contradict it.',

  'RDMAP-078': FREEDOM,
  'RDMAP-097': 'Says that contents before delivery are undefined; whatever is found there is allowed.',
  'RDMAP-098': 'Denies a promise between streams and directions; no order could contradict it.',

  'EXT-002': 'Agreement between the two programs above, outside all formats of the stack.',
  'EXT-018': FREEDOM,
  'EXT-037': 'Atomicity against other accesses is left open; both outcomes are allowed.',
  'EXT-045':
    'Says what a requester must not conclude; the stack draws no such conclusion for it and shows nothing.',
  'EXT-050': FREEDOM,
  'EXT-052': ULP_POLICY,

  'SEC-003': ULP_POLICY,
  'SEC-011':
    'A completion queue belongs to the one program that made it; sharing it with another is that ' +
    "program's act.",
  'SEC-015': 'There is no firmware and no way to load code from a peer.',
  'SEC-018': ULP_POLICY,
  'SEC-019': ULP_POLICY,
  'SEC-020':
    'The program hands over memory it owns; the stack must register it as it is and cannot know what ' +
    'is stale.',
  'SEC-021': ULP_POLICY,
  'SEC-022': ULP_POLICY,
  'SEC-023': ULP_POLICY,
  'SEC-029': 'A rule of design: trust is not a quantity that a test could read.',
  'SEC-030': SINGLE_USER,
  'SEC-035': 'A rule for designers of protocols above; none of our octets shows the layers above.',
  'SEC-036': IPSEC,
  'SEC-037': IPSEC,

  'VERBS-064':
    'A segment is complete in memory before its first octet goes to the port, so none is corrupted ' +
    'half sent.',
  'VERBS-101': FREEDOM,
};
