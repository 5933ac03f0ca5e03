/** Kinds of case. */
import type { CaseSpec, PeerKind } from './types.ts';

/** The layers at which our own stack is measured. */
export type Layer = Extract<PeerKind, 'verbs' | 'promises' | 'stream-onread' | 'stream-data'>;
export const LAYERS: readonly Layer[] = ['verbs', 'promises', 'stream-onread', 'stream-data'];

/** Whether it is this package that moves the octets. */
export const isOurs = ({ peer }: CaseSpec): boolean => (LAYERS as readonly PeerKind[]).includes(peer);

/** Byte streams have no verbs. */
export const isStream = (layer: Layer): boolean => layer === 'stream-onread' || layer === 'stream-data';

/** Whether the payload comes to the client: only RDMA has Reads. */
export const isRead = (spec: CaseSpec): boolean => isOurs(spec) && spec.verb === 'read';
