/** Names under which each side finds memory of the other. */
import { TextEncoder } from '../base/host.ts';
import { IwarpError } from '../base/errors.ts';
import type { Responder } from './requests.ts';
import { FRAME, type Frame } from './wire.ts';

const WORDS = new TextDecoder();
/** Bytes of a name in UTF-8. */
export const MAX_NAME = 255;

export class Published {
  readonly #responder: Responder;
  readonly #tickets = new Map<string, () => Uint8Array>();
  /** Lookups of the peer for names that there are not yet, by slot. */
  readonly #waiting = new Map<number, string>();

  constructor(responder: Responder) {
    this.#responder = responder;
  }

  /** `ticket` makes the answer to a lookup; null takes the name back. */
  publish(name: string, ticket: (() => Uint8Array) | null): void {
    if (ticket === null) this.#tickets.delete(name);
    else this.#tickets.set(name, ticket);
    for (const [id, wanted] of this.#waiting) {
      if (wanted !== name || ticket === null) continue;
      this.#waiting.delete(id);
      this.#answer(id, ticket);
    }
  }

  #answer(id: number, ticket: () => Uint8Array): void {
    let body: Uint8Array;
    try {
      body = ticket();
    } catch (error) {
      this.#responder.respond(id, FRAME.ERROR, new TextEncoder().encode((error as IwarpError).message));
      return;
    }
    this.#responder.respond(id, FRAME.REPLY, body);
  }

  /** LOOKUP. False if it is not lawful. */
  lookedUp({ id, payload }: Frame): boolean {
    if (payload.length > MAX_NAME || !this.#responder.reserve(id)) return false;
    const name = WORDS.decode(payload);
    const ticket = this.#tickets.get(name);
    if (ticket === undefined) this.#waiting.set(id, name);
    else this.#answer(id, ticket);
    return true;
  }

  /** CANCEL: true if it was for a lookup. */
  cancelled({ id }: Frame): boolean {
    if (!this.#waiting.delete(id)) return false;
    this.#responder.respond(id, FRAME.ERROR, new Uint8Array(0));
    return true;
  }
}
