/** The sources as modules: which files there are, and what each of them names in an import. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** The checkout. */
const ROOT: string = fileURLToPath(new URL('../..', import.meta.url));

/**
 * The TypeScript files of a folder of the checkout, as paths from its root with slashes. Fetched or built
 * files are left out.
 */
export function sourceFiles(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)).split(sep).join('/'))
    .filter((path) => !/\/(\.cache|dist|node_modules)\//.test(path));
}

/** The text of a file of the checkout. */
export const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

/** What a text imports, word for word: statements of every form, `export … from`, types alone, `import()`. */
export function specifiersIn(text: string): string[] {
  return ts.preProcessFile(text, true, true).importedFiles.map(({ fileName }) => fileName);
}

/** One import of a text, and whether the program needs it when the module is loaded, or only its compiler. */
interface Reference {
  readonly specifier: string;
  readonly typeOnly: boolean;
}

/**
 * The imports and re-exports of a text that name values, and those that name types alone. An `import()` in an
 * expression is left out: it loads later.
 */
export function referencesIn(text: string): Reference[] {
  const found: Reference[] = [];
  const add = (specifier: ts.Expression, typeOnly: boolean): void => {
    found.push({ specifier: (specifier as ts.StringLiteral).text, typeOnly });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, importsTypes(node.importClause));
    else if (ts.isExportDeclaration(node) && node.moduleSpecifier !== undefined)
      add(node.moduleSpecifier, node.isTypeOnly || namesTypes(node.exportClause));
    else if (ts.isImportTypeNode(node))
      add((node.argument as ts.LiteralTypeNode).literal as ts.Expression, true);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile('module.ts', text, ts.ScriptTarget.Latest));
  return found;
}

function importsTypes(clause: ts.ImportClause | undefined): boolean {
  if (clause === undefined) return false; // loaded for what it does
  if (clause.phaseModifier === ts.SyntaxKind.TypeKeyword) return true;
  return clause.name === undefined && namesTypes(clause.namedBindings);
}

function namesTypes(names: ts.NamedImportBindings | ts.NamedExportBindings | undefined): boolean {
  return (
    names !== undefined &&
    (ts.isNamedImports(names) || ts.isNamedExports(names)) &&
    names.elements.length > 0 &&
    names.elements.every((element) => element.isTypeOnly)
  );
}

/**
 * Groups of modules that reach each other, each sorted: the strongly connected parts of more than one module,
 * by the algorithm of Tarjan.
 */
export function circlesIn(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const circles: string[][] = [];
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const visit = (node: string): void => {
    order.set(node, order.size);
    low.set(node, order.get(node)!);
    stack.push(node);
    for (const next of graph.get(node) ?? []) {
      if (!order.has(next)) visit(next);
      if (stack.includes(next)) low.set(node, Math.min(low.get(node)!, low.get(next)!));
    }
    if (low.get(node) !== order.get(node)) return;
    const circle = stack.splice(stack.indexOf(node));
    if (circle.length > 1) circles.push(circle.sort());
  };
  for (const node of graph.keys()) if (!order.has(node)) visit(node);
  return circles;
}

/**
 * What a specifier means in `file`: a path from the root of the checkout, or the name of a module from
 * outside as it is.
 */
export function resolved(file: string, specifier: string): string {
  return specifier.startsWith('.') ? join(dirname(file), specifier).split(sep).join('/') : specifier;
}
