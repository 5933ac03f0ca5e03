/**
 * An exchange over 127.0.0.1, in plain JavaScript, for programs that try the package in a bundle or as its
 * users get it: `exchange(iwarp, engine)` reads 64 octets of 42 and gives the last of them.
 */
export const EXCHANGE: string = `
async function exchange({ connect, createServer, RemoteBuffer }, engine) {
  const server = await createServer({ engine }, (c) => {
    const region = c.allocate(64, 'all');
    region.bytes.fill(42);
    void c.send(c.share(region).toBytes());
  }).listen({ host: '127.0.0.1', port: 0 });
  const connection = await connect({ engine, host: '127.0.0.1', port: server.address().port });
  const message = await connection.receive();
  const back = new Uint8Array(64);
  await connection.read(RemoteBuffer.fromBytes(message.data), back);
  await connection.close();
  await server.close();
  if (!back.every((octet) => octet === 42)) throw new Error('what was read is not what lies there');
  return back[63];
}
`;
