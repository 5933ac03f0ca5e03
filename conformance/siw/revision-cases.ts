/**
 * MPA revision 1 with tools that only Send: there siw stays at IRD 0 and ORD 0, so that rping's Reads fail
 * inside it.
 */
import { check, within, type Bench, type InteropCase } from './bench.ts';

const PORT = 7471;
const REVISION_1 = ['--mpa-revision', '1'];

/** Our side connects with revision 1 to a stock tool. */
function client(
  tool: string,
  stock: string,
  ours: (host: string, port: string) => string[],
  says: RegExp,
): InteropCase {
  return {
    driver: 'stock',
    tool,
    ours: 'client',
    topic: 'set-up',
    name: 'with MPA revision 1',
    run: async (bench) => {
      const server = await bench.listening(stock, PORT);
      const { host, port } = bench.peer.reach(PORT);
      const result = await bench.iwarp(...ours(host, String(port)), ...REVISION_1, '--pcap', bench.capture);
      check(result.status === 0, `exit status ${result.status}: ${result.stdout}${result.stderr}`);
      const { status, output } = await within(
        server.ended,
        bench.patience,
        () => `the stock side goes on: ${server.output}`,
      );
      check(status === 0 && says.test(output), `stock side: status ${status}: ${output}`);
      return `both ended with 0; ${output.trim().split('\n').at(-1)}`;
    },
  };
}

/** A stock tool connects to ours; with the driver set to revision 1 it sends a plain Request. */
function server(
  program: string,
  ours: (port: string) => readonly string[],
  stock: (host: string, port: string) => string,
  says: RegExp,
): InteropCase {
  return {
    driver: 'revision-1',
    tool: program,
    ours: 'server',
    topic: 'set-up',
    name: 'with MPA revision 1',
    run: async (bench: Bench) => {
      const port = await bench.freePort();
      const tool = await bench.startListening([...ours(String(port)), '--pcap', bench.capture], port);
      const result = await bench.stock(stock(bench.peer.hostAddress, String(port)));
      check(
        result.status === 0 && says.test(result.output),
        `stock side: status ${result.status}: ${result.output}`,
      );
      const own = await within(
        tool.ended,
        bench.patience,
        () => `our side goes on: ${tool.stdout}${tool.stderr}`,
      );
      check(own.status === 0, `our side: status ${own.status}: ${own.stdout}${own.stderr}`);
      return `both ended with 0; ${result.output.trim().split('\n').at(-1)}`;
    },
  };
}

export const REVISION_CASES: readonly InteropCase[] = [
  client(
    'rdma_client',
    `rdma_server -p ${PORT}`,
    (host, port) => ['rdma_client', '-s', host, '-p', port],
    /end 0/,
  ),
  client(
    'ucmatose',
    `ucmatose -p ${PORT} -C 10 -S 100`,
    (host, port) => ['ucmatose', '-s', host, '-p', port, '-C', '10', '-S', '100'],
    /return status 0/,
  ),
  server(
    'rdma_server',
    (port) => ['rdma_server', '-p', port],
    (host, port) => `rdma_client -s ${host} -p ${port}`,
    /end 0/,
  ),
  server(
    'ucmatose',
    (port) => ['ucmatose', '-p', port, '-C', '10', '-S', '100'],
    (host, port) => `ucmatose -s ${host} -p ${port} -C 10 -S 100`,
    /return status 0/,
  ),
];
