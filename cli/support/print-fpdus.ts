/** Middleware that prints each FPDU of the connections made through it. */
import { ConnectionDecoder } from '../../src/inspect/decode/connection-decoder.ts';
import { renderLine } from '../../src/inspect/render/text.ts';
import { painted } from './colour.ts';
import type { PortMiddleware } from '../../src/transport/middleware.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { tap } from '../../src/transport/tap.ts';

/** Print one line for each FPDU that crosses, as the connecting side sees it. */
export function printFpdus(print: (line: string) => void, colour: boolean): PortMiddleware {
  return tap(realScheduler, (info) => {
    const seconds = (time: number): number => (time - info.time) / 1000;
    const decoder = new ConnectionDecoder({
      emit: (event) => print(colour ? painted(renderLine(event), event) : renderLine(event)),
    });
    return {
      open: () => undefined,
      data: (direction, bytes, start, end, time) =>
        decoder.push(direction === 'out' ? 0 : 1, bytes, start, end, seconds(time)),
      end: () => undefined,
      close: (_error, time) => decoder.close(seconds(time)),
    };
  });
}
