/** The example for OpenTelemetry, with the SDK that programs use. */
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { expect, it, onTestFinished } from 'vitest';
import { observe } from '../../examples/opentelemetry/index.ts';
import { connect, createServer, RemoteBuffer } from '../../src/index.ts';

it('reports connections, bytes and messages, and each connection as a span with its end', async () => {
  const spans = new InMemorySpanExporter();
  const metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: metrics, exportIntervalMillis: 3_600_000 });
  const meters = new MeterProvider({ readers: [reader] });
  const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
  const stop = observe({ meter: meters.getMeter('iwarp'), tracer: tracers.getTracer('iwarp') });
  onTestFinished(async () => {
    stop();
    await meters.shutdown();
  });
  const server = await createServer((connection) => {
    void connection.serve((request) => request.data).catch(() => undefined);
  }).listen({ host: '127.0.0.1', port: 0 });
  const { port } = server.address();

  const first = await connect(port, '127.0.0.1');
  await first.request('hello');
  await first.close();
  const second = await connect(port, '127.0.0.1');
  await expect(second.read(new RemoteBuffer(0x1234, 0n, 8))).rejects.toThrow(/access|invalid/i);
  await second.closed;
  await expect(connect(1, '127.0.0.1')).rejects.toMatchObject({ code: 'ERR_CONNECT' });
  await server.close();

  await expect.poll(() => spans.getFinishedSpans().length).toBe(4);
  const ended = spans.getFinishedSpans();
  expect(ended.filter(({ attributes }) => attributes['iwarp.cause'] === 'graceful')).toHaveLength(2);
  expect(ended.filter(({ status }) => Number(status.code) === 2)).toHaveLength(2);
  expect(ended.map(({ kind }) => kind).toSorted()).toEqual([1, 1, 2, 2]);
  expect(ended.filter(({ events }) => events.some(({ name }) => name === 'terminate'))).toHaveLength(2);
  for (const { attributes } of ended) expect(attributes['iwarp.bytes.in']).toBeGreaterThan(40);

  await reader.forceFlush();
  const found = metrics.getMetrics().at(-1)!.scopeMetrics[0]!.metrics;
  const points = (name: string): { value: unknown; attributes: Record<string, unknown> }[] =>
    found.find(({ descriptor }) => descriptor.name === name)!.dataPoints;
  expect(points('iwarp.connections').map(({ value }) => value)).toEqual([0, 0]);
  expect(points('iwarp.connection.failures')).toMatchObject([
    { value: 1, attributes: { 'error.type': 'rejected', 'iwarp.role': 'client' } },
  ]);
  const io = points('iwarp.io').map(({ value }) => value as number);
  expect(io).toHaveLength(2);
  expect(io[0]).toBe(io[1]); // both ends are here
  const terminates = points('iwarp.messages').filter(
    ({ attributes }) => attributes['iwarp.message'] === 'terminates',
  );
  expect(terminates.map(({ value }) => value)).toEqual([1, 1]);
});
