/**
 * NBD above RDMAP (docs/nbd.md): the set-up in the private data, requests and replies at the start of Sends,
 * and which reply answers which request. Both modes have their header in the first segment of a message, so
 * that nothing has to be put together. Bounded by the shared budget; never throws on input.
 */
import {
  decodeDirectRequest,
  decodeGrant,
  decodeRefusal,
  decodeSetup,
  decodeSimpleReply,
  DIRECT_REQUEST_LENGTH,
  type QpMode,
} from '../../nbd/qp-wire.ts';
import {
  COMMAND,
  COMMAND_FLAG,
  decodeRequest,
  NBD_ERRORS,
  REQUEST_LENGTH,
  SIMPLE_REPLY_LENGTH,
  viewOf,
  type RequestHeader,
} from '../../nbd/wire.ts';
import { UNTAGGED_HEADER_OCTETS } from '../../ddp/wire.ts';
import { OPCODE } from '../../rdmap/wire.ts';
import type { OctetBudget } from '../capture/octet-queue.ts';
import type { NbdSummary } from './summary.ts';
import type { DecodedFpdu, DecodedStartup, Direction, NbdFields, NbdSetupFields } from './types.ts';

/** The share of one remembered request in the common budget: the entry, its key and its place in the map. */
const REQUEST_OCTETS = 256;
/** Four times the largest depth that a lawful client has. */
const MAX_OUTSTANDING = 4096;

const SENDS: ReadonlySet<number> = new Set([OPCODE.SEND, OPCODE.SEND_SE]);
const nameOf = (table: Readonly<Record<string, number>>, value: number): string | undefined =>
  Object.keys(table).find((name) => table[name] === value);

/** `READ`, `WRITE`, … or the number of a command that the protocol does not have. */
function commandName(command: number): string {
  return nameOf(COMMAND, command) ?? `Command 0x${command.toString(16)}`;
}

/** `FUA|DF`; bits without a name as a number. Empty if none is set. */
function commandFlags(flags: number): string {
  const names = Object.entries(COMMAND_FLAG).filter(([, bit]) => (flags & bit) !== 0);
  const rest = names.reduce((left, [, bit]) => left & ~bit, flags);
  return [...names.map(([name]) => name), ...(rest === 0 ? [] : [`0x${rest.toString(16)}`])].join('|');
}

/** `EIO`, or the number of an error that the protocol does not have. */
export function errorName(error: number): string {
  return nameOf(NBD_ERRORS, error) ?? `error ${error}`;
}

interface Outstanding {
  readonly command: string;
  readonly offset: bigint;
  readonly length: number;
  readonly time: number;
}

/** Follows NBD on one connection; does nothing on others. */
export class NbdTracker {
  private readonly budget: OctetBudget | undefined;
  private readonly outstanding = new Map<bigint, Outstanding>();
  private summary: NbdSummary | undefined;
  private mode: QpMode | undefined;
  private client: Direction = 0;
  /** Whether every request so far was captured: only then is a reply without one worth a word. */
  private complete = true;

  constructor(budget: OctetBudget | undefined) {
    this.budget = budget;
  }

  /** Decodes the private data of a start-up frame as NBD, if the Request's is a set-up of NBD. */
  startup(event: DecodedStartup): NbdSetupFields | undefined {
    const { frame, direction } = event;
    if (frame.kind === 'request') {
      const setup = decodeSetup(frame.privateData);
      if (setup === null) return undefined;
      this.mode = setup.mode;
      this.client = direction;
      return { kind: 'setup', ...setup };
    }
    if (this.mode === undefined || direction === this.client) return undefined;
    if (frame.reject) return { kind: 'refusal', ...decodeRefusal(frame.privateData) };
    const grant = decodeGrant(frame.privateData);
    return grant === null
      ? undefined
      : { kind: 'grant', size: grant.size, flags: grant.flags, ...grant.blocks };
  }

  /** Counters to show; undefined while no request or reply was seen. */
  get counts(): NbdSummary | undefined {
    return this.summary;
  }

