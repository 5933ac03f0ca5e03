/** What two real sides put on the wire, read and judged by the naive codec. */
import { expect } from 'vitest';
import { decodeCapture, type NaiveFpdu, type NaiveSegment } from '../support/naive/decoder.ts';
import { reassemble, type NaiveMessage } from '../support/naive/messages.ts';
import { connectedPair, type Pair, type PairOptions, type SideOptions } from '../support/pair.ts';

export interface Direction {
  readonly fpdus: readonly NaiveFpdu[];
  readonly segments: readonly NaiveSegment[];
  readonly messages: readonly NaiveMessage[];
}

interface CaptureOptions {
  readonly markers?: boolean;
  readonly crc?: boolean;
  readonly emss?: number;
  readonly client?: SideOptions;
  readonly server?: SideOptions;
  readonly pair?: PairOptions;
}

/**
 * A connected pair without RTR message and nudge, so that the wire carries what the test posts and nothing
 * else.
 */
export function plainPair(options: CaptureOptions = {}): Promise<Pair> {
  const { markers = false, crc = true, emss = 640, client = {}, server = {}, pair = {} } = options;
  const policy = { markers, crc: crc ? 'preferred' : 'off', emss, silentPeerNudge: 0 } as const;
  return connectedPair({
    ...pair,
    client: { ...client, policy: { ...policy, mpaRevision: 1, ...client.policy } },
    server: { ...server, policy: { ...policy, responder: 'relaxed', ...server.policy } },
  });
}

/** Both directions so far. Every FPDU must be lawful; `msn` is the first MSN of each queue. */
export function captured(
  pair: Pair,
  options: { markers?: boolean; crc?: boolean; msn?: number } = {},
): { client: Direction; server: Direction } {
  const { markers = false, crc = true, msn = 1 } = options;
  const read = (octets: Uint8Array): Direction => {
    const { fpdus } = decodeCapture(octets, { markers, crc })!;
    for (const fpdu of fpdus) expect(fpdu.problems).toEqual([]);
    const { messages, problems } = reassemble(fpdus, msn);
    expect(problems).toEqual([]);
    return { fpdus, segments: fpdus.map((fpdu) => fpdu.segment!), messages };
  };
  const wire = pair.wire();
  return { client: read(wire.fromClient), server: read(wire.fromServer) };
}
