/**
 * Policies for known kinds of peers, each as the difference from {@link DEFAULT_POLICY}, by what their
 * drivers send, accept and refuse. The defaults work with all but softiwarp; for the others a preset saves a
 * detour (protocol-notes 3).
 */
import type { ConnectionPolicy } from './policy.ts';

// The union is written out for the API reference, as in queues/completion.ts.
/** Names of the presets. */
export const PRESET_NAMES: readonly PresetName[] = ['siw', 'softiwarp', 'chelsio', 'intel', 'strict'];
/** Name of a kind of peer. */
export type PresetName = 'siw' | 'softiwarp' | 'chelsio' | 'intel' | 'strict';

/** The presets. Give a name as `preset`, or spread a preset into a policy. */
export const PRESETS: Readonly<Record<PresetName, Readonly<Partial<ConnectionPolicy>>>> = {
  /**
   * Linux siw. As responder it chooses the Write RTR by itself, serves 128 reads, and can miss the first
   * FPDUs after its Reply until another byte comes. The nudge (`silentPeerNudge`) sends one. The connection
   * manager of Linux 6.1 takes at most 256 bytes of private data: a longer Reply fells its initiator.
   */
  siw: {
    rtrOffered: ['write', 'read'],
    rtrAccepted: ['write', 'read'],
    maxIrd: 128,
    maxPrivateData: 256,
    silentPeerNudge: 200,
  },
  /**
   * softiwarp, the module outside of the kernel's tree: revision 1, rejects C=1; the initiator speaks first.
   */
  softiwarp: {
    mpaRevision: 1,
    crc: 'off',
    markers: false,
    peerToPeer: false,
    negotiateDepths: false,
    maxIrd: 128,
  },
  /**
   * Chelsio T4 to T6: offers Read as the only RTR kind, and a Reply must name it; 32 reads; waits a minute
   * for a Reply.
   */
  chelsio: {
    crc: 'required',
    rtrOffered: ['read'],
    rtrAccepted: ['read'],
    ird: 32,
    maxIrd: 32,
    replyTimeout: 60_000,
  },
  /**
   * Intel E810 and X722: refuses a peer without A=1, prefers Read over Write as RTR, never takes Send;
   * retries for 12 s.
   */
  intel: {
    crc: 'required',
    rtrOffered: ['read', 'write'],
    rtrAccepted: ['read', 'write'],
    ird: 127,
    maxIrd: 127,
    replyTimeout: 12_000,
  },
  /** The RFCs to the letter: every RTR kind, always CRC, and no byte that no RFC asks for. */
  strict: {
    crc: 'required',
    rtrOffered: ['write', 'read', 'send'],
    rtrAccepted: ['write', 'read', 'send'],
    responder: 'strict',
    silentPeerNudge: 0,
  },
};