  /** Bytes of a direction are missing. */
  gap(): void {
    this.complete = false;
  }

  /** Forget the outstanding requests: the connection is over. */
  release(): void {
    this.budget?.take(-REQUEST_OCTETS * this.outstanding.size);
    this.outstanding.clear();
  }

  /** The request or reply that begins in this FPDU. */
  fpdu(event: DecodedFpdu): NbdFields | undefined {
    const { ddp, rdmap, crc, ulpdu, captured } = event;
    if (this.mode === undefined || ddp === undefined || ddp.tagged || ddp.mo !== 0) return undefined;
    if (rdmap === undefined || !SENDS.has(rdmap.opcode) || (crc.use === 'on' && !crc.ok)) return undefined;
    const payload = ulpdu.subarray(UNTAGGED_HEADER_OCTETS);
    if (captured !== undefined) {
      this.complete = false;
      return undefined;
    }
    return event.direction === this.client ? this.request(payload, event) : this.reply(payload, event.time);
  }

  private request(payload: Uint8Array, { time }: DecodedFpdu): NbdFields | undefined {
    if (this.mode === 'direct') {
      if (payload.length !== DIRECT_REQUEST_LENGTH) return undefined;
      const direct = decodeDirectRequest(payload);
      return direct === null ? undefined : { ...this.remember(direct.request, time), memory: direct.memory };
    }
    if (payload.length < REQUEST_LENGTH) return undefined;
    const request = decodeRequest(viewOf(payload));
    return request === null ? undefined : this.remember(request, time);
  }

  private remember(header: RequestHeader, time: number): NbdFields {
    const { flags, offset, length } = header;
    const command = commandName(header.command);
    const cookie = cookieOf(header);
    const counts = this.counted();
    counts.requests.set(command, (counts.requests.get(command) ?? 0) + 1);
    // DISC has no answer.
    if (header.command !== COMMAND.DISC) {
      const known = this.outstanding.has(cookie);
      const fits =
        known || (this.outstanding.size < MAX_OUTSTANDING && this.budget?.take(REQUEST_OCTETS) !== false);
      if (fits) this.outstanding.set(cookie, { command, offset, length, time });
      else this.complete = false;
      counts.waiting = this.outstanding.size;
    }
    const names = commandFlags(flags);
    return { kind: 'request', command, ...(names === '' ? {} : { flags: names }), cookie, offset, length };
  }

  private reply(payload: Uint8Array, time: number): NbdFields | undefined {
    if (payload.length < SIMPLE_REPLY_LENGTH) return undefined;
    const header = decodeSimpleReply(payload);
    if (header === null) return undefined;
    const cookie = cookieOf(header);
    const counts = this.counted();
    counts.replies++;
    const fault = header.error === 0 ? undefined : errorName(header.error);
    if (fault !== undefined) counts.errors.set(fault, (counts.errors.get(fault) ?? 0) + 1);
    const reply = { kind: 'reply', cookie, ...(fault === undefined ? {} : { error: fault }) } as const;
    const asked = this.outstanding.get(cookie);
    if (asked === undefined) {
      if (!this.complete) return reply;
      counts.unmatched++;
      return { ...reply, unmatched: true };
    }
    this.outstanding.delete(cookie);
    this.budget?.take(-REQUEST_OCTETS);
    counts.waiting = this.outstanding.size;
    const { command, offset, length } = asked;
    return { ...reply, command, offset, length, elapsed: Math.max(0, time - asked.time) };
  }

  private counted(): NbdSummary {
    this.summary ??= {
      mode: this.mode!,
      requests: new Map(),
      replies: 0,
      errors: new Map(),
      unmatched: 0,
      waiting: 0,
    };
    return this.summary;
  }
}

function cookieOf({ cookieHi, cookieLo }: { readonly cookieHi: number; readonly cookieLo: number }): bigint {
  return (BigInt(cookieHi) << 32n) | BigInt(cookieLo);
}
