/** States of an SDP connection, and the modes of each of its halves, as literal tables. */
import type { MachineTable } from '../base/fsm.ts';
import type { SdpMode } from './wire.ts';

/** Where a connection is in its life. */
export type SdpState = 'opening' | 'open' | 'ending' | 'peer-ended' | 'closing' | 'closed';
/** Inputs: our DisConn is asked for, the peer's arrives, the transport has gone. */
export type SdpInput = 'hello-ack' | 'end' | 'disconn' | 'gone';

/** The life of a connection; `closing` lasts until everything has been sent and the transport has ended. */
export const SDP_TABLE: MachineTable<SdpState, SdpInput> = {
  name: 'SDP connection',
  initial: 'opening',
  transitions: {
    opening: { 'hello-ack': 'open', gone: 'closed' },
    open: { end: 'ending', disconn: 'peer-ended', gone: 'closed' },
    ending: { disconn: 'closing', gone: 'closed' },
    'peer-ended': { end: 'closing', gone: 'closed' },
    closing: { gone: 'closed' },
    closed: {},
  },
};

/** Inputs of {@link MODE_TABLE}: the mode that a ModeChange names. */
export type ModeInput = `to-${SdpMode}`;

/** The mode of one half, which begins combined. Anything that is not listed is an error of the protocol. */
export const MODE_TABLE: MachineTable<SdpMode, ModeInput> = {
  name: 'SDP mode of a half connection',
  initial: 'combined',
  transitions: {
    buffered: { 'to-combined': 'combined' },
    combined: { 'to-buffered': 'buffered', 'to-pipelined': 'pipelined' },
    pipelined: { 'to-combined': 'combined' },
  },
};
