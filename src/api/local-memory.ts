/**
 * Local memory as the promise layer takes it (regions, parts of them, or any view), and the peer's rights to
 * it.
 */
import { isShared, NO_BYTES } from '../base/copy.ts';
import {
  checkBoolean,
  checkBytes,
  checkInteger,
  checkObject,
  checkOneOf,
  IwarpError,
  orNoMemory,
  show,
} from '../base/errors.ts';
import { SgeList } from '../queues/work.ts';
import { ACCESS, MemoryWindow, type Device, type ProtectionDomain } from '../verbs/index.ts';
import {
  addSge,
  ELEMENT,
  MemoryRegion,
  WHOLE_REGION,
  type RegisterOptions,
  type Sge,
} from '../verbs/memory.ts';
import { GivenMemory } from '../verbs/post.ts';
import type { Resources } from './endpoint.ts';
import type { Cleanup, Local } from './transient-registrar.ts';
import { MAX_TICKET, checkRemote, RemoteBuffer } from './remote-buffer.ts';

/**
 * Local memory for an operation: a region, a part of one (`Sge`), or any view, which the stack makes usable
 * for the time of the operation.
 */
export type LocalMemory = MemoryRegion | Sge | ArrayBufferView;

/** Rights of the peer to a region: a name, or a union of {@link ACCESS}. */
export type PeerAccess = 'none' | 'read' | 'write' | 'read-write' | 'all' | number;

/** Options of {@link Connection.allocate}. */
export interface AllocateOptions extends RegisterOptions {
  /**
   * Allocate a SharedArrayBuffer, which other threads can use too. With `engine: 'worker'` that is always so.
   */
  readonly sharedMemory?: boolean | undefined;
}

const ACCESS_NAMES: Readonly<Record<Exclude<PeerAccess, number>, number>> = {
  none: ACCESS.LOCAL_WRITE,
  read: ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ,
  write: ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE,
  'read-write': ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE,
  all: ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC,
};

/** @internal The rights behind a name; a number is checked by registration. */
export function rightsOf(access: PeerAccess): number {
  return typeof access === 'string'
    ? ACCESS_NAMES[checkOneOf('access', access, Object.keys(ACCESS_NAMES)) as 'none']
    : access;
}

/** Node's Buffer, where there is one. */
const NodeBuffer = (globalThis as { Buffer?: typeof Buffer }).Buffer;

/** @internal Separate zeroed memory, as a Buffer on a platform that has that class. */
export function zeroedBuffer(octets: number): Uint8Array {
  return asBuffer(new Uint8Array(octets));
}

/** @internal The same memory as a Buffer where there is one. */
export function asBuffer(bytes: Uint8Array): Uint8Array {
  return NodeBuffer === undefined
    ? bytes
    : NodeBuffer.from(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength);
}

/** @internal Zeroed memory, and what of the options is for registration. */
export function allocateBytes(
  device: Device,
  octets: number,
  options: AllocateOptions,
): { readonly bytes: Uint8Array; readonly options: RegisterOptions } {
  checkInteger('octets', octets, 0, 0xffff_ffff);
  checkObject('options', options);
  const { sharedMemory = false, ...rest } = options;
  checkBoolean('options.sharedMemory', sharedMemory);
  return {
    bytes: sharedMemory
      ? new Uint8Array(orNoMemory(octets, () => new SharedArrayBuffer(octets)))
      : device.allocateMemory(octets),
    options: rest,
  };
}

