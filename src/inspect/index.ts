/**
 * `iwarp/inspect`: decode captured iWARP traffic and render it. Three parts follow one another: `capture`
 * turns a pcap or pcapng file into TCP streams, `decode` turns streams into FPDUs and judges them, `render`
 * turns the results into lines, trees, JSON or a page. Nothing here needs Node: bytes come from the caller.
 *
 * @example
 * import { readFileSync } from 'node:fs';
 * import { CaptureDissector, renderLine } from 'iwarp/inspect';
 *
 * const dissector = new CaptureDissector({
 *   event: (connection, event) => console.log(`#${connection.number} ${renderLine(event)}`),
 *   remark: (offset, message) => console.error(`at ${offset}: ${message}`),
 * });
 * dissector.push(readFileSync('ping.pcap'));
 * dissector.end();
 *
 * @module iwarp/inspect
 */
export {
  CaptureDissector,
  type CaptureCounts,
  type CapturedConnection,
  type CaptureHandlers,
  type CaptureOptions,
} from './decode/capture.ts';
export { ConnectionDecoder, type ConnectionDecoderOptions } from './decode/connection-decoder.ts';
export { OctetBudget } from './capture/octet-queue.ts';
export { CLAUSES, type Problem, type ProblemId } from './decode/problems.ts';
export type {
  ConnectionSummary,
  DatagramSummary,
  DirectionSummary,
  NbdSummary,
  SeenTerminate,
} from './decode/summary.ts';
export type {
  AtomicRequestFields,
  AtomicResponseFields,
  CrcSeen,
  DatagramSetup,
  DdpFields,
  DecodedDatagram,
  DecodedFpdu,
  DecodedStartup,
  DecodedUlpdu,
  Direction,
  InspectEvent,
  MarkerSeen,
  NbdFields,
  NbdGrant,
  NbdMemory,
  NbdRefusal,
  NbdSetup,
  NbdSetupFields,
  RdmapFields,
  ReadRequestFields,
  SdpFields,
  SdpSetupFields,
  StreamNote,
  TaggedFields,
  TerminateFields,
  UntaggedFields,
} from './decode/types.ts';
export { decodeUlpdu, type ExpectedVersions } from './decode/ulpdu.ts';
export { createFilter, type EventFilter, type FilterOptions } from './render/filter.ts';
export { PageBuilder } from './render/page.ts';
export { renderLine } from './render/text.ts';
export {
  renderEvent,
  renderJson,
  renderOctets,
  renderSummary,
  renderSummaryJson,
  renderTree,
  type EventStyle,
} from './render/views.ts';
