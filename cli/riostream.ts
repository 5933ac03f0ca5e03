/**
 * `iwarp riostream`: rstream's test with direct writes into the other's mapped buffer, as librdmacm's
 * riostream does it. Both sides map one buffer of the size of the transfer and tell the other by a
 * synchronisation of 16 octets; then each side in turn writes it and the other watches its last octet, which
 * counts up.
 */
// cspell:ignore abnv
import { IwarpError } from '../src/base/errors.ts';
import type { RdmaSocket } from '../src/sockets/index.ts';
import { runStreamTool, type StreamExchange, type StreamSettings } from './rstream.ts';
import { Pattern, sayFigures, type StreamTest } from './support/stream-test.ts';
import { streamError, type Pieces } from './support/stream-tool.ts';
import { PROCESS_IO, type Tool, type ToolIo } from './support/tool.ts';

const USAGE = `usage: riostream
\t[-s server_address]
\t[-b bind_address]
\t[-f address_format]
\t    name, ip, ipv6, or gid
\t[-B buffer_size]
\t[-i inline_size]
\t[-I iterations]
\t[-C transfer_count]
\t[-S transfer_size or all]
\t[-p port_number]
\t[-T test_option]
\t    a|async - asynchronous operation (use poll)
\t    b|blocking - use blocking calls
\t    n|nonblocking - use nonblocking calls
\t    v|verify - verify data
`;

const SYNC_OCTETS = 16;
/** A value that no side writes first: the count begins at 0. */
const UNTOUCHED = 0xff;

/** Entry point; the result is the exit status. */
export function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  const make = (s: StreamSettings, pieces: Pieces, tool: Tool): StreamExchange =>
    new MappedExchange(s, pieces, tool);
  return runStreamTool('riostream', USAGE, 's:b:f:B:i:I:C:S:p:T:', 'abnv', args, io, make, { iomapSize: 1 });
}

class MappedExchange implements StreamExchange {
  readonly #s: StreamSettings;
  readonly #pieces: Pieces;
  readonly #tool: Tool;
  readonly #sent = new Pattern();
  readonly #received = new Pattern();

  constructor(s: StreamSettings, pieces: Pieces, tool: Tool) {
    this.#s = s;
    this.#pieces = pieces;
    this.#tool = tool;
  }

  async run(test: StreamTest): Promise<void> {
    const client = this.#s.server !== undefined;
    const socket = this.#pieces.stream as RdmaSocket;
    const buffer = this.#tool.rnic.device.allocateMemory(Math.max(1, test.size));
    buffer[buffer.length - 1] = UNTOUCHED;
    socket.mapMemory(buffer, 0);
    if (client) await this.#pieces.write(new Uint8Array(SYNC_OCTETS));
    await this.#pieces.exactly(SYNC_OCTETS);
    if (!client) await this.#pieces.write(new Uint8Array(SYNC_OCTETS));
    const began = performance.now();
    let marker = 0;
    for (let i = 0; i < test.iterations; i++) {
      if (client) await this.#write(socket, buffer, test, marker++);
      await this.#watch(buffer, marker++);
      if (!client) await this.#write(socket, buffer, test, marker++);
    }
    sayFigures(this.#tool, test, performance.now() - began);
    socket.unmapMemory(buffer);
  }

  async #write(socket: RdmaSocket, buffer: Uint8Array, test: StreamTest, marker: number): Promise<void> {
    for (let n = 1; n < test.count; n++) await socket.writeMapped(buffer, 0);
    buffer[buffer.length - 1] = marker & 0xff;
    if (this.#s.verify) this.#sent.put(buffer.subarray(0, -1));
    await socket.writeMapped(buffer, 0);
  }

  /** Wait until the peer has written the last octet. */
  async #watch(buffer: Uint8Array, marker: number): Promise<void> {
    const come = (): boolean => buffer[buffer.length - 1] === (marker & 0xff);
    const { stream } = this.#pieces;
    if (!come()) {
      await new Promise<void>((resolve, reject) => {
        const stop = this.#tool.onArrival(() => {
          if (!come()) return;
          done();
          resolve();
        });
        const onClose = (): void => {
          done();
          reject(
            stream.errored === null
              ? new IwarpError('ERR_CONNECTION_CLOSED', 'the peer ended the connection')
              : streamError(stream.errored),
          );
        };
        const done = (): void => {
          stop();
          stream.off('close', onClose);
          stream.off('end', onClose);
        };
        stream.once('close', onClose);
        stream.once('end', onClose);
        stream.resume(); // a socket that is not read emits no end
        if (stream.destroyed || stream.readableEnded) onClose(); // its event has been emitted already
      });
    }
    if (!this.#s.verify) return;
    const wrong = this.#received.check(buffer.subarray(0, -1));
    if (wrong >= 0) throw new IwarpError('ERR_INVALID_STATE', `data verification failed byte ${wrong}`);
  }
}
