/** The owner of `torn.ts`: rewrites keys as fast as it can. Prints its port, and at the end the rounds. */
import { createStore } from '../../src/kv/index.ts';
import { KEYS, valueOf } from './torn-values.ts';

const [octets = '1048576'] = process.argv.slice(2);
const store = createStore({ octets: Number(octets), engine: 'worker' });
const { rdma } = await store.listen({ rdma: 0 });
let round = 0;
for (let key = 0; key < KEYS; key++) store.set(`key ${key}`, valueOf(key, ++round));
console.log(rdma);
const write = (): void => {
  const end = performance.now() + 5;
  while (performance.now() < end) {
    const key = Math.floor(Math.random() * KEYS);
    store.set(`key ${key}`, valueOf(key, ++round));
  }
  setImmediate(write);
};
write();
// It ends with the process that reads, however that one ends.
process.stdin.resume().on('end', () => process.exit());
process.on('SIGTERM', () => {
  console.log(round);
  process.exit();
});
