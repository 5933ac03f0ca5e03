/** How a client of either profile finds its store. */
import type { EngineKind, Rnic } from '../api/environment.ts';
import type { Names } from '../base/errors.ts';

/** Options of {@link connect} and {@link connectUrdma}. */
export interface KvConnectOptions {
  /** Host name or address. Default `127.0.0.1`. */
  readonly host?: string | undefined;
  /** The store's port for RDMA clients. */
  readonly port: number;
  /** Places of keys that are remembered. Default 65536; 0: none. */
  readonly locations?: number | undefined;
  /** Where the streams run. Default: as IWARP_ENGINE says. Not together with `rnic`. */
  readonly engine?: EngineKind | undefined;
  /** Device that carries the connection. Default: the process's own. */
  readonly rnic?: Rnic | undefined;
}

export const CONNECT_NAMES: Names<KvConnectOptions> = {
  host: true,
  port: true,
  locations: true,
  engine: true,
  rnic: true,
};
