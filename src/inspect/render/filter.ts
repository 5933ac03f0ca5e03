/** Selects the events to show: by connection, opcode, STag, or only those that break a rule. */
import { IwarpError } from '../../base/errors.ts';
import { OPCODE_TABLE } from '../../rdmap/wire.ts';
import type { CapturedConnection } from '../decode/capture.ts';
import { shortName } from './text.ts';
import type { DecodedUlpdu, InspectEvent } from '../decode/types.ts';

/** Criteria of a filter; an event has to meet every option. */
export interface FilterOptions {
  /** Connection numbers. Lists that are empty ask for nothing in particular. */
  readonly connections: readonly string[];
  /** Full names, column names or numbers of opcodes; letter case and spaces do not matter. */
  readonly opcodes: readonly string[];
  /** STags in hexadecimal, with or without `0x`. */
  readonly stags: readonly string[];
  /** Only events that break a rule, and Terminates. */
  readonly errorsOnly: boolean;
}

/** True for an event that is shown. */
export type EventFilter = (connection: CapturedConnection, event: InspectEvent) => boolean;

/** A filter, or ERR_INVALID_ARGUMENT thrown if an option makes no sense. */
export function createFilter(options: FilterOptions): EventFilter {
  const connections = new Set(options.connections.map(parseConnection));
  const opcodes = new Set(options.opcodes.map(parseOpcode));
  const stags = new Set(options.stags.map(parseStag));
  return (connection, event) => {
    if (connections.size > 0 && !connections.has(connection.number)) return false;
    if (options.errorsOnly && !isError(event)) return false;
    if (opcodes.size === 0 && stags.size === 0) return true;
    if (event.kind !== 'fpdu' && event.kind !== 'trp') return false;
    if (opcodes.size > 0 && !opcodes.has(event.rdmap?.opcode ?? -1)) return false;
    return stags.size === 0 || stagsOf(event).some((stag) => stags.has(stag));
  };
}

/** A broken rule, or a peer's report of one: the Terminate shows where the connection failed. */
function isError(event: InspectEvent): boolean {
  return event.problems.length > 0 || ('terminate' in event && event.terminate !== undefined);
}

/** The STags that an FPDU names, in whatever field. */
function stagsOf({ ddp, readRequest, atomicRequest, terminate }: DecodedUlpdu): number[] {
  const stags: number[] = [];
  if (ddp?.tagged === true) stags.push(ddp.stag);
  if (ddp?.tagged === false && ddp.invalidateStag !== 0) stags.push(ddp.invalidateStag);
  if (atomicRequest !== undefined) stags.push(atomicRequest.stag);
  if (terminate?.ddp?.tagged === true) stags.push(terminate.ddp.stag);
  for (const request of [readRequest, terminate?.readRequest]) {
    if (request !== undefined) stags.push(request.sinkStag, request.sourceStag);
  }
  return stags;
}

function parseConnection(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `--connection needs a number from 1, got ${text}`);
  return Number(text);
}

function parseStag(text: string): number {
  if (!/^(0x)?[0-9a-f]{1,8}$/i.test(text))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `--stag needs up to 8 hexadecimal digits, got ${text}`);
  return Number.parseInt(text, 16);
}

function parseOpcode(text: string): number {
  const plain = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
  const wanted = plain(text);
  const byName = OPCODE_TABLE.findIndex(
    ({ name }) => plain(name) === wanted || plain(shortName(name)) === wanted,
  );
  if (byName >= 0) return byName;
  // Names without their first word: `Write`, `Read Request`.
  const byTail = OPCODE_TABLE.findIndex(({ name }) => plain(name.replace('RDMA ', '')) === wanted);
  if (byTail >= 0) return byTail;
  if (/^(0x[0-9a-f]|\d|1[0-5])$/i.test(text)) return Number(text);
  const names = OPCODE_TABLE.map(({ name }) => shortName(name)).join(', ');
  throw new IwarpError('ERR_INVALID_ARGUMENT', `--opcode needs a number or one of ${names}; got ${text}`);
}
