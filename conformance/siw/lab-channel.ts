/**
 * Commands on the peer: one TCP connection (or one `ssh`) a command, spoken as agent.sh describes.
 */
import type { ChildProcessByStdio } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { Duplex, Writable, type Readable } from 'node:stream';
import type { PeerProcess } from './bench.ts';

/**
 * The stream of a child process that runs agent.sh. Its input is forwarded, not joined to the output: Node
 * destroys the input as soon as it hears of the child's end, which on a busy machine is before the last of
 * the output has been read, and that would be lost with it.
 */
export function overChild({ stdin, stdout }: ChildProcessByStdio<Writable, Readable, null>): Duplex {
  stdin.on('error', () => undefined); // the output's end says it
  const writable = new Writable({
    write: (chunk, _encoding, done) => void stdin.write(chunk, () => done()),
    final: (done) => {
      stdin.end();
      done();
    },
  });
  return Duplex.from({ readable: stdout, writable });
}

/**
 * Start `command` over `stream`, whose other end runs agent.sh. `killer` runs another command, to end this
 * one.
 */
export function runOver(stream: Duplex, command: string, killer: (command: string) => void): PeerProcess {
  const nonce = randomBytes(8).toString('hex');
  const last = new RegExp(`\\n${nonce} status (\\d+)\\n$`);
  let text = '';
  let pid: string | undefined;
  let output = '';
  let over = false;
  let begin = (): void => {};
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const ended = new Promise<{ status: number; output: string }>((resolve) => {
    const finish = (status: number): void => {
      if (over) return;
      over = true;
      stream.destroy();
      resolve({ status, output });
    };
    stream.setEncoding('utf8');
    stream.on('data', (chunk: string) => {
      text += chunk;
      pid ??= new RegExp(`${nonce} pid (\\d+)\\n`).exec(text)?.[1];
      if (pid !== undefined) begin();
      const status = last.exec(text);
      output = text.replace(`${nonce} pid ${pid}\n`, '').replace(last, '');
      if (status !== null) finish(Number(status[1]));
    });
    stream.on('error', () => finish(-1));
    stream.on('end', () => finish(-1));
    stream.on('close', () => finish(-1));
  });
  stream.write(`${nonce}\n${Buffer.from(command).toString('base64')}\n`);
  return {
    get output() {
      return output;
    },
    ended,
    kill: async (signal = 'KILL') => {
      await Promise.race([begun, ended]);
      // The process leads a group that holds all processes it started.
      if (!over) killer(`kill -s ${signal} -- -${pid}; true`);
      await ended;
    },
  };
}
