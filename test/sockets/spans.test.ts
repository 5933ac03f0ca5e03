/**
 * Traces as a program has them: OpenTelemetry with its AsyncLocalStorage, an http server over byte streams
 * and fifty requests at a time over a few connections. No span has the parent of another request.
 */
import { once } from 'node:events';
import http from 'node:http';
import type { Duplex } from 'node:stream';
import { context, trace, type Tracer } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { connect, createServer } from '../../src/sockets/index.ts';

const AT_A_TIME = 50;
const ROUNDS = 4;
/** Connections are used by one request after the other, and so by several traces. */
const CONNECTIONS = 8;

const spans = new InMemorySpanExporter();
let tracer: Tracer;

beforeAll(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  tracer = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }).getTracer('test');
});
afterAll(() => context.disable());

/** A span within the present one. */
const mark = (name: string): void => tracer.startSpan(name).end();

/** Asks for `/number`; callbacks and events of the request mark their place. */
function ask(agent: http.Agent, number: number): Promise<void> {
  return tracer.startActiveSpan(`ask ${number}`, async (span) => {
    const request = http.request({ agent, method: 'POST', path: `/${number}` });
    request.write(Buffer.alloc(100_000, number), () => mark(`asked ${number}`));
    request.end();
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    let text = '';
    for await (const part of response) text += String(part);
    mark(`answered ${number}`);
    expect(text.length).toBe(200_000);
    span.end();
  });
}

it.each(['thread', 'worker'] as const)('no span has a foreign parent, engine %s', async (engine) => {
  spans.reset();
  const rnic = openRnic({ engine });
  const web = http.createServer((request, response) => {
    const number = request.url!.slice(1);
    void tracer.startActiveSpan(`serve ${number}`, async (span) => {
      await request.resume().toArray();
      mark(`read ${number}`);
      response.write(Buffer.alloc(100_000), () => mark(`wrote ${number}`));
      await new Promise((resolve) => setImmediate(resolve));
      response.end(Buffer.alloc(100_000), () => mark(`ended ${number}`));
      span.end();
    });
  });
  const server = createServer({ rnic, allowHalfOpen: true }, (socket) => web.emit('connection', socket));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as { port: number };
  const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  Object.assign(agent, {
    createConnection: (): Duplex => connect({ port, host: '127.0.0.1', rnic, allowHalfOpen: true }),
  });
  for (let round = 0; round < ROUNDS; round++)
    await Promise.all(Array.from({ length: AT_A_TIME }, (_, i) => ask(agent, round * AT_A_TIME + i)));
  agent.destroy();
  server.close();
  await once(server, 'close');

  const ended = spans.getFinishedSpans();
  const byId = new Map(ended.map((span) => [span.spanContext().spanId, span.name]));
  const parents = ended.map(({ name, parentSpanContext: parent }) => {
    const [what, number] = name.split(' ');
    return [what, parent === undefined ? 'none' : byId.get(parent.spanId)!.replace(` ${number}`, ' its own')];
  });
  const COUNT = AT_A_TIME * ROUNDS;
  const seen = new Map<string, number>();
  for (const [what, parent] of parents)
    seen.set(`${what} < ${parent}`, (seen.get(`${what} < ${parent}`) ?? 0) + 1);
  expect(Object.fromEntries(seen)).toEqual({
    'ask < none': COUNT,
    'asked < ask its own': COUNT,
    'answered < ask its own': COUNT,
    'serve < none': COUNT,
    'read < serve its own': COUNT,
    'wrote < serve its own': COUNT,
    'ended < serve its own': COUNT,
  });
  expect(trace.getActiveSpan()).toBeUndefined();
});
