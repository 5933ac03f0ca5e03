/** A listener at every address of a machine: answers come from the address that a client has asked. */
import { describe, expect, it } from 'vitest';
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import { MemoryDatagrams } from '../../src/simnet/datagrams.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';
import type { DatagramHost } from '../../src/transport/datagram.ts';
import { TrpTransport } from '../../src/trp/transport.ts';
import { encodeTrpSetup, TRP_OPCODE } from '../../src/trp/wire.ts';
import { pattern } from '../verbs/support.ts';
import { End } from './support.ts';

/** Machines on one network, each with its addresses; routing prefers the first one. */
class Machines {
  readonly time: VirtualTime = new VirtualTime();
  readonly network: MemoryDatagrams = new MemoryDatagrams(this.time);

  open(addresses: readonly string[]): Rnic {
    const { time } = this;
    const host: DatagramHost = {
      resolve: (name, _family, done) => time.defer(() => done(new Error(`${name} is unknown`), '')),
      route: ({ address }, done) => {
        const local = addresses.find((one) => one.includes(':') === address.includes(':'));
        const peer = address === '0:0:0:0:0:0:0:1' ? '::1' : address;
        time.defer(() => done(local === undefined ? null : { local, peer }));
      },
      mtu: () => 1500,
      addresses: () => addresses,
    };
    const transport = new TrpTransport(this.network, time, host);
    return openRnic({ wire: 'trp', transport, scheduler: time });
  }

  /** An address and port that another program has. */
  occupy(host: string, port: number): void {
    const handler = { onDatagram: () => undefined, onClose: () => undefined };
    this.network.bind({ host, port }, handler, () => undefined);
  }

  run(ms: number): void {
    this.time.advance(ms);
  }
}

interface Listening {
  readonly port: number;
  readonly ends: End[];
  readonly error: unknown;
  close(): void;
}

/** A server that takes each request with a new queue pair. */
function listen(machines: Machines, rnic: Rnic, host: string, port = 0, rejects = false): Listening {
  const made = { port: 0, ends: [] as End[], error: undefined as unknown, close: (): void => undefined };
  rnic.cm
    .listen({ host, port }, (request) => {
      const end = new End(rnic);
      made.ends.push(end);
      end.watch(request);
      if (rejects) {
        request.reject(pattern(3));
        return;
      }
      end.qp.postRecv({ wrId: 1, sges: [{ mr: end.memory, length: 100 }] });
      request.accept(end.qp);
    })
    .then(
      (listener) => {
        made.port = listener.address.port;
        made.close = () => listener.close();
      },
      (error: unknown) => (made.error = error),
    );
  machines.run(0);
  return made;
}

async function settled(): Promise<void> {
  for (let i = 0; i < 5; i++) await Promise.resolve();
}

function dial(machines: Machines, rnic: Rnic, host: string, port: number): End {
  const end = new End(rnic);
  end.watch(rnic.cm.connect(end.qp, { host, port }));
  machines.run(1000);
  return end;
}

const CLIENT = ['127.0.0.1', '::1'];

describe('a listener at every address', () => {
  it('answers from the address that the client has asked, IPv4 and IPv6', async () => {
    const machines = new Machines();
    const addresses = ['10.0.0.1', '10.0.0.2', '192.0.2.7', 'fd00::1', 'fd00::2'];
    const server = listen(machines, machines.open(addresses), '::');
    await settled();
    const client = machines.open(CLIENT);
    for (const address of addresses) {
      const end = dial(machines, client, address, server.port);
      expect(end.eventTypes, address).toEqual(['established']);
      expect(end.connection!.remoteAddress!.address).toBe(address);
      expect(server.ends.at(-1)!.connection!.localAddress!.address).toBe(address);
      end.qp.postSend({ wrId: 2, opcode: 'send', inline: pattern(40) });
      machines.run(1000);
      expect(end.poll()).toMatchObject([{ wrId: 2, status: 'success' }]);
    }
    expect(server.ends).toHaveLength(addresses.length);
  });

  it('rejects from that address too', async () => {
    const machines = new Machines();
    const server = listen(machines, machines.open(['10.0.0.1', '10.0.0.2']), '0.0.0.0', 7000, true);
    await settled();
    const end = dial(machines, machines.open(CLIENT), '10.0.0.2', server.port);
    expect(end.events[0]).toMatchObject({ type: 'rejected', parameters: { privateData: pattern(3) } });
  });

  it('follows addresses that come and go', async () => {
    const machines = new Machines();
    const addresses = ['10.0.0.1'];
    const server = listen(machines, machines.open(addresses), '0.0.0.0', 7000);
    await settled();
    const client = machines.open(CLIENT);
    addresses.push('10.0.0.3');
    machines.run(5_000);
    expect(dial(machines, client, '10.0.0.3', server.port).eventTypes).toEqual(['established']);
    addresses.shift();
    machines.run(5_000);
    machines.network.bind(
      { host: '10.0.0.1', port: 7000 },
      { onDatagram: () => undefined, onClose: () => undefined },
      (port) => expect(port).toBeDefined(),
    );
    machines.run(0);
    server.close();
    machines.run(60_000);
    expect(machines.time.pending).toBe(0);
  });

  it('finds a port that is free at all addresses, and names one that is not', async () => {
    const machines = new Machines();
    // The first two ports that the network gives out.
    machines.occupy('10.0.0.2', 49_152);
    machines.occupy('10.0.0.2', 49_153);
    machines.run(0);
    const rnic = machines.open(['10.0.0.1', '10.0.0.2']);
    const server = listen(machines, rnic, '0.0.0.0');
    await settled();
    expect(server.port).toBeGreaterThan(49_153);
    expect(dial(machines, machines.open(CLIENT), '10.0.0.2', server.port).eventTypes).toEqual([
      'established',
    ]);
    const other = listen(machines, rnic, '0.0.0.0', 49_152);
    await settled();
    expect(other.error).toMatchObject({ code: 'ERR_CONNECT' });
    // Nothing is left bound.
    machines.network.bind(
      { host: '10.0.0.1', port: 49_152 },
      { onDatagram: () => undefined, onClose: () => undefined },
      (port) => expect(port).toBeDefined(),
    );
    machines.run(0);
  });

  it('IPv4 alone or IPv6 alone is what it was asked for', async () => {
    const machines = new Machines();
    const rnic = machines.open(['10.0.0.1', 'fd00::1']);
    const client = machines.open(CLIENT);
    const server = listen(machines, rnic, '0.0.0.0', 7000);
    await settled();
    const request = encodeTrpSetup({
      opcode: TRP_OPCODE.REQUEST,
      psn: 1,
      ack: 0,
      ird: 0,
      ord: 0,
      privateData: new Uint8Array(0),
    });
    const from = { address: '::1', port: 5, family: 'IPv6' } as const;
    machines.network.carry(request, from, { address: 'fd00::1', port: 7000 }, () => undefined);
    machines.run(100);
    expect(machines.network.counters().unreachable).toBe(1);
    expect(server.ends).toHaveLength(0);
    expect(dial(machines, client, '10.0.0.1', 7000).eventTypes).toEqual(['established']);
  });
});

it("a client takes answers from its peer's address however the program has written it", async () => {
  const machines = new Machines();
  const server = listen(machines, machines.open(['::1']), '::1', 7000);
  await settled();
  const end = dial(machines, machines.open(CLIENT), '0:0:0:0:0:0:0:1', server.port);
  expect(end.eventTypes).toEqual(['established']);
});
