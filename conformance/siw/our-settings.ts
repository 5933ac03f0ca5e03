/**
 * The settings that a process's device works with under its environment: asked of the device, on a connection
 * to itself that has moved octets, not read from variables.
 */
import { retire, settingsOf, type RnicSettings } from '../../src/api/environment.ts';
import { connect, createServer, openRnic } from '../../src/index.ts';

/** Where the streams run, which CRC32c, how sockets are read. */
export type OurSettings = RnicSettings;

const OCTETS = 100_000;

export async function ourSettings(): Promise<OurSettings> {
  const rnic = openRnic();
  const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
  const [client, peer] = await Promise.all([
    connect({ rnic, host: '127.0.0.1', port: server.address().port }),
    server.accept(),
  ]);
  const region = peer!.allocate(OCTETS, 'all');
  await client.write(Buffer.alloc(OCTETS, 7), peer!.share(region));
  await client.send('written');
  (await peer!.receive())!.release();
  if (region.bytes.some((octet) => octet !== 7)) throw new Error('what was written is not there');
  const settings = settingsOf(rnic);
  await client.close();
  await server.close();
  retire(rnic);
  if (settings === null) throw new Error('the device does not tell what it works with');
  return settings;
}
