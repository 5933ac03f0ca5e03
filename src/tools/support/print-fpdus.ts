/** Middleware that prints each FPDU of the connections made through it. */
import { ConnectionDecoder } from '../../inspect/connection-decoder.ts';
import { renderLine } from '../../inspect/text.ts';
import type { PortMiddleware } from '../../transport/middleware.ts';
import { realScheduler } from '../../transport/scheduler.ts';
import { tap } from '../../transport/tap.ts';

/** Print what crosses, one line an FPDU, as the connecting side sees it. */
export function printFpdus(print: (line: string) => void): PortMiddleware {
  return tap(realScheduler, (info) => {
    const seconds = (time: number): number => (time - info.time) / 1000;
    const decoder = new ConnectionDecoder({ emit: (event) => print(renderLine(event)) });
    return {
      open: () => undefined,
      data: (direction, bytes, start, end, time) => decoder.push(direction === 'out' ? 0 : 1, bytes, start, end, seconds(time)),
      end: () => undefined,
      close: (_error, time) => decoder.close(seconds(time)),
    };
  });
}
