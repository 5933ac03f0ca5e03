/**
 * Proves the package as its users get it: packs it, installs the tarball into an empty project, and uses
 * every entry from ESM, from require(), in a bundle and from strict TypeScript; then publint and attw look at
 * the tarball. Needs the registry for the one dependency.
 *
 *   npm run package-check               builds first
 *   npm run package-check -- --built    takes dist as it is
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { buildUnless, inFolder, install, newProject, pack, ROOT, run } from './fresh-project.ts';
import { EXCHANGE } from './exchange-program.ts';

const BIN = join(ROOT, 'node_modules', '.bin');
const LIMIT_MS = 240_000;

/** One name that each entry must give, and whose absence would make the entry useless. */
const NAMES: Readonly<Record<string, readonly string[]>> = {
  iwarp: ['connect', 'createServer', 'RemoteBuffer', 'openRnic', 'IwarpError', 'ERROR_CODES'],
  'iwarp/verbs': ['Device', 'ACCESS'],
  'iwarp/cm': ['ConnectionManager', 'resolvePolicy'],
  'iwarp/sockets': ['connect', 'createServer', 'RdmaSocket', 'RdmaServer'],
  'iwarp/wire': [
    'encodeStartupFrame',
    'decodeSegment',
    'OPCODE',
    'parseTerminate',
    'putTerminate',
    'describeTerminateCode',
    'TERM',
  ],
  'iwarp/testing': [
    'MemoryTransport',
    'VirtualTime',
    'wrapTransport',
    'segmenting',
    'faulty',
    'randomFaults',
    'tap',
    'pcapTap',
    'realScheduler',
  ],
  // Further entries of package.json are imported and must export something.
};
/** The program of the worker thread, which bundlers ask for by this name. */
const ENGINE = 'iwarp/engine';

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<Record<string, unknown>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** The entries that hold code to import, as an importer writes them. */
function entries(): string[] {
  const { name, exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Manifest;
  const specifiers = Object.keys(exports)
    .filter((key) => !key.endsWith('.json'))
    .map((key) => name + key.slice(1));
  const missing = Object.keys(NAMES).filter((specifier) => !specifiers.includes(specifier));
  if (!specifiers.includes(ENGINE)) missing.push(ENGINE);
  if (missing.length > 0) throw new Error(`package.json does not export ${missing.join(', ')}`);
  return specifiers.filter((specifier) => specifier !== ENGINE);
}

/** The conformance suite. */
const SUITE = 'iwarp-conformance';
/** Everything that may be in each package. */
const SHAPES: Readonly<Record<string, readonly RegExp[]>> = {
  iwarp: [
    /^(package\.json|README\.md|CHANGELOG\.md|LICENSE)$/,
    /^bin\/iwarp\.js$/,
    /^docs\/[\w/-]+(-\d+\.\d+)?\.md$/,
    /^dist\/(?!bench\/|conformance\/)[\w/-]+(\.d\.ts|\.js)$/,
  ],
  // Its modules, its golden vectors, known deviations, and how to test a peer of one's own.
  [SUITE]: [
    /^(package\.json|README\.md|LICENSE)$/,
    /^bin\/iwarp-conformance\.js$/,
    /^dist\/(?!siw\/|mutation\/|test\/)[\w/-]+(\.d\.ts|\.js)$/,
    /^vectors\/[\w-]+\.json$/,
    /^waivers\/[\w.-]+\.txt$/,
    /^profiles\/PROTOCOL\.md$/,
  ],
};
/** The modules that a module or a declaration imports. */
const IMPORTS = /^(?:import|export)\b[^'"]*?from\s+['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]\s*\)/gm;

/**
 * Nothing is in the package that its user cannot run or read, and nothing is missing there that a file in it
 * asks for.
 */
function checkFiles(root: string): void {
  const { name, dependencies, peerDependencies } = JSON.parse(
    readFileSync(join(root, 'package.json'), 'utf8'),
  ) as Manifest;
  const files = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).replaceAll('\\', '/'));
  const wrong = files
    .filter((file) => !SHAPES[name]!.some((shape) => shape.test(file)))
    .map((file) => `${file}: does not belong there`);
  const known = Object.keys({ ...dependencies, ...peerDependencies });
  for (const file of files.filter((name) => /\.(js|ts)$/.test(name))) {
    const text = readFileSync(join(root, file), 'utf8');
    if (text.includes('//# sourceMappingURL=')) wrong.push(`${file}: asks for a source map`);
    if (/\.test\./.test(file)) wrong.push(`${file}: is a test`);
    for (const [, named, loaded] of text.matchAll(IMPORTS)) {
      const specifier = (named ?? loaded)!;
      const found = specifier.startsWith('.')
        ? existsSync(
            join(
              root,
              dirname(file),
              file.endsWith('.ts') ? specifier.replace(/\.[jt]s$/, '.d.ts') : specifier,
            ),
          )
        : specifier.startsWith('node:') ||
          known.some((module) => specifier === module || specifier.startsWith(`${module}/`));
      if (!found) wrong.push(`${file}: asks for ${specifier}`);
    }
  }
  if (wrong.length > 0) throw new Error(`the package is not as it should be:\n${wrong.join('\n')}`);
  say(`${name}: what belongs there, and all that the files ask for`);
}

