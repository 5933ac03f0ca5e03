/** What our tools work with under this process's environment: asked of a device, on a connection to itself, not read from variables. */
import { openRnic, retire, settingsOf } from '../../src/api/environment.ts';
import { connect, createServer } from '../../src/index.ts';

/** Where the streams run, which CRC32c, how sockets are read. */
export interface OurSettings {
  readonly engine: string;
  readonly crc32c: string;
  readonly receive: string;
}

export async function ourSettings(): Promise<OurSettings> {
  const rnic = openRnic();
  const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
  const client = await connect({ rnic, host: '127.0.0.1', port: server.address.port });
  const settings = settingsOf(rnic);
  await client.close();
  await server.close();
  retire(rnic);
  if (settings === null) throw new Error('the device does not tell what it works with');
  const { engine, crc32c, receive } = settings;
  return { engine, crc32c, receive };
}
