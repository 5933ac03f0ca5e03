// The API reference: `npm run docs` writes docs/api from the docstrings. Warnings are errors: every exported
// symbol is documented, every link leads somewhere.
import { readFileSync } from 'node:fs';

const errorCodes = [
  ...readFileSync(new URL('src/base/errors.ts', import.meta.url), 'utf8').matchAll(/^ {2}(ERR_\w+):/gm),
].map((match) => match[1]);

const clauses = [
  ...readFileSync(new URL('src/inspect/decode/problems.ts', import.meta.url), 'utf8').matchAll(
    /^ {2}'([\w-]+)': 'RFC/gm,
  ),
].map((match) => match[1]);

/** Members of literal types written in one line: what surrounds them says what they are. */
const inlineMembers = {
  // The value of each is its description.
  'iwarp.ERROR_CODES': errorCodes,
  'iwarp/inspect.CLAUSES': clauses,
  'iwarp.Connection.peer': ['maxMessageSize', 'extensions'],
  'iwarp.RemoteBuffer.toJSON': ['rkey', 'address', 'length'],
  'iwarp/verbs.AsyncEvent': ['type', 'qp', 'terminate', 'by', 'error', 'cq', 'srq', 'device'],
  'iwarp/cm.CmEvent': [
    'type',
    'parameters',
    'negotiated',
    'markersAsked',
    'error',
    'reason',
    'terminate',
    'by',
    'cause',
    'status',
  ],
  'iwarp/wire.takeLegacyDepths': ['depths', 'privateData'],
  'iwarp/nbd.memoryDevice': ['memory'],
  'iwarp/nbd.NbdServer.listenRdma': ['host', 'port'],
  'iwarp/nbd.NbdListenOptions': ['host', 'port', 'path'],
  'iwarp/nbd.NbdTarget': ['kind', 'host', 'port', 'path', 'name'],
  'iwarp/inspect.SdpFields.memory': ['length', 'stag', 'to'],
  'iwarp/shared.SharedListener.address': ['address', 'port'],
  'iwarp/shared.SharedSocket.remoteAddress': ['address', 'port'],
  'iwarp/shared.RdmaSharedConnection.remote': ['address', 'port'],
  'iwarp/testing.Segmentation': ['kind', 'octets', 'seed', 'max'],
  'iwarp/testing.Fault': ['kind', 'direction', 'at', 'bit', 'milliseconds'],
};

/**
 * @type {Partial<import('typedoc').TypeDocOptions> &
 * Partial<import('typedoc-plugin-markdown').PluginOptions>}
 */
export default {
  name: 'iwarp',
  entryPoints: [
    'src/index.ts',
    'src/verbs/index.ts',
    'src/cm/index.ts',
    'src/sockets/index.ts',
    'src/nbd/index.ts',
    'src/inspect/index.ts',
    'src/shared/index.ts',
    'src/kv/index.ts',
    'src/http/index.ts',
    'src/wire.ts',
    'src/testing.ts',
  ],
  tsconfig: 'tsconfig.build.json',
  plugin: ['typedoc-plugin-markdown'],
  router: 'module',
  out: 'docs/api',
  readme: 'none',
  // Line numbers would make every page stale with every change.
  disableSources: true,
  excludePrivate: true,
  excludeInternal: true,
  excludeExternals: true,
  // The author's order: fields as they lie on the wire, codes by layer.
  sort: ['source-order'],
  validation: {
    notExported: true,
    invalidLink: true,
    notDocumented: true,
    invalidPath: true,
    rewrittenLink: true,
  },
  treatWarningsAsErrors: true,
  treatValidationWarningsAsErrors: true,
  intentionallyNotDocumented: Object.entries(inlineMembers).flatMap(([owner, names]) =>
    names.map((name) => `${owner}.__type.${name}`),
  ),
  // The switch of environment variables, which are documented where they are read.
  intentionallyNotExported: ['BusyPoll'],
  hidePageHeader: true,
  hideBreadcrumbs: true,
  useCodeBlocks: true,
  expandParameters: true,
  parametersFormat: 'table',
  interfacePropertiesFormat: 'table',
  typeDeclarationFormat: 'table',
  propertyMembersFormat: 'table',
};
