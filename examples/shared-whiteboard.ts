/**
 * A whiteboard that several programs draw on: one shared region, a row of characters for each line. No
 * program sends a message: a stroke is an RDMA Write, a look is an RDMA Read, and the owner's program sleeps.
 *
 *   npx tsx examples/shared-whiteboard.ts                      the owner and three painters in one program
 *   npx tsx examples/shared-whiteboard.ts owner PORT           the owner: prints the board every second
 *   npx tsx examples/shared-whiteboard.ts paint HOST PORT TEXT ROW COLUMN
 */
import { connect, listen, type SharedListener } from 'iwarp/shared';

const [ROWS, COLUMNS] = [8, 40];

/** The board as lines of text. */
function lines(board: Uint8Array): string {
  const text = Buffer.from(board).toString('latin1').replaceAll('\0', '.');
  return Array.from({ length: ROWS }, (_, row) => text.slice(row * COLUMNS, (row + 1) * COLUMNS)).join('\n');
}

/** Every painter's region of the connection is its own; the owner's is one for all. */
async function owner(port: number): Promise<{ board: Uint8Array; listener: SharedListener }> {
  const board = new Uint8Array(new SharedArrayBuffer(ROWS * COLUMNS));
  const listener = await listen({ host: '127.0.0.1', port, memory: board });
  return { board, listener };
}

/** Draw `text`, then look at the whole board. */
async function paint(host: string, port: number, text: string, row: number, column: number): Promise<string> {
  const { socket, region } = await connect({ host, port }, { octets: ROWS * COLUMNS });
  region.set(Buffer.from(text, 'latin1'));
  await socket.settled(socket.write(text.length, 0, row * COLUMNS + column));
  await socket.settled(socket.read(region.length, 0, 0));
  const seen = lines(region);
  await socket.close();
  return seen;
}

const [role = 'all', ...args] = process.argv.slice(2);
if (role === 'owner') {
  const { board, listener } = await owner(Number(args[0] ?? 7471));
  console.log(`the board is at port ${listener.address.port}; interrupt to end`);
  setInterval(() => console.log(`\n${lines(board)}`), 1000);
} else if (role === 'paint') {
  const [host = '127.0.0.1', port = '7471', text = 'hello', row = '0', column = '0'] = args;
  console.log(await paint(host, Number(port), text, Number(row), Number(column)));
} else {
  const { board, listener } = await owner(0);
  const { port } = listener.address;
  await paint('127.0.0.1', port, '+----------------+', 2, 4);
  await paint('127.0.0.1', port, '| one whiteboard |', 3, 4);
  const seen = await paint('127.0.0.1', port, '+----------------+', 4, 4);
  console.log(lines(board));
  console.log(seen === lines(board) ? 'all see the same board' : 'the boards differ');
  process.exitCode = seen === lines(board) ? 0 : 1;
  await listener.close();
}
