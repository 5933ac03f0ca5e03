/**
 * Rules that need more than one FPDU: RFC 5041 4.3, 5.2, 5.3 (MSN, MO, TO, L), RFC 5040 4.4, 5.2, 5.4, 6.1
 * (reads and their responses, Terminate), RFC 7306 5.2 (atomics), RFC 5044 7.1.2 and RFC 6581 9.2 (which side
 * may send first). Bytes that were not captured are never a fault: after a gap the expectations begin anew.
 */
import { FIRST_MSN, QUEUE_COUNT } from '../../ddp/wire.ts';
import { DEPTH_MASK, DEPTH_NOT_NEGOTIATED, type StartupFrame } from '../../mpa/wire.ts';
import { OPCODE, OPCODE_TABLE } from '../../rdmap/wire.ts';
import type { OctetBudget } from '../capture/octet-queue.ts';
import { hex32, hex64, problem, type Problem } from './problems.ts';
import { RequestQueue } from './request-queue.ts';
import type { DecodedFpdu, Direction, RdmapFields, TaggedFields, UntaggedFields } from './types.ts';

/** Requests remembered per direction: as many as the 14 bits of IRD can allow. */
const MAX_OUTSTANDING: number = DEPTH_MASK + 1;
/**
 * The share of one remembered request in the common budget: the request, its entry, its place in the index.
 */
const REQUEST_COST = 384;
const TWO_64 = 1n << 64n;
const TWO_32 = 0x1_0000_0000;

interface OpenUntagged {
  readonly opcode: number;
  readonly msn: number;
  readonly invalidateStag: number;
  nextMo: number;
}

interface Queue {
  /** MSN of the next message; undefined where it is not known. */
  expected: number | undefined;
  open: OpenUntagged | undefined;
  /** True where the beginning of a message may have been missed. */
  fresh: boolean;
}

interface OutstandingRead {
  readonly msn: number;
  readonly size: number;
  readonly sinkStag: number;
  readonly sinkTo: bigint;
  answered: number;
}

interface Side {
  readonly queues: Queue[];
  tagged: { opcode: number; stag: number; nextTo: bigint } | undefined;
  reads: RequestQueue<OutstandingRead>;
  atomics: RequestQueue<number>;
  /** False once bytes of this direction were not captured or not believed. */
  complete: boolean;
  /** False once the requests listed here may differ from those sent. */
  requestsKnown: boolean;
  terminated: boolean;
  fpdus: number;
}

function newSide(complete: boolean): Side {
  const queue = (): Queue => ({
    expected: complete ? FIRST_MSN : undefined,
    open: undefined,
    fresh: !complete,
  });
  return {
    queues: Array.from({ length: QUEUE_COUNT }, queue),
    tagged: undefined,
    reads: new RequestQueue(),
    atomics: new RequestQueue(),
    complete,
    requestsKnown: complete,
    terminated: false,
    fpdus: 0,
  };
}

/** Follows both directions of one connection and adds to the `problems` of each FPDU. */
export class OrderChecker {
  private sides: [Side, Side] = [newSide(false), newSide(false)];
  private request: StartupFrame | undefined;
  private reply: StartupFrame | undefined;
  private initiator: Direction = 0;
  private readonly budget: OctetBudget | undefined;
  private held = 0;

  constructor(budget?: OctetBudget) {
    this.budget = budget;
  }

  /** Forget the outstanding requests: the connection is over. */
  release(): void {
    for (const side of this.sides) this.forgetRequests(side);
  }

  /** Both start-up frames were captured: everything that follows is known. */
  begin(initiator: Direction, request: StartupFrame, reply: StartupFrame): void {
    this.sides = [newSide(true), newSide(true)];
    this.initiator = initiator;
    this.request = request;
    this.reply = reply;
  }

  /** The directions were taken for each other. */
  turn(): void {
    this.sides.reverse();
  }

