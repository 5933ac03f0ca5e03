/**
 * Bounds of the memory that the capture reader may hold, whatever the file says: {@link MAX_BLOCK_OCTETS} of
 * the file (in a buffer of at most twice that, and the one it grew out of), {@link WAITING_OCTETS} of waiting
 * bytes, {@link HISTORY_BUDGET} of bytes to compare, and for each of {@link MAX_CONNECTIONS} connections
 * and {@link MAX_SUMMARIES} summaries some kilobytes. In all less than 256 MiB above what Node itself needs;
 * test/inspect/hostile.test.ts holds it to that.
 */

/** The longest packet record or pcapng block believed: 64 times the largest snap length that tcpdump uses. */
export const MAX_BLOCK_OCTETS: number = 16 * 1024 * 1024;
/** Bytes of all TCP streams together that wait for earlier ones or for the rest of an FPDU. */
export const WAITING_OCTETS: number = 64 * 1024 * 1024;
/**
 * Segments and bytes of one direction that wait for an earlier one; past this the earlier one counts as
 * lost.
 */
export const MAX_WAITING_SEGMENTS = 4096;
export const MAX_WAITING_OCTETS: number = 8 * 1024 * 1024;
/** The cost of a waiting segment besides its octets: the objects around it. */
export const WAITING_COST = 256;
/**
 * The last bytes of a direction that are compared with repeated bytes, and those of all directions
 * together.
 */
export const HISTORY_OCTETS: number = 64 * 1024;
export const HISTORY_BUDGET: number = 16 * 1024 * 1024;
/** Connections followed at a time; the one that was silent longest is closed first. */
export const MAX_CONNECTIONS = 1024;
/** Connections with iWARP, and connections without, whose summary is kept; further ones are only counted. */
export const MAX_SUMMARIES = 4096;
/** Interfaces of one pcapng section; further ones are ignored. */
export const MAX_INTERFACES = 4096;
/** Remarks about the file itself that are given out; further ones are only counted. */
export const MAX_REMARKS = 100;
/** Kinds of packets without TCP that are counted by name. */
export const MAX_OTHER_KINDS = 256;
