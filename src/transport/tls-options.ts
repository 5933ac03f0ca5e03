/** TLS options of programs, and TLS details of connections. Nothing here uses `node:tls`. */
import { checkOptions, IwarpError, show, type Names } from '../base/errors.ts';

/** PEM text or its bytes, or several of them. */
export type TlsMaterial = string | Uint8Array | readonly (string | Uint8Array)[];

/**
 * TLS below MPA, for `tls` of `connect` and `createServer`. The fields are those of `tls.connect` and
 * `tls.createServer` of Node, with the same meaning. With a worker engine the options pass to another
 * thread, so that functions are refused.
 */
export interface TlsOptions {
  /** Certificates of authorities to trust in place of the system's. */
  readonly ca?: TlsMaterial | undefined;
  /** Our certificate chain. A server needs one. */
  readonly cert?: TlsMaterial | undefined;
  /** The private key of `cert`. */
  readonly key?: TlsMaterial | undefined;
  /** PKCS #12 in place of `cert` and `key`. */
  readonly pfx?: string | Uint8Array | undefined;
  /** Passphrase of the key or of `pfx`. */
  readonly passphrase?: string | undefined;
  /** Revocation lists. */
  readonly crl?: TlsMaterial | undefined;
  /** Client: the server's name in SNI and in its certificate. Default: the host, unless it is an address. */
  readonly servername?: string | undefined;
  /** Server: ask the client for a certificate. Default false. */
  readonly requestCert?: boolean | undefined;
  /** Refuse a peer whose certificate cannot be verified. Default true. */
  readonly rejectUnauthorized?: boolean | undefined;
  /** Protocols of ALPN, the best one first. Default `['iwarp']` on both sides. */
  readonly ALPNProtocols?: readonly string[] | undefined;
  /** Ciphers, as OpenSSL writes them. */
  readonly ciphers?: string | undefined;
  /** Curves of the key agreement, as OpenSSL writes them. */
  readonly ecdhCurve?: string | undefined;
  /** Signature algorithms, as OpenSSL writes them. */
  readonly sigalgs?: string | undefined;
  /** `TLSv1.2` or `TLSv1.3`, say. */
  readonly minVersion?: string | undefined;
  /** The highest version to offer. */
  readonly maxVersion?: string | undefined;
  /** Server: 48 bytes that seal its session tickets, for several processes behind one port. */
  readonly ticketKeys?: Uint8Array | undefined;
  /** Server: seconds for which a session can be resumed. */
  readonly sessionTimeout?: number | undefined;
  /** Client: a second opinion on the certificate of the server; an error that is returned refuses it. */
  readonly checkServerIdentity?:
    | ((servername: string, certificate: unknown) => Error | undefined)
    | undefined;
  /** Server: the context for the name that a client asks for. */
  readonly SNICallback?:
    | ((servername: string, done: (error: Error | null, context?: unknown) => void) => void)
    | undefined;
}

const TLS_NAMES: Names<TlsOptions> = {
  ca: true,
  cert: true,
  key: true,
  pfx: true,
  passphrase: true,
  crl: true,
  servername: true,
  requestCert: true,
  rejectUnauthorized: true,
  ALPNProtocols: true,
  ciphers: true,
  ecdhCurve: true,
  sigalgs: true,
  minVersion: true,
  maxVersion: true,
  ticketKeys: true,
  sessionTimeout: true,
  checkServerIdentity: true,
  SNICallback: true,
};

/** Results of the TLS handshake with the peer. */
export interface TlsInfo {
  /** `TLSv1.3`, say. */
  readonly protocol: string;
  /** Name of the cipher suite. */
  readonly cipher: string;
  /** The protocol of ALPN, or null if the peers named none. */
  readonly alpnProtocol: string | null;
  /** Whether the certificate of the peer was verified. A server that asks for none has nothing to verify. */
  readonly authorized: boolean;
  /** Why the certificate was not verified. */
  readonly authorizationError: string | undefined;
  /** The certificate of the peer in DER, if it sent one: a server that resumes a session does not. */
  readonly peerCertificate: Uint8Array | undefined;
  /** Common name of the subject of that certificate. */
  readonly peerName: string | undefined;
  /** Whether an earlier session was resumed. */
  readonly resumed: boolean;
}

/**
 * Check the value of `tls`: true means the defaults. Undefined and false mean no TLS.
 *
 * @throws ERR_INVALID_ARGUMENT for another type, an unknown field, a server without a certificate
 */
export function checkTls(tls: unknown, side: 'client' | 'server'): TlsOptions | undefined {
  if (tls === undefined || tls === false) return undefined;
  const options = tls === true ? {} : tls;
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.tls must be true, false or an object with fields of node:tls, got ${show(tls)}`,
    );
  checkOptions('options.tls', options, TLS_NAMES);
  const given: TlsOptions = options;
  if (side === 'server' && given.SNICallback === undefined && given.pfx === undefined) {
    for (const name of ['key', 'cert'] as const) {
      if (given[name] === undefined)
        throw new IwarpError(
          'ERR_INVALID_ARGUMENT',
          `options.tls.${name} is missing: a TLS server needs one`,
        );
    }
  }
  return given;
}

/** Fields of TLS options that hold a function: those cannot pass to another thread. */
export function functionsIn(tls: TlsOptions): readonly string[] {
  return Object.entries(tls)
    .filter(([, value]) => typeof value === 'function')
    .map(([name]) => name);
}
