/**
 * Metrics and traces of every connection of this process for OpenTelemetry, from the diagnostics channels.
 * The types below are the parts of `@opentelemetry/api` that are used.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { DIAGNOSTICS_CHANNELS, type ConnectionDiagnostics } from 'iwarp';

type Attributes = Record<string, string | number | boolean>;

interface Instrument {
  add(value: number, attributes?: Attributes): void;
}

interface Observable {
  addCallback(callback: (result: { observe(value: number, attributes?: Attributes): void }) => void): void;
}

interface About {
  readonly description: string;
  readonly unit: string;
}

/** The parts of a `Meter` that are used. */
interface Meter {
  createCounter(name: string, about: About): Instrument;
  createUpDownCounter(name: string, about: About): Instrument;
  createHistogram(name: string, about: About): { record(value: number, attributes?: Attributes): void };
  createObservableCounter(name: string, about: About): Observable;
}

interface Span {
  setAttributes(attributes: Attributes): unknown;
  addEvent(name: string, attributes?: Attributes): unknown;
  setStatus(status: { code: number; message?: string }): unknown;
  end(): void;
}

/** The parts of a `Tracer` that are used. */
interface Tracer {
  startSpan(name: string, options: { kind: number; attributes: Attributes }): Span;
}

/** `SpanKind` and `SpanStatusCode` of the API. */
const KIND = { active: 2, passive: 1 } as const;
const ERROR = 2;

type Connection = ConnectionDiagnostics['connection'];
type Counters = ReturnType<Connection['counters']>;

/** A connection that is established. */
interface Live {
  readonly span: Span;
  readonly since: number;
}

const role = ({ role: side }: Connection): string => (side === 'active' ? 'client' : 'server');

/** Bytes and messages of connections that have ended, by direction. */
class Past {
  readonly io = { receive: 0, transmit: 0 };
  readonly messages = new Map<string, number>();

  add(counters: Counters): void {
    this.io.receive += counters.octetsIn;
    this.io.transmit += counters.octetsOut;
    for (const [name, count] of messagesOf(counters))
      this.messages.set(name, (this.messages.get(name) ?? 0) + count);
  }
}

const messagesOf = ({ messagesIn, messagesOut }: Counters): [name: string, count: number][] => [
  ...Object.entries(messagesIn).map(([name, count]): [string, number] => [`receive ${name}`, Number(count)]),
  ...Object.entries(messagesOut).map(([name, count]): [string, number] => [
    `transmit ${name}`,
    Number(count),
  ]),
];

const instruments = (meter: Meter) => ({
  active: meter.createUpDownCounter('iwarp.connections', {
    description: 'Connections that are established',
    unit: '{connection}',
  }),
  duration: meter.createHistogram('iwarp.connection.duration', {
    description: 'From the establishment of a connection to its end',
    unit: 's',
  }),
  failures: meter.createCounter('iwarp.connection.failures', {
    description: 'Connections that were not established',
    unit: '{connection}',
  }),
});

/** Begin to observe; the returned function ends it. */
export function observe({ meter, tracer }: { readonly meter: Meter; readonly tracer: Tracer }): () => void {
  const open = new Map<Connection, Live>();
  const past = new Past();
  const { active, duration, failures } = instruments(meter);
  observeTraffic(meter, open, past);

  const begin = (connection: Connection): void => {
    const { negotiated, remoteAddress } = connection;
    const attributes: Attributes = {
      'network.peer.address': remoteAddress?.address ?? '',
      'network.peer.port': remoteAddress?.port ?? 0,
      'iwarp.mpa.revision': negotiated!.revision,
      'iwarp.crc': negotiated!.crc,
      'iwarp.markers': negotiated!.sendMarkers || negotiated!.receiveMarkers,
      'iwarp.ird': negotiated!.ird,
      'iwarp.ord': negotiated!.ord,
    };
    const span = tracer.startSpan('iwarp.connection', { kind: KIND[connection.role], attributes });
    open.set(connection, { span, since: performance.now() });
    active.add(1, { 'iwarp.role': role(connection) });
  };

  const end = (
    connection: Connection,
    { cause, error }: { cause: string; error: Error | undefined },
  ): void => {
    const live = open.get(connection);
    if (live === undefined) return; // its start-up has failed, or it is older than this
    open.delete(connection);
    const counters = connection.counters();
    past.add(counters);
    const by = { 'iwarp.role': role(connection) };
    active.add(-1, by);
    duration.record((performance.now() - live.since) / 1000, { ...by, 'iwarp.cause': cause });
    const { octetsIn, octetsOut } = counters;
    live.span.setAttributes({
      'iwarp.cause': cause,
      'iwarp.bytes.in': octetsIn,
      'iwarp.bytes.out': octetsOut,
    });
    if (cause !== 'graceful') live.span.setStatus({ code: ERROR, message: error?.message ?? cause });
    live.span.end();
  };

  const terminated = (connection: Connection, description: string): void => {
    open.get(connection)?.span.addEvent('terminate', { 'iwarp.terminate': description });
  };
  const failed = (connection: Connection, type: string): void =>
    failures.add(1, { 'iwarp.role': role(connection), 'error.type': type });
  return listen({ begin, end, terminated, failed });
}

/** What to do about each event of a connection. */
interface Listener {
  begin(connection: Connection): void;
  end(connection: Connection, how: { readonly cause: string; readonly error: Error | undefined }): void;
  terminated(connection: Connection, description: string): void;
  failed(connection: Connection, type: string): void;
}

const FAILURES: readonly string[] = ['rejected', 'unreachable', 'address-error', 'connect-error'];

function listen({ begin, end, terminated, failed }: Listener): () => void {
  const seen = (message: unknown): void => {
    const { connection, event } = message as ConnectionDiagnostics;
    if (event.type === 'established') begin(connection);
    else if (event.type === 'disconnected') end(connection, event);
    else if (event.type === 'terminate') terminated(connection, event.terminate.description);
    else if (FAILURES.includes(event.type)) failed(connection, event.type);
  };
  const names = DIAGNOSTICS_CHANNELS.filter((name) => name.startsWith('iwarp:connection:'));
  for (const name of names) subscribe(name, seen);
  return () => {
    for (const name of names) unsubscribe(name, seen);
  };
}

/** Counters that are read when a reader asks for them: connections that are open, and all before them. */
function observeTraffic(meter: Meter, open: ReadonlyMap<Connection, Live>, past: Past): void {
  const now = (): Past => {
    const sum = new Past();
    sum.io.receive = past.io.receive;
    sum.io.transmit = past.io.transmit;
    for (const [name, count] of past.messages) sum.messages.set(name, count);
    for (const connection of open.keys()) sum.add(connection.counters());
    return sum;
  };
  const io = meter.createObservableCounter('iwarp.io', { description: 'Bytes on the wire', unit: 'By' });
  io.addCallback((result) => {
    for (const [direction, octets] of Object.entries(now().io))
      result.observe(octets, { 'network.io.direction': direction });
  });
  const messages = meter.createObservableCounter('iwarp.messages', {
    description: 'RDMA messages by kind',
    unit: '{message}',
  });
  messages.addCallback((result) => {
    for (const [key, count] of now().messages) {
      const [direction, name] = key.split(' ') as [string, string];
      result.observe(count, { 'network.io.direction': direction, 'iwarp.message': name });
    }
  });
}
