/** The state of an extended socket, apart from the `net.Socket` that it is. */
import type { Socket } from 'node:net';
import type { IwarpError } from '../../base/errors.ts';
import type { Machine } from '../../base/fsm.ts';
import type { RdmaModeOptions, SwitchPlan } from './options.ts';
import type { RdmaSide } from './rdma-side.ts';
import type { ExtendedInput, ExtendedState } from './states.ts';

/** What an extended socket has beside its connection. One that is plain has no more than this. */
export interface Extension {
  readonly role: SwitchPlan['role'];
  options: RdmaModeOptions;
  life: Machine<ExtendedState, ExtendedInput> | null;
  side: RdmaSide | null;
  /** Set while the switch waits for its outcome. */
  switched: ((error: IwarpError | null) => void) | null;
  peerData: Uint8Array;
  onGone: (() => void) | null;
}

const extensions = new WeakMap<Socket, Extension>();

export function extensionOf(socket: Socket): Extension {
  return extensions.get(socket)!;
}

/** Begin the life of an extended socket. */
export function extend(socket: Socket, role: SwitchPlan['role'], options: RdmaModeOptions): void {
  const peerData = new Uint8Array(0);
  extensions.set(socket, { role, options, life: null, side: null, switched: null, peerData, onGone: null });
}
