/**
 * What a file exports, another file imports, or it is part of a public entry point (package.json). What
 * nobody imports is dead, or a file's own affair: both look like something that others rely on.
 */
import ts from 'typescript';
import { expect, it } from 'vitest';
import { resolved, sourceFiles, textOf } from './support/modules.ts';

/**
 * What one file takes from another: these names, all, or those of its names that occur in the taker's text
 * (`import * as`, `import()`).
 */
interface Taking {
  readonly from: string;
  readonly names: readonly string[] | 'all' | 'some';
}

interface Module {
  readonly path: string;
  readonly exports: readonly string[];
  readonly takings: readonly Taking[];
  /** Every identifier of the text. */
  readonly words: ReadonlySet<string>;
}

function moduleOf(path: string, text: string): Module {
  const exports: string[] = [];
  const takings: Taking[] = [];
  const words = new Set<string>();
  const take = (specifier: ts.Node | undefined, names: Taking['names']): void => {
    // Built files are taken from their source.
    if (specifier !== undefined && ts.isStringLiteral(specifier))
      takings.push({
        from: resolved(path, specifier.text).replace(/^dist\/cli\/(.*)\.js$/, 'cli/$1.ts'),
        names,
      });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isIdentifier(node)) words.add(node.text);
    else if (ts.isImportDeclaration(node)) take(node.moduleSpecifier, imported(node));
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      take(node.arguments[0], 'some');
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument))
      take(node.argument.literal, 'some');
    else if (ts.isExportDeclaration(node)) {
      const names =
        node.exportClause !== undefined && ts.isNamedExports(node.exportClause)
          ? [...node.exportClause.elements]
          : null;
      exports.push(...(names ?? []).map(({ name }) => name.text));
      take(
        node.moduleSpecifier,
        names?.map(({ propertyName, name }) => (propertyName ?? name).text) ?? 'all',
      );
    } else if (ts.isStatement(node) && isExported(node)) exports.push(...declared(node));
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(path, text, ts.ScriptTarget.Latest));
  return { path, exports, takings, words };
}

function imported({ importClause }: ts.ImportDeclaration): Taking['names'] {
  const bindings = importClause?.namedBindings;
  if (bindings === undefined) return [];
  return ts.isNamedImports(bindings)
    ? bindings.elements.map(({ propertyName, name }) => (propertyName ?? name).text)
    : 'some';
}

const isExported = (node: ts.Statement): boolean =>
  ts.canHaveModifiers(node) &&
  (ts.getModifiers(node)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) ?? false);

/** The names that an exported statement declares; a default export has none. */
function declared(node: ts.Statement): string[] {
  const inPattern = (name: ts.BindingName): string[] =>
    ts.isIdentifier(name)
      ? [name.text]
      : name.elements.flatMap((element) => (ts.isBindingElement(element) ? inPattern(element.name) : []));
  if (ts.isVariableStatement(node))
    return node.declarationList.declarations.flatMap(({ name }) => inPattern(name));
  const { name } = node as ts.Statement & { readonly name?: ts.Node };
  return name !== undefined && ts.isIdentifier(name) ? [name.text] : [];
}

/** Exports that nobody takes, as `file: name`. What the files of `open` export is for everybody. */
function unused(modules: readonly Module[], open: ReadonlySet<string>): string[] {
  const takers = new Map<string, { readonly taking: Taking; readonly words: ReadonlySet<string> }[]>();
  for (const { takings, words } of modules) {
    for (const taking of takings)
      takers.set(taking.from, [...(takers.get(taking.from) ?? []), { taking, words }]);
  }
  const isTaken = (path: string, name: string): boolean =>
    (takers.get(path) ?? []).some(
      ({ taking: { names }, words }) =>
        names === 'all' || (names === 'some' ? words.has(name) : names.includes(name)),
    );
  return modules.flatMap(({ path, exports }) =>
    open.has(path) ? [] : exports.filter((name) => !isTaken(path, name)).map((name) => `${path}: ${name}`),
  );
}

/** The sources behind the `exports` of package.json. */
function entryPoints(): Set<string> {
  const { exports } = JSON.parse(textOf('package.json')) as {
    exports: Record<string, { readonly default?: string }>;
  };
  return new Set(
    Object.values(exports).flatMap((entry) =>
      entry.default === undefined ? [] : [entry.default.replace(/^\.\/dist\/(.*)\.js$/, 'src/$1.ts')],
    ),
  );
}

it('every export is imported somewhere, or public', () => {
  const paths = [
    ...['src', 'cli', 'conformance', 'bench', 'test', 'scripts', 'examples'].flatMap(sourceFiles),
    'bin/iwarp.js',
    'vitest.config.ts',
  ];
  const modules = paths.map((path) => moduleOf(path, textOf(path)));
  const open = entryPoints().add('test/support/plain-setup.ts'); // vitest's own call
  expect([...open].filter((path) => !paths.includes(path))).toEqual([]);
  expect(modules.reduce((sum, { exports }) => sum + exports.length, 0)).toBeGreaterThan(1000);
  expect(unused(modules, open)).toEqual([]);
});

it('exports and imports of every form are seen', () => {
  const modules = [
    moduleOf(
      'a/a.ts',
      `
      export const one = 1, { two, deep: [three] } = f();
      export function four(): void {}
      export class Five {}
      export interface Six {}
      export type Seven = 7;
      const eight = 8, nine = 9;
      export { eight, nine as ten };
      export default one;
    `,
    ),
    moduleOf(
      'a/b.ts',
      `
      export * from './c.ts';
      export { eleven } from './c.ts';
    `,
    ),
    moduleOf('a/c.ts', 'export const eleven = 11, twelve = 12;'),
    moduleOf('open.ts', 'export const thirteen = 13;'),
    moduleOf(
      'd.ts',
      'export let fourteen: number; export abstract class Fifteen {} export async function sixteen() ' +
        '{} export enum Seventeen { A }',
    ),
  ];
  const open = new Set(['open.ts']);
  expect(unused(modules, open)).toEqual([
    ...['one', 'two', 'three', 'four', 'Five', 'Six', 'Seven', 'eight', 'ten'].map(
      (name) => `a/a.ts: ${name}`,
    ),
    'a/b.ts: eleven',
    ...['fourteen', 'Fifteen', 'sixteen', 'Seventeen'].map((name) => `d.ts: ${name}`),
  ]);
  const taker = moduleOf(
    'e/e.ts',
    `
    import { one, two as second } from '../a/a.ts';
    import type { Six } from '../a/a.ts';
    import only, { type Seven } from '../a/a.ts';
    export { ten as tenth } from '../a/a.ts';
    import * as d from '../d.ts';
    const { three } = await import('../a/a.ts');
    type T = import('../a/b.ts').eleven;
    d.fourteen;
  `,
  );
  expect(unused([...modules, taker], open)).toEqual([
    ...['four', 'Five', 'eight'].map((name) => `a/a.ts: ${name}`),
    ...['Fifteen', 'sixteen', 'Seventeen'].map((name) => `d.ts: ${name}`),
    'e/e.ts: tenth',
  ]);
});

it('no type needs a newer TypeScript than the README says: typed arrays have no parameter before 5.7', () => {
  expect(
    sourceFiles('src').filter((path) => /\b(Uint8|Int32|Float64|BigUint64)Array</.test(textOf(path))),
  ).toEqual([]);
});