/** @internal The ticket to a region or window of this domain, or to part of it. */
export function ticketTo(
  pd: ProtectionDomain,
  memory: MemoryRegion | MemoryWindow,
  offset: number,
  length: number | undefined,
): RemoteBuffer {
  if (!(memory instanceof MemoryRegion) && !(memory instanceof MemoryWindow)) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `memory must be a MemoryRegion or a MemoryWindow, got ${show(memory)}`,
    );
  }
  if (memory.pd !== pd)
    throw new IwarpError('ERR_WRONG_PD', 'memory belongs to another protection domain than the connection');
  if (memory instanceof MemoryRegion && !memory.valid)
    throw new IwarpError('ERR_INVALID_REGION', 'memory has been deregistered or invalidated');
  checkInteger('offset', offset, 0, Number.MAX_SAFE_INTEGER);
  // Of the memory, not of the ticket to all of it: that has 2^32 - 1 octets at most, and a region may have
  // more.
  const rest = Math.max(memory.length - offset, 0);
  const octets =
    length === undefined
      ? Math.min(rest, MAX_TICKET)
      : checkInteger('length', length, 0, Number.MAX_SAFE_INTEGER);
  if (offset + octets > memory.length) {
    throw new IwarpError(
      'ERR_OUT_OF_RANGE',
      `${octets} bytes from ${offset} pass the memory's ${memory.length} bytes`,
    );
  }
  return new RemoteBuffer(memory.rkey, memory.addr + BigInt(offset), octets);
}

const scratch = new SgeList();

/** @internal What memory for an operation is taken from. */
type Own = Pick<Resources, 'pd' | 'registrar' | 'inline'>;

/** Arguments that a call takes as memory, in the words of its error. */
const KINDS = 'a MemoryRegion, an Sge or an ArrayBufferView';

/** @internal Check memory for an operation that needs `access` of it; a view is registered for its time. */
export function localMemory(
  own: Own,
  name: string,
  memory: LocalMemory,
  access: number,
  kinds: string = KINDS,
): Local {
  const { pd, registrar } = own;
  let sge: Sge;
  let index: number = ELEMENT;
  if (memory instanceof MemoryRegion) {
    sge = { mr: memory };
    index = WHOLE_REGION;
  } else if (ArrayBuffer.isView(memory)) {
    return registrar.lend(checkBytes(name, memory), access);
  } else if ((memory as Sge | null | undefined)?.mr instanceof MemoryRegion) {
    sge = memory as Sge;
  } else {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be ${kinds}, got ${show(memory)}`);
  }
  addSge(name, index, sge, pd, access, scratch);
  const { offset, length, bytes } = scratch.first;
  scratch.clear();
  return {
    sge: { mr: sge.mr, offset, length },
    length,
    bytes: length === 0 ? NO_BYTES : bytes.subarray(offset, offset + length),
    cleanup: null,
  };
}

/** @internal Where the payload of a Send or Write comes from: one of the two, as a request says it. */
interface Source {
  readonly sges: readonly Sge[] | undefined;
  readonly inline: GivenMemory | undefined;
  readonly length: number;
  readonly cleanup: Cleanup | null;
}

/**
 * @internal The same as {@link localMemory} for memory that is only read: a short payload goes into the queue
 *   entry, and other bytes that this thread owns need no STag, which only requests from elsewhere use.
 */
export function sourceMemory(own: Own, name: string, memory: LocalMemory, kinds?: string): Source {
  if (ArrayBuffer.isView(memory)) {
    const bytes = checkBytes(name, memory);
    const { length } = bytes;
    const short = length <= own.inline;
    if (short || (own.registrar.inThread && !isShared(bytes))) {
      return { sges: undefined, inline: new GivenMemory(bytes, short), length, cleanup: null };
    }
  }
  const { sge, length, cleanup } = localMemory(own, name, memory, 0, kinds);
  return { sges: [sge], inline: undefined, length, cleanup };
}

/** @internal Memory that a Read fills from `remote`, and nothing beyond that. */
export function sinkFor(own: Own, local: LocalMemory, remote: RemoteBuffer): Local {
  checkRemote('remote', remote);
  return checkFits(localMemory(own, 'local', local, ACCESS.LOCAL_WRITE), remote);
}

/** @internal What a Write brings to `remote`, and nothing beyond that. */
export function sourceFor(own: Own, local: LocalMemory, remote: RemoteBuffer): Source {
  checkRemote('remote', remote);
  return checkFits(sourceMemory(own, 'local', local), remote);
}

function checkFits<T extends Pick<Local, 'length' | 'cleanup'>>(memory: T, remote: RemoteBuffer): T {
  if (memory.length <= remote.length) return memory;
  memory.cleanup?.(false);
  throw new IwarpError(
    'ERR_OUT_OF_RANGE',
    `local memory has ${memory.length} bytes, the remote buffer ${remote.length}`,
  );
}
