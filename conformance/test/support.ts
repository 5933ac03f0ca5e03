// Parts that the suite's own tests share: one run of some cases against our own stack in this process.

import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { cases } from '../cases/index.ts';
import type { Case } from '../cases/define.ts';
import type { Role } from '../probe/connection.ts';
import { FpduReader, FpduWriter } from '../probe/fpdu.ts';
import { parseReadRequest, parseSegment, tagged } from '../probe/messages.ts';
import { parseStartup, startupFrame, startupLength } from '../probe/startup.ts';
import { OPCODE } from '../probe/wire.ts';
import { openSelf } from '../profiles/self.ts';
import type { Profile } from '../profiles/types.ts';
import { runCases } from '../runner/runner.ts';
import type { Result, RunOptions } from '../runner/runner.ts';
import { Waivers } from '../runner/waivers.ts';

export const fastCases: readonly Case[] = cases.filter((entry) => !entry.slow);

/** Run cases against a profile, our own stack unless another is given. */
export async function runAgainstSelf(
  chosen: readonly Case[],
  roles: readonly Role[],
  options: Partial<RunOptions> = {},
  given?: Profile,
): Promise<Result[]> {
  const profile = given ?? (await openSelf());
  try {
    return await runCases(chosen, {
      profile,
      roles,
      strict: true,
      quirks: new Set(),
      seed: 1,
      repeat: 1,
      slow: 1,
      settle: 0,
      gap: 0,
      bail: false,
      canary: false,
      revive: null,
      waivers: new Waivers(),
      ...options,
    });
  } finally {
    if (given === undefined) await profile.close();
  }
}

/** One line for each result that did not pass. */
export function faults(results: readonly Result[]): string[] {
  return results
    .filter((r) => r.verdict !== 'pass')
    .map((r) => `${r.verdict} ${r.case.id} [${r.role}] expected ${r.expected}; got ${r.actual}${r.reason}`);
}

export function caseNamed(id: string): Case {
  const found = cases.find((entry) => entry.id === id);
  if (found === undefined) throw new Error(`no case ${id}`);
  return found;
}

/**
 * How a {@link smallPeer} differs from one that takes enhanced start-ups, serves 16 Reads and has a silent
 * program.
 */
interface SmallPeerOptions {
  readonly revision?: 1 | 2;
  readonly ird?: number;
  /** Called with the first FPDU of a connection: what the program above sends goes through `send`. */
  readonly program?: (send: (ulpdu: Uint8Array) => void, socket: Socket) => void;
  /** Answers no Read. */
  readonly deaf?: boolean;
}

/** A TCP server that does this with each connection. */
export async function listening(act: (socket: Socket) => void): Promise<{ port: number; close: () => void }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    act(socket);
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/**
 * A listening peer in a few lines: it takes start-ups and answers zero-length Reads, each as lawfully as its
 * options let it.
 */
export function smallPeer({
  revision = 2,
  ird = 16,
  program,
  deaf = false,
}: SmallPeerOptions): Promise<{ port: number; close: () => void }> {
  return listening((socket) => {
    const writer = new FpduWriter(false, true);
    const reader = new FpduReader(false);
    const send = (ulpdu: Uint8Array): void => void socket.write(writer.encode(ulpdu));
    let startup: Buffer | null = Buffer.alloc(0);
    let opened = false;
    socket.on('data', (chunk) => {
      let octets: Uint8Array = chunk;
      if (startup !== null) {
        startup = Buffer.concat([startup, chunk]);
        const length = startupLength(startup);
        if (length === null || startup.length < length) return;
        const request = parseStartup(Uint8Array.from(startup.subarray(0, length)));
        // ENH-011: a peer that does not know the enhancement closes.
        if (request.revision > revision) return void socket.end();
        const e = request.enhanced;
        const enhanced =
          e === null ? null : { a: e.a, b: false, c: e.a, d: false, ird, ord: Math.min(16, e.ird) };
        socket.write(startupFrame({ kind: 'reply', revision: request.revision, crc: true, enhanced }));
        octets = startup.subarray(length);
        startup = null;
      }
      reader.push(octets);
      for (let fpdu = reader.next(); fpdu !== null; fpdu = reader.next()) {
        if (!opened) program?.(send, socket);
        opened = true;
        const segment = parseSegment(fpdu.ulpdu);
        const read = segment?.opcode === OPCODE.READ_REQUEST ? parseReadRequest(segment.payload) : null;
        if (read !== null && !deaf)
          send(tagged({ opcode: OPCODE.READ_RESPONSE, stag: read.sinkStag, to: read.sinkTo }));
      }
    });
  });
}
