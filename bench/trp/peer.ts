/** The other process of the measurements of iWARP over UDP: servers of each kind, until it is killed. */
import { servePorts } from './rows.ts';
import { serveSink, serveWish, type ServerWish } from './sizes.ts';

process.on('message', (wish: ServerWish) => serveWish(wish));
process.on('disconnect', () => process.exit());
process.send!({ ...(await servePorts()), bareSink: await serveSink() });
