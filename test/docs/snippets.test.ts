// The examples of the docstrings, as they stand in docs/api, compile under strict settings, except that
// elements of arrays are taken to be there. Names that an example takes from around it are declared below;
// everything else must be a name of the package.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PAGES = [
  'iwarp.md',
  'iwarp/cm.md',
  'iwarp/kv.md',
  'iwarp/shared.md',
  'iwarp/sockets.md',
  'iwarp/testing.md',
  'iwarp/verbs.md',
  'iwarp/wire.md',
] as const;
const ENTRIES: Readonly<Record<string, string>> = {
  'iwarp.md': 'src/index.ts',
  'iwarp/cm.md': 'src/cm/index.ts',
  'iwarp/kv.md': 'src/kv/index.ts',
  'iwarp/shared.md': 'src/shared/index.ts',
  'iwarp/sockets.md': 'src/sockets/index.ts',
  'iwarp/testing.md': 'src/testing.ts',
  'iwarp/verbs.md': 'src/verbs/index.ts',
  'iwarp/wire.md': 'src/wire.ts',
};

/** What surrounds an example. */
const AROUND = `
import * as api from './src/index.ts';
import * as cmApi from './src/cm/index.ts';
import * as verbs from './src/verbs/index.ts';
import * as testing from './src/testing.ts';
import * as sockets from './src/sockets/index.ts';
import net from 'node:net';
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
declare const connection: api.Connection;
declare const remote: api.RemoteBuffer, counter: api.RemoteBuffer, lock: api.RemoteBuffer;
declare const region: api.MemoryRegion, mr: api.MemoryRegion;
declare const message: api.Message;
declare const view: api.RemoteView;
declare const device: verbs.Device, pd: verbs.ProtectionDomain;
declare const cq: verbs.CompletionQueue, qp: verbs.QueuePair;
declare const cm: cmApi.ConnectionManager;
declare const time: testing.VirtualTime, network: testing.MemoryTransport;
declare const out: verbs.WorkCompletion[], list: verbs.SendWorkRequest[];
declare const request: verbs.SendWorkRequest, query: Uint8Array;
declare const transport: testing.MemoryTransport;
declare const server: api.Server & testing.PortHandler, client: api.Client & testing.PortHandler;
declare const socket: sockets.Socket & { send(...what: unknown[]): void }, frame: Buffer, place: Buffer;
declare const datagram: Uint8Array, next: number, expected: number, port: number, address: string;
declare const tickets: Map<api.Connection, api.RemoteBuffer>;
declare function answer(request: api.Request): Promise<void>;
declare function find(name: string): Promise<{ readonly body: Uint8Array }>;
declare function work(data: Uint8Array): Uint8Array;
declare const block: Uint8Array, page: Uint8Array, octets: Uint8Array;
declare const text: string, signal: AbortSignal, rkey: number;
declare function readFileSync(file: string): Buffer;
declare function handle(...what: unknown[]): void;
declare function serve(connection: api.Connection): void;
declare function tellPeer(...what: unknown[]): void;
declare function completions(): Promise<void>;
declare function encodeTicket(stag: number): Uint8Array;
declare function retryLater(list: readonly verbs.SendWorkRequest[]): void;
`;

/** One file an example: what surrounds it, then a function with the example in it. */
function sources(): Map<string, string> {
  const found = new Map<string, string>();
  const program = ts.createProgram(
    Object.values(ENTRIES).map((entry) => join(ROOT, entry)),
    options(),
  );
  const checker = program.getTypeChecker();
  const names = new Map(
    Object.values(ENTRIES).map((entry) => {
      const symbol = checker.getSymbolAtLocation(program.getSourceFile(join(ROOT, entry))!)!;
      return [entry, new Set(checker.getExportsOfModule(symbol).map(({ name }) => name))];
    }),
  );
  for (const page of PAGES) {
    const examples = [
      ...readFileSync(join(ROOT, 'docs/api', page), 'utf8').matchAll(/^#+ Example\n\n```ts\n([^]*?)^```$/gm),
    ].map((match) => match[1]!);
    for (const [i, example] of examples.entries()) {
      const own = ENTRIES[page]!;
      const words = new Set(example.match(/\b[A-Za-z_]\w*\b/g));
      const taken = new Set<string>();
      const imports = [own, ...Object.values(ENTRIES)].map((entry) => {
        const wanted = [...names.get(entry)!].filter((name) => words.has(name) && !taken.has(name));
        for (const name of wanted) taken.add(name);
        return wanted.length === 0 ? '' : `import { ${wanted.join(', ')} } from './${entry}';`;
      });
      const name = `example ${i + 1} of ${page}`.replaceAll(/[^a-z0-9]+/g, '-');
      found.set(
        join(ROOT, `${name}.ts`),
        `${imports.join('\n')}\n${AROUND}\nexport async function example(): Promise<void> {\n${example}\n}\n`,
      );
    }
  }
  return found;
}

function options(): ts.CompilerOptions {
  const { config } = ts.readConfigFile(join(ROOT, 'tsconfig.json'), (path) => readFileSync(path, 'utf8')) as {
    config: { compilerOptions: object };
  };
  return {
    ...ts.convertCompilerOptionsFromJson(config.compilerOptions, ROOT).options,
    isolatedDeclarations: false,
    declaration: false,
    noUncheckedIndexedAccess: false,
  };
}

it('every example of the reference compiles', () => {
  const files = sources();
  expect(files.size).toBeGreaterThan(50);
  const host = ts.createCompilerHost(options());
  const { getSourceFile, fileExists, readFile } = host;
  host.fileExists = (path) => files.has(path) || fileExists(path);
  host.readFile = (path) => files.get(path) ?? readFile(path);
  host.getSourceFile = (path, version, ...rest) => {
    const text = files.get(path);
    return text === undefined
      ? getSourceFile(path, version, ...rest)
      : ts.createSourceFile(path, text, version);
  };
  const program = ts.createProgram([...files.keys()], options(), host);
  const wrong = [...files.keys()].flatMap((path) => {
    const source = program.getSourceFile(path)!;
    return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map(
      (diagnostic) => {
        const line = source.text.slice(0, diagnostic.start ?? 0).split('\n').length;
        return (
          `${path.slice(ROOT.length)}: ${source.text.split('\n')[line - 1]}: ` +
          `${ts.flattenDiagnosticMessageText(diagnostic.messageText, ' ')}`
        );
      },
    );
  });
  expect(wrong).toEqual([]);
}, 120_000);