/** Arguments of a command, the status that it ends with, and some of its words. */
type Expected = readonly (readonly [args: string, status: number, words: RegExp])[];

/** Its tools and its version; the suite and the benchmark say where they are to be found. */
const ALONE: Expected = [
  ['--help', 0, /rping/],
  ['--version', 0, /^iwarp \d+\.\d+\.\d+\n$/],
  ['conformance list', 1, /npm install iwarp-conformance/],
  ['bench --list', 1, /part of the repository/],
];
const WITH_SUITE: Expected = [
  ['conformance run mpa.request', 0, /\b0 failed/],
  ['conformance vectors --check', 0, /./],
];
/** The suite without the library. */
const SUITE_ALONE: Expected = [
  ['vectors --check', 0, /./],
  ['list mpa.request', 0, /mpa\.request/],
  ['run mpa.request', 2, /npm install iwarp/],
];

/** Runs the installed command of a package. */
function useCommand(project: string, name: string, expected: Expected): void {
  const command = (...args: string[]): { readonly status: number | null; readonly out: string } => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [join('node_modules', name, 'bin', `${name}.js`), ...args],
      { cwd: project, encoding: 'utf8', timeout: LIMIT_MS },
    );
    return { status, out: stdout + stderr };
  };
  for (const [args, status, words] of expected) {
    const ended = command(...args.split(' '));
    if (ended.status !== status || !words.test(ended.out))
      throw new Error(`${name} ${args} has ended with ${ended.status}:\n${ended.out}`);
  }
  say(`the installed command ${name}: ${expected.map(([args]) => args).join(', ')}`);
}

/** The exchange, and a look at what a module exports. */
const USE = `${EXCHANGE}
function look(specifier, names, module) {
  if (Object.keys(module).length === 0) throw new Error(specifier + ' exports nothing');
  const missing = names.filter((name) => module[name] === undefined);
  if (missing.length > 0) throw new Error(specifier + ' does not export ' + missing);
}
`;

function useFromJavaScript(project: string, specifiers: readonly string[]): void {
  const looks = (load: (specifier: string) => string): string =>
    specifiers
      .map(
        (specifier) =>
          `look('${specifier}', ${JSON.stringify(NAMES[specifier] ?? [])}, ${load(specifier)});\n`,
      )
      .join('');
  const esm =
    USE +
    looks((specifier) => `await import('${specifier}')`) +
    "for (const engine of ['thread', 'worker']) await exchange(await import('iwarp'), engine);\n";
  writeFileSync(join(project, 'use.mjs'), esm);
  run(project, process.execPath, 'use.mjs');
  say(`import: ${specifiers.length} entries, and an RDMA Read with each engine`);
  // Node 20.19 and later load ESM with require() where there is no top-level await.
  const cjs =
    USE +
    looks((specifier) => `require('${specifier}')`) +
    "exchange(require('iwarp'), 'thread').then(() => exchange(require('iwarp'), 'worker'));\n";
  writeFileSync(join(project, 'use.cjs'), cjs);
  run(project, process.execPath, '--disable-warning=ExperimentalWarning', 'use.cjs');
  say(`require(): ${specifiers.length} entries, and an RDMA Read with each engine`);
}

/** In one file with the program, and the worker's beside it. */
function useInBundle(project: string): void {
  const kinds = [
    ['esm', '.mjs'],
    ['cjs', '.cjs'],
  ] as const;
  writeFileSync(
    join(project, 'bundle.js'),
    `${EXCHANGE}import * as iwarp from 'iwarp';\n` +
      "exchange(iwarp, 'thread').then(() => exchange(iwarp, 'worker'));\n",
  );
  for (const [format, extension] of kinds) {
    const options = [
      '--bundle',
      '--platform=node',
      `--format=${format}`,
      `--outdir=${format}`,
      `--out-extension:.js=${extension}`,
      '--log-level=error',
    ];
    run(project, join(BIN, 'esbuild'), 'bundle.js', `iwarp-engine=${ENGINE}`, ...options);
    run(project, process.execPath, join(format, `bundle${extension}`));
  }
  say(`bundled as ${kinds.map(([format]) => format).join(', ')}: an RDMA Read with each engine`);
}

