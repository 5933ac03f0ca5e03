/** URIs of exports: `nbd://host[:port]/name`, `nbd+unix:///name?socket=path`, `rdma://host[:port]/name`. */
import { IwarpError, show } from '../base/errors.ts';

/** The port that IANA has for NBD; used for queue pairs too. */
const DEFAULT_PORT = 10809;

/** Where an export is. */
export type NbdTarget =
  | { readonly kind: 'tcp' | 'rdma'; readonly host: string; readonly port: number; readonly name: string }
  | { readonly kind: 'unix'; readonly path: string; readonly name: string };

/**
 * The parts of a URI.
 *
 * @throws ERR_INVALID_ARGUMENT
 */
export function parseUri(uri: unknown): NbdTarget {
  const wrong = (why: string): IwarpError =>
    new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.uri: ${why}, got ${show(uri)}; use nbd://HOST[:PORT]/NAME, ` +
        'nbd+unix:///NAME?socket=PATH or rdma://HOST[:PORT]/NAME',
    );
  const match =
    typeof uri === 'string' ? /^(nbd|nbd\+unix|rdma):\/\/([^/?]*)(?:\/([^?]*))?(?:\?(.*))?$/.exec(uri) : null;
  if (match === null) throw wrong('is no URI of an export');
  const [, scheme, authority = '', path = '', query] = match;
  const name = decoded(path);
  if (name === null) throw wrong('the name is not percent-encoded UTF-8');
  if (scheme === 'nbd+unix') {
    const socket = new URLSearchParams(query ?? '').get('socket');
    if (authority !== '' || socket === null || socket === '') throw wrong('names no socket');
    return { kind: 'unix', path: socket, name };
  }
  const parts = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d{1,5}))?$/.exec(authority);
  const host = parts?.[1] ?? parts?.[2] ?? '';
  const port = Number(parts?.[3] ?? DEFAULT_PORT);
  if (host === '' || port < 1 || port > 65_535) throw wrong('names no host and port');
  return { kind: scheme === 'nbd' ? 'tcp' : 'rdma', host, port, name };
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
