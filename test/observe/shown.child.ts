/**
 * A program that shows itself, or not: opens a device, says so, and ends when its input does. `exit` as
 * argument: ends at once.
 */
import { openRnic } from '../../src/index.ts';

const rnic = openRnic({ name: process.argv[2] ?? 'child0' });
process.on('warning', (warning) =>
  process.stdout.write(`${warning.name} ${(warning as { code?: string }).code ?? ''}\n`),
);
if (process.argv[3] !== 'exit') {
  process.stdin.on('data', () => undefined);
  process.stdin.on('end', () => rnic.device.close());
  // After the turns that bind the socket: a line for each, so that the reader sees that the program goes on.
  const begin = setInterval(() => {
    process.stdout.write('up\n');
    clearInterval(begin);
  }, 20);
}
