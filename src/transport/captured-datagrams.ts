/** A network of datagrams of which everything is written to a capture. */
import type { DatagramNetwork, DatagramPort, DatagramTarget } from './datagram.ts';
import { isIP } from './ip-address.ts';
import type { CaptureFile } from './pcap-tap.ts';
import { realScheduler } from './scheduler.ts';

/** `network` with all that its ports send and receive in `capture`. */
export function capturedDatagrams(network: DatagramNetwork, capture: CaptureFile): DatagramNetwork {
  return {
    bind(binding, handler, ready) {
      let own: DatagramTarget = { address: '0.0.0.0', port: 0 };
      const seen = {
        onDatagram: (...[bytes, start, end, from]: Parameters<typeof handler.onDatagram>): void => {
          capture.datagram(from, near(own, from), bytes.subarray(start, end), realScheduler.now());
          handler.onDatagram(bytes, start, end, from);
        },
        onClose: (error: Error): void => handler.onClose(error),
      };
      network.bind(binding, seen, (port, error) => {
        if (port === undefined) {
          ready(undefined, error);
          return;
        }
        own = port.address;
        ready(captured(port, capture));
      });
    },
  };
}

function captured(port: DatagramPort, capture: CaptureFile): DatagramPort {
  return {
    address: port.address,
    send: (chunks, count, to, done) => {
      for (const bytes of chunks.slice(0, count))
        capture.datagram(near(port.address, to), to, bytes, realScheduler.now());
      port.send(chunks, count, to, done);
    },
    close: () => port.close(),
    setRef: (on) => port.setRef(on),
  };
}

/** Our own end as the peer sees it: a socket that is bound to every address names none. */
function near(own: DatagramTarget, peer: DatagramTarget): DatagramTarget {
  if (own.address !== '0.0.0.0' && own.address !== '::') return own;
  const loopback = peer.address.startsWith('127.') || peer.address === '::1';
  const address = loopback ? peer.address : isIP(peer.address) === 4 ? '0.0.0.0' : '::';
  return { address, port: own.port };
}