// oxlint-disable-next-line max-lines-per-function -- the program that it compiles is most of it
function useFromTypeScript(project: string, specifiers: readonly string[]): void {
  const source = specifiers.flatMap((specifier, i) => [
    `import * as entry${i} from '${specifier}';`,
    `void [${(NAMES[specifier] ?? []).map((name) => `entry${i}.${name}`).join(', ')}];`,
  ]);
  source.push(`
import { connect, IwarpError, RemoteBuffer, type Connection, type IwarpErrorCode } from 'iwarp';
import type { Fault } from 'iwarp/testing';
import type { CompletionQueue } from 'iwarp/verbs';
import type { TerminateInfo } from 'iwarp/wire';
export async function fetch(ticket: Uint8Array): Promise<Uint8Array> {
  const connection: Connection = await connect({ host: '127.0.0.1', port: 4711 });
  const remote: RemoteBuffer = RemoteBuffer.fromBytes(ticket);
  const local = new Uint8Array(remote.length);
  await connection.read(remote, local);
  return local;
}
export const codeOf = (error: unknown): IwarpErrorCode | undefined =>
  error instanceof IwarpError ? error.code : undefined;
export const flip: Fault = { kind: 'flip', direction: 'in', at: 3, bit: 0 };
export const layerOf = (info: TerminateInfo): number => info.layer;
/** What may be undefined may be handed on, under exactOptionalPropertyTypes too. */
export const handedOn = (host?: string, signal?: AbortSignal): Promise<Connection> =>
  connect({ port: 4711, host, signal });
// @ts-expect-error An @internal member is not for users.
export const pushOf = (cq: CompletionQueue): unknown => cq.push;
// @ts-expect-error A port is a number. This proves that the types are there, rather than any.
void connect({ host: '127.0.0.1', port: 'http' });
`);
  for (const file of ['use.ts', 'use.mts']) writeFileSync(join(project, file), source.join('\n'));
  const options = {
    strict: true,
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
    noEmit: true,
    target: 'es2023',
    lib: ['es2023', 'esnext.disposable'],
    types: ['node'],
    typeRoots: [join(ROOT, 'node_modules', '@types')],
  };
  // The resolutions that understand "exports": Node's, and bundlers'. The older of Node's does not let a
  // CommonJS source import ESM.
  const kinds = {
    node16: [['use.mts'], { module: 'node16' }],
    nodenext: [['use.mts', 'use.ts'], { module: 'nodenext' }],
    bundler: [['use.ts'], { module: 'esnext', moduleResolution: 'bundler' }],
  } as const;
  for (const [kind, [files, more]] of Object.entries(kinds)) {
    writeFileSync(
      join(project, `tsconfig.${kind}.json`),
      JSON.stringify({ compilerOptions: { ...options, ...more }, files }),
    );
    run(
      project,
      process.execPath,
      join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc'),
      '-p',
      `tsconfig.${kind}.json`,
    );
  }
  say(`TypeScript, strict: ${specifiers.length} entries, resolved as ${Object.keys(kinds).join(', ')}`);
}

async function main(): Promise<void> {
  const specifiers = entries();
  buildUnless(process.argv);
  await inFolder('package', (folder) => {
    const tarball = pack(folder);
    const project = newProject(folder, 'project');
    install(project, tarball);
    checkFiles(join(project, 'node_modules', 'iwarp'));
    useFromJavaScript(project, specifiers);
    useInBundle(project);
    useFromTypeScript(project, specifiers);
    useCommand(project, 'iwarp', ALONE);
    const suite = pack(folder, SUITE);
    install(project, suite);
    checkFiles(join(project, 'node_modules', SUITE));
    useCommand(project, 'iwarp', WITH_SUITE);
    const other = newProject(folder, 'other');
    install(other, suite);
    useCommand(other, SUITE, SUITE_ALONE);
    for (const packed of [tarball, suite]) {
      run(ROOT, join(BIN, 'publint'), '--strict', packed);
      run(ROOT, join(BIN, 'attw'), '--profile', 'esm-only', '--no-color', packed);
    }
    say('publint: nothing to say; attw: types resolve');
  });
}

await main();
