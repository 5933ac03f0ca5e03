/** A TCP transport whose connections are written to a capture file. */
import { defaultCrc32cEngine } from '../../crc32c/engine.ts';
import { wrapTransport } from '../../transport/middleware.ts';
import { openPcapFile, pcapTap } from '../../transport/pcap-tap.ts';
import type { Transport } from '../../transport/port.ts';
import { realScheduler } from '../../transport/scheduler.ts';
import { tap } from '../../transport/tap.ts';
import { TcpTransport } from '../../transport/tcp.ts';

export interface Capture {
  readonly transport: Transport;
  close(): Promise<void>;
}

/** Capture everything that crosses this transport into `path`. */
export function captureTransport(path: string): Capture {
  const file = openPcapFile(path);
  const tcp = new TcpTransport({ allocate: (octets) => defaultCrc32cEngine().allocate(octets) });
  return {
    transport: wrapTransport(tcp, tap(realScheduler, pcapTap((bytes) => file.output(bytes)))),
    close: async () => file.close(),
  };
}