  /** Bytes of `direction` were not captured, or an FPDU of it is not believed. */
  gap(direction: Direction): void {
    const side = this.sides[direction];
    side.complete = false;
    side.requestsKnown = false;
    side.tagged = undefined;
    for (const queue of side.queues) {
      queue.expected = undefined;
      queue.open = undefined;
      queue.fresh = true;
    }
    // Responses may be among the missing octets: the requests that they answer stay unknown.
    this.sides[direction ^ 1]!.requestsKnown = false;
  }

  /** Requests of `direction` may be missing so far. */
  doubt(direction: Direction): void {
    const side = this.sides[direction];
    side.complete = false;
    side.requestsKnown = false;
  }

  /** Judge an FPDU against the FPDUs before it, adding to its problems. */
  check(fpdu: DecodedFpdu): void {
    const side = this.sides[fpdu.direction];
    const { problems } = fpdu;
    if (side.terminated) problems.push(problem('RDMAP-077', `${fpdu.opcode} after the Terminate`));
    if (side.fpdus === 0) this.checkFirst(fpdu, side);
    side.fpdus++;
    const { ddp, rdmap } = fpdu;
    if (ddp === undefined || rdmap === undefined || (fpdu.crc.use === 'on' && !fpdu.crc.ok)) {
      this.gap(fpdu.direction);
      return;
    }
    if (OPCODE_TABLE[rdmap.opcode]?.tagged !== ddp.tagged) return;
    if (ddp.tagged) {
      this.checkTagged(side, ddp, rdmap, fpdu.payloadLength, problems);
      if (rdmap.opcode === OPCODE.READ_RESPONSE) this.checkReadResponse(fpdu, ddp);
    } else {
      this.checkUntagged(side, ddp, rdmap, fpdu.payloadLength, problems);
      this.checkRequests(fpdu, side, ddp);
    }
    if (rdmap.opcode === OPCODE.TERMINATE) side.terminated = true;
  }

  /** MPA-028 and ENH-038: what the first FPDU of each direction may be. */
  private checkFirst(fpdu: DecodedFpdu, side: Side): void {
    if (!side.complete || this.reply === undefined) return;
    if (fpdu.direction !== this.initiator) {
      const other = this.sides[this.initiator];
      if (other.complete && other.fpdus === 0) {
        fpdu.problems.push(problem('MPA-028', 'the responder sends before an FPDU of the initiator'));
      }
      return;
    }
    const { enhanced } = this.reply;
    if (enhanced?.peerToPeer !== true || this.request?.enhanced?.peerToPeer !== true) return;
    const opcode = fpdu.rdmap?.opcode;
    // The size in a Read Request may not have been captured.
    const unknown = opcode === OPCODE.READ_REQUEST && fpdu.captured !== undefined;
    const empty = fpdu.payloadLength === 0 || fpdu.readRequest?.size === 0 || unknown;
    const lawful =
      (opcode === OPCODE.SEND && enhanced.rtrSend) ||
      (opcode === OPCODE.RDMA_WRITE && enhanced.rtrWrite) ||
      (opcode === OPCODE.READ_REQUEST && enhanced.rtrRead);
    if (opcode === OPCODE.TERMINATE || (lawful && empty)) return;
    fpdu.problems.push(problem('ENH-038', `the first FPDU is no negotiated RTR message`));
  }

