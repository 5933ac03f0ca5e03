/** Moves some octets over loopback with the process's own device, and tells as JSON what that device was found to work with. */
import { openRnic, connect, createServer } from '../src/index.ts';
import { settingsOf } from '../src/api/environment.ts';

const rnic = openRnic();
const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
const [client, peer] = await Promise.all([connect({ rnic, host: '127.0.0.1', port: server.address.port }), server.accept()]);
const region = peer!.allocate(100_000);
await client.write(Buffer.alloc(region.length, 7), peer!.share(region));
await client.send('written');
(await peer!.receive())!.release();
if (region.bytes.some((octet) => octet !== 7)) throw new Error('what was written is not there');
await client.close();
await server.close();
process.stdout.write(`${JSON.stringify(settingsOf(rnic))}\n`);
