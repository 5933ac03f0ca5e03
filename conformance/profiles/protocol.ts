// The tester protocol: an implementation offers it so that every case can bring it into the needed state and
// see the effects that a wire cannot show. One JSON object a line each way over a separate TCP connection;
// PROTOCOL.md describes it for any language. Octets travel as lower-case hexadecimal, 64-bit numbers as
// decimal strings.

/**
 * How an endpoint (one listener or one connection) is set up. Absent fields mean the implementation's own
 * default.
 */
export interface EndpointOptions {
  /** Name of the protection domain; `a` when absent. */
  readonly pd?: string;
  readonly crc?: boolean;
  readonly markers?: boolean;
  readonly revision?: 0 | 1 | 2;
  readonly peerToPeer?: boolean;
  /** RTR kinds offered or granted, first choice first. */
  readonly rtr?: readonly ('write' | 'read' | 'send')[];
  readonly ird?: number;
  readonly ord?: number;
  /** Highest IRD that a peer's wish can raise it to. */
  readonly maxIrd?: number;
  readonly negotiateDepths?: boolean;
  readonly requiredOrd?: number;
  /** TCP segment payload that FPDUs must fit. */
  readonly emss?: number;
  readonly privateData?: string;
  /** Reject what connects, with the private data. */
  readonly reject?: boolean;
  /** Receives posted before the connection is made, and their size. */
  readonly receives?: number;
  readonly receiveSize?: number;
  readonly requestTimeout?: number;
  readonly replyTimeout?: number;
  readonly closeTimeout?: number;
  /** Accept RFC 7306 opcodes. */
  readonly extensions?: boolean;
  /** MSN of the first message of queues 0, 1 and 3, in either direction; 1 when absent. */
  readonly firstMsn?: number;
}

export type Access = 'local-write' | 'remote-read' | 'remote-write' | 'remote-atomic';

export interface RegionOptions {
  readonly length: number;
  readonly access: readonly Access[];
  readonly pd?: string;
  /** Endpoint to which the STag is limited. */
  readonly endpoint?: number;
  /** Value of every octet; octet i is i mod 251 when absent. */
  readonly fill?: number;
  /** Tagged offset of the first octet, decimal. */
  readonly base?: string;
  /** Share the memory with a second STag, so that neither can be invalidated from afar. */
  readonly shared?: boolean;
}

type PostKind =
  | 'send'
  | 'send-se'
  | 'send-inv'
  | 'send-se-inv'
  | 'write'
  | 'read'
  | 'imm'
  | 'imm-se'
  | 'fetch-add'
  | 'cmp-swap';

export interface PostOptions {
  readonly kind: PostKind;
  /** Octets of the message; octet i is i mod 251. For reads the octets to ask for. */
  readonly length?: number;
  /** The octets themselves, instead of `length`. */
  readonly data?: string;
  readonly stag?: number;
  readonly to?: string;
  /** STag of the peer to invalidate. */
  readonly invalidate?: number;
  readonly fence?: boolean;
  /** Immediate Data; Add or Swap Data; compare value: decimal. */
  readonly value?: string;
  readonly compare?: string;
  readonly mask?: string;
  /** Post this many equal requests. */
  readonly count?: number;
}

export interface CompletionInfo {
  readonly queue: 'send' | 'receive';
  readonly opcode: string;
  readonly status: string;
  readonly length: number;
  /** First octets (at most 64 Ki) of what a receive or a read got. */
  readonly data: string;
  readonly invalidated?: number;
  readonly immediate?: string;
  readonly solicited?: boolean;
}

export interface EventInfo {
  readonly type: string;
  readonly privateData?: string;
  readonly ird?: number;
  readonly ord?: number;
  readonly revision?: number;
  /** Packed Terminate code of a `terminate` event. */
  readonly code?: number;
  readonly origin?: string;
  readonly cause?: string;
}

/** Requests by operation name, with their answers. */
export interface Operations {
  hello: {
    request: Record<string, never>;
    answer: { name: string; extensions: boolean; firstMsn: boolean };
  };
  /**
   * Forget everything: connections, listeners, regions. The seed makes STags repeatable where the
   * implementation can.
   */
  reset: { request: { seed: number }; answer: Record<string, never> };
  listen: { request: { host: string; options: EndpointOptions }; answer: { endpoint: number; port: number } };
  connect: {
    request: { host: string; port: number; options: EndpointOptions };
    answer: { endpoint: number };
  };
  region: { request: RegionOptions; answer: { region: number; stag: number; to: string } };
  peek: { request: { region: number; offset?: number; length?: number }; answer: { data: string } };
  deregister: { request: { region: number }; answer: Record<string, never> };
  receive: { request: { endpoint: number; count: number; size: number }; answer: Record<string, never> };
  post: { request: { endpoint: number } & PostOptions; answer: Record<string, never> };
  /**
   * Wait until `min` completions have come since the last call, or `ms` have passed; all new ones are
   * returned.
   */
  completions: {
    request: { endpoint: number; min: number; ms: number };
    answer: { completions: CompletionInfo[] };
  };
  /** Wait until an event of this type has come, or `ms` have passed; all events so far are returned. */
  events: { request: { endpoint: number; type: string; ms: number }; answer: { events: EventInfo[] } };
  /** `graceful`, `abort` (reset) or `terminate` (0/0/00). */
  close: {
    request: { endpoint: number; how: 'graceful' | 'abort' | 'terminate' };
    answer: Record<string, never>;
  };
}

export type OperationName = keyof Operations;

/** One line from the probe. */
export interface RequestLine {
  readonly id: number;
  readonly op: OperationName;
  readonly args: unknown;
}

/** One line back. */
export interface AnswerLine {
  readonly id: number;
  readonly ok: boolean;
  readonly answer?: unknown;
  readonly error?: string;
}

/** Whatever answers the operations: our own target in this process, or a program behind a TCP connection. */
export interface TesterPort {
  call<Op extends OperationName>(op: Op, args: Operations[Op]['request']): Promise<Operations[Op]['answer']>;
  close(): void;
}

export function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

export function fromHex(hex: string): Uint8Array {
  return Uint8Array.from(Buffer.from(hex, 'hex'));
}

/** The octets that `length` stands for: octet i is i mod 251. */
export function pattern(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => i % 251);
}