  private checkUntagged(
    side: Side,
    ddp: UntaggedFields,
    rdmap: RdmapFields,
    payload: number,
    problems: Problem[],
  ): void {
    const queue = side.queues[ddp.qn];
    if (queue === undefined || OPCODE_TABLE[rdmap.opcode]?.qn !== ddp.qn) return;
    // A Terminate may cut a message short: it is sent as early as possible and nothing follows it.
    const cuts = rdmap.opcode === OPCODE.TERMINATE;
    if (!cuts && side.queues.some((other) => other !== queue && other.open !== undefined)) {
      problems.push(problem('DDP-036', 'a segment of another untagged message inside an unfinished one'));
    }
    const { open } = queue;
    if (open !== undefined && open.msn === ddp.msn) {
      if (open.opcode !== rdmap.opcode || open.invalidateStag !== ddp.invalidateStag) {
        problems.push(problem('DDP-009', 'opcode or Invalidate STag differ from the segments before'));
      }
      if (ddp.mo !== open.nextMo) problems.push(problem('DDP-017', `MO ${ddp.mo}, expected ${open.nextMo}`));
    } else {
      if (open !== undefined)
        problems.push(problem('DDP-002', `message MSN ${open.msn} had no segment with L`));
      if (queue.expected !== undefined && ddp.msn !== queue.expected && !cuts) {
        problems.push(problem('DDP-015', `MSN ${ddp.msn} on queue ${ddp.qn}, expected ${queue.expected}`));
      }
      if (
        ddp.mo !== 0 &&
        !queue.fresh &&
        rdmap.opcode < OPCODE.TERMINATE &&
        rdmap.opcode !== OPCODE.READ_REQUEST
      ) {
        problems.push(problem('DDP-017', `a message begins at MO ${ddp.mo}`));
      }
    }
    if (!ddp.last && payload === 0)
      problems.push(problem('DDP-025', 'a segment without payload that is not the last'));
    const nextMo = (ddp.mo + payload) % TWO_32;
    queue.open = ddp.last
      ? undefined
      : { opcode: rdmap.opcode, msn: ddp.msn, invalidateStag: ddp.invalidateStag, nextMo };
    queue.expected = (ddp.msn + (ddp.last ? 1 : 0)) % TWO_32;
    queue.fresh = false;
  }

  private checkTagged(
    side: Side,
    ddp: TaggedFields,
    rdmap: RdmapFields,
    payload: number,
    problems: Problem[],
  ): void {
    const open = side.tagged;
    if (open !== undefined) {
      if (open.opcode !== rdmap.opcode)
        problems.push(problem('DDP-036', 'a segment of another tagged message inside an unfinished one'));
      else if (open.stag !== ddp.stag) {
        problems.push(problem('DDP-012', `STag ${hex32(ddp.stag)} inside a message to ${hex32(open.stag)}`));
      } else if (open.nextTo !== ddp.to) {
        problems.push(problem('DDP-018', `TO ${hex64(ddp.to)}, expected ${hex64(open.nextTo)}`));
      }
    }
    if (!ddp.last && payload === 0)
      problems.push(problem('DDP-025', 'a segment without payload that is not the last'));
    side.tagged = ddp.last
      ? undefined
      : { opcode: rdmap.opcode, stag: ddp.stag, nextTo: (ddp.to + BigInt(payload)) % TWO_64 };
  }

  /** Read and Atomic Requests are remembered, Atomic Responses matched. */
  private checkRequests(fpdu: DecodedFpdu, side: Side, ddp: UntaggedFields): void {
    const { readRequest, atomicRequest, atomicResponse } = fpdu;
    if (readRequest !== undefined) {
      side.reads.push(sinkKey(readRequest.sinkStag, readRequest.sinkTo), {
        msn: ddp.msn,
        size: readRequest.size,
        sinkStag: readRequest.sinkStag,
        sinkTo: readRequest.sinkTo,
        answered: 0,
      });
    } else if (atomicRequest !== undefined) {
      side.atomics.push(atomicRequest.requestId, atomicRequest.requestId);
    } else {
      if (atomicResponse !== undefined) this.checkAtomicResponse(fpdu, atomicResponse.requestId);
      return;
    }
    this.checkDepth(fpdu, side);
    const fits = this.budget?.take(REQUEST_COST) ?? true;
    if (fits) this.held++;
    if (!fits || side.reads.length > MAX_OUTSTANDING || side.atomics.length > MAX_OUTSTANDING)
      this.forgetRequests(side);
  }

  private forgetRequests(side: Side): void {
    this.answered(side.reads.length + side.atomics.length);
    side.reads = new RequestQueue();
    side.atomics = new RequestQueue();
    side.requestsKnown = false;
  }

