// Requirements of kind wire that no case examines, and why. The catalogue's own exceptions are about rules
// that no test at all can decide; these are rules that this probe cannot bring about or see from outside.

/** Requirement id to the reason. */
export const unobservable: Readonly<Record<string, string>> = {
  'MPA-103':
    'A program on sockets chooses no initial TCP sequence number, and positions are counted from the ' +
    'start-up frame; only 4 GiB of traffic on one connection would pass a wrap, which is a load test.',
  'MPA-056': 'A freedom: with CRC off the field may hold anything, so no content could be wrong.',
  'MPA-061': 'A freedom of the receiver; both values of M are exercised by the marker cases.',
  'MPA-081':
    'What a peer derives from which MTU it does not tell; the cases of MPA-078 and MPA-079 give it an EMSS.',
  'MPA-083': 'A freedom: no size within the limits could be wrong.',
  'MPA-084': 'TCP segment boundaries are not visible above a sockets API.',
  'MPA-085': 'A freedom, and segment boundaries are not visible above a sockets API.',
  'DDP-044': 'Both outcomes are right, a Terminate and a late delivery; ddp.send.no-buffer shows the first.',
  'DDP-061':
    'The verbs draft wants a Terminate where RFC 5041 wishes for the answer (VERBS-040), so both are ' +
    'right; mpa.close.read-then-fin takes either.',
  'DDP-063':
    'A half-close by the program above is a matter of its interface; the verbs of this catalogue have ' +
    'none that leaves reception on.',
  'ENH-012': 'A freedom: whether an initiator tries again with revision 1 is its own affair.',
};
