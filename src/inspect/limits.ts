/**
 * What the capture reader may hold, whatever the file says. In all: {@link WAITING_OCTETS} of waiting octets, {@link MAX_BLOCK_OCTETS}
 * of the file, and for each of {@link MAX_CONNECTIONS} connections a few hundred octets of state and two queues of requests.
 */

/** The longest packet record or pcapng block believed: 64 times the largest snap length that tcpdump uses. */
export const MAX_BLOCK_OCTETS: number = 16 * 1024 * 1024;
/** Octets of all TCP streams together that wait for earlier ones or for the rest of an FPDU. */
export const WAITING_OCTETS: number = 64 * 1024 * 1024;
/** Segments and octets of one direction that wait for an earlier one; past this the earlier one counts as lost. */
export const MAX_WAITING_SEGMENTS = 4096;
export const MAX_WAITING_OCTETS: number = 8 * 1024 * 1024;
/** Connections followed at a time; the one that was silent longest is closed first. */
export const MAX_CONNECTIONS = 1024;
/** Closed connections whose summary is kept; further ones are only counted. */
export const MAX_SUMMARIES = 4096;
/** Interfaces of one pcapng section; further ones are ignored. */
export const MAX_INTERFACES = 4096;
/** Remarks about the file itself that are given out; further ones are only counted. */
export const MAX_REMARKS = 100;
