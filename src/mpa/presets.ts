/**
 * Policies for known kinds of peers, each as the difference from {@link DEFAULT_POLICY}, from what their drivers send, accept and refuse.
 * The defaults connect to all but softiwarp; a preset saves the others a detour (protocol-notes 3).
 */
import type { ConnectionPolicy } from './policy.ts';

/** Names of the presets. */
export type PresetName = 'siw' | 'softiwarp' | 'chelsio' | 'intel' | 'strict';

/** The presets, by name; give the name as `preset`, or spread one into a policy. */
export const PRESETS: Readonly<Record<PresetName, Readonly<Partial<ConnectionPolicy>>>> = {
  /**
   * Linux siw. As responder it picks the Write RTR by itself, serves 128 reads, and can miss the first FPDUs after its Reply until another
   * octet comes: the nudge brings one.
   */
  siw: { rtrOffered: ['write', 'read'], rtrAccepted: ['write', 'read'], maxIrd: 128, silentPeerNudge: 200 },
  /** The out-of-tree softiwarp module: revision 1, and it refuses C=1; the initiator speaks first. */
  softiwarp: { mpaRevision: 1, crc: 'off', markers: false, peerToPeer: false, negotiateDepths: false, maxIrd: 128 },
  /** Chelsio T4 to T6: its Reply must name the kind it offers, which is Read alone; 32 reads; it takes a minute to give up. */
  chelsio: { crc: 'required', rtrOffered: ['read'], rtrAccepted: ['read'], maxIrd: 32, replyTimeout: 60_000 },
  /** Intel E810 and X722: refuses a peer without A=1, prefers Read over Write, never takes Send; retries for 12 s. */
  intel: { crc: 'required', rtrOffered: ['read', 'write'], rtrAccepted: ['read', 'write'], maxIrd: 127, replyTimeout: 12_000 },
  /** The RFCs to the letter and nothing beyond them: every RTR kind, CRC always, no octet that nobody asked for. */
  strict: { crc: 'required', rtrOffered: ['write', 'read', 'send'], rtrAccepted: ['write', 'read', 'send'], responder: 'strict', silentPeerNudge: 0 },
};

export const PRESET_NAMES: readonly PresetName[] = ['siw', 'softiwarp', 'chelsio', 'intel', 'strict'];