  /** `count` requests are no longer remembered. */
  private answered(count: number): void {
    const given = Math.min(count, this.held);
    this.held -= given;
    this.budget?.take(-given * REQUEST_COST);
  }

  /** RDMAP-051, EXT-048: no more requests are outstanding than the peer's IRD allows. */
  private checkDepth(fpdu: DecodedFpdu, side: Side): void {
    const peer = fpdu.direction === this.initiator ? this.reply : this.request;
    const ird = peer?.enhanced?.ird;
    if (ird === undefined || ird === DEPTH_NOT_NEGOTIATED || !side.requestsKnown) return;
    const outstanding = side.reads.length + side.atomics.length;
    if (outstanding <= ird) return;
    const id = side.atomics.length === 0 ? 'RDMAP-051' : 'EXT-048';
    fpdu.problems.push(problem(id, `${outstanding} requests are outstanding, the peer's IRD is ${ird}`));
  }

  private checkReadResponse(fpdu: DecodedFpdu, ddp: TaggedFields): void {
    const asker = this.sides[fpdu.direction ^ 1]!;
    const { problems, payloadLength } = fpdu;
    const fits = (read: OutstandingRead): boolean =>
      read.sinkStag === ddp.stag && (read.sinkTo + BigInt(read.answered)) % TWO_64 === ddp.to;
    const { oldest } = asker.reads;
    if (!asker.requestsKnown && (oldest === undefined || !fits(oldest))) {
      // Only the oldest one can be answered in part: any other begins where it was asked.
      const key = sinkKey(ddp.stag, ddp.to);
      if (!asker.reads.has(key)) return;
      this.answered(asker.reads.dropBefore(key));
    }
    const read = asker.reads.oldest;
    if (read === undefined) {
      problems.push(problem('RDMAP-049', 'no Read Request is outstanding'));
      return;
    }
    if (!fits(read)) {
      const wanted = `${hex32(read.sinkStag)} TO ${hex64((read.sinkTo + BigInt(read.answered)) % TWO_64)}`;
      problems.push(problem('RDMAP-030', `the Read Request with MSN ${read.msn} is answered at ${wanted}`));
    }
    read.answered += payloadLength;
    if (read.answered > read.size || (ddp.last && read.answered !== read.size)) {
      problems.push(
        problem(
          'RDMAP-031',
          `${read.answered} of the ${read.size} bytes asked with MSN ${read.msn} are answered` +
            (ddp.last ? ' at L' : ''),
        ),
      );
    } else if (!ddp.last && read.answered === read.size) {
      problems.push(
        problem(
          'RDMAP-031',
          `all ${read.size} bytes asked with MSN ${read.msn} are answered, but L is not set`,
        ),
      );
    }
    if (ddp.last) this.answered(asker.reads.shift());
  }

  private checkAtomicResponse(fpdu: DecodedFpdu, requestId: number): void {
    const asker = this.sides[fpdu.direction ^ 1]!;
    const { oldest } = asker.atomics;
    if (asker.atomics.has(requestId)) {
      if (asker.requestsKnown) {
        if (oldest !== requestId)
          fpdu.problems.push(
            problem('EXT-041', `response ${requestId} overtakes the one to request ${oldest}`),
          );
      } else {
        // Where requests or responses were missed, the ones before it are taken for answered.
        this.answered(asker.atomics.dropBefore(requestId));
      }
      this.answered(asker.atomics.remove(requestId));
      return;
    }
    if (!asker.requestsKnown) return;
    this.answered(asker.atomics.shift());
    fpdu.problems.push(
      oldest === undefined
        ? problem('EXT-049', 'no Atomic Request is outstanding')
        : problem('EXT-030', `request identifier ${requestId}, expected ${oldest}`),
    );
  }
}

/** Where the response to a Read Request begins. */
function sinkKey(stag: number, to: bigint): string {
  return `${stag}/${to}`;
}
