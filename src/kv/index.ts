/**
 * `iwarp/kv`: a key-value store whose GETs cost its owner nothing: clients read its table by RDMA. Clients of
 * Redis and memcached use it too. And what people build by hand from atomics: counters and locks.
 *
 * @module iwarp/kv
 */
export {
  connect,
  KvClient,
  type KvClientStats,
  type SetOptions,
  type Versioned,
} from './client.ts';
export type { KvConnectOptions } from './client-options.ts';
export { RingReader, RingWriter, type RingOptions } from './remote-ring.ts';
export { RemoteCounter, RemoteLock, type LockOptions } from './remote-words.ts';
export {
  connectUrdma,
  UrdmaClient,
  type UrdmaClientStats,
  type UrdmaConnectOptions,
  type UrdmaGetOptions,
  type UrdmaSetOptions,
} from './urdma-client.ts';
export {
  createStore,
  KvStore,
  STORE_PROFILES,
  type StoreListenOptions,
  type StoreOptions,
  type StorePorts,
  type StoreProfile,
  type StoreStats,
} from './store.ts';
