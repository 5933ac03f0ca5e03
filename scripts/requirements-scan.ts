// Finds requirement ids in the repository: in the titles of tests, as data of conformance cases, anywhere in
// the sources. Titles are read from the syntax tree, so an id in a comment, in a skipped test or in a suite
// without tests proves nothing. Where a title is built from data (`it.each`, a loop over a table, a helper
// called with the title), the strings of that data count. Used by requirements.ts; read
// conformance/catalogue/types.ts for what an id is.

import { readFileSync, readdirSync, statSync } from 'node:fs';
import { join, sep } from 'node:path';
import ts from 'typescript';

const GROUP = 'MPA|DDP|RDMAP|ENH|EXT|SEC|VERBS';
const CITATION = new RegExp(
  `\\b(${GROUP})-(\\d+)(?:(?:\\.\\.|–)(?:(?:${GROUP})-)?(\\d+))?((?:/\\d{3}\\b)*)`,
  'g',
);
const ONLY_CITATIONS = new RegExp(`^(?:${CITATION.source}[\\s,;]*)+$`);
/** Longer ranges than the largest group are a typing error, shown as an unknown id. */
const LONGEST_RANGE = 200;
const WIDTH = 3;

/** Where an id was found. */
export interface Citation {
  readonly id: string;
  /** Path below the scanned root, with forward slashes. */
  readonly file: string;
  readonly line: number;
  /** The words it stands in: the title of a test, the line of a source. */
  readonly text: string;
}

/**
 * Ids named in `text`: single ones, ranges (`MPA-094..097`) and slashed lists (`MPA-094/095`), as written.
 */
export function idsIn(text: string): string[] {
  const found: string[] = [];
  for (const match of text.matchAll(CITATION)) {
    const [whole, group, first, last, more] = match;
    found.push(`${group}-${first}`);
    if (last !== undefined) {
      const from = Number(first);
      const to = Number(last);
      if (to <= from || to - from > LONGEST_RANGE) found.push(whole);
      for (let n = from + 1; n <= to && to - from <= LONGEST_RANGE; n++)
        found.push(`${group}-${pad(n, first)}`);
    }
    for (const part of (more ?? '').split('/')) if (part !== '') found.push(`${group}-${part}`);
  }
  return found;
}

function pad(n: number, like: string | undefined): string {
  return String(n).padStart(like?.length ?? WIDTH, '0');
}

/**
 * Every file below `root/folder` whose name ends in one of `suffixes`; a folder that does not exist has none.
 */
export function filesBelow(root: string, folder: string, suffixes: readonly string[]): string[] {
  const start = join(root, folder);
  if (statSync(start, { throwIfNoEntry: false })?.isDirectory() !== true) return [];
  const found: string[] = [];
  for (const entry of readdirSync(start, { withFileTypes: true })) {
    if (entry.name.startsWith('.') || entry.name === 'node_modules') continue;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) found.push(...filesBelow(root, path, suffixes));
    else if (suffixes.some((suffix) => entry.name.endsWith(suffix))) found.push(path);
  }
  return found.toSorted();
}

/** Ids anywhere in the text of one file. */
export function citationsInText(text: string, file: string): Citation[] {
  const found: Citation[] = [];
  const lines = text.split('\n');
  for (let i = 0; i < lines.length; i++)
    for (const id of idsIn(lines[i] ?? '')) found.push({ id, file, line: i + 1, text: lines[i] ?? '' });
  return found;
}

/** Ids that are whole string literals (or lists of ids in one) of one file: the data of conformance cases. */
export function citationsInData(text: string, file: string): Citation[] {
  const source = parse(text, file);
  const found: Citation[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isStringLiteralLike(node) && ONLY_CITATIONS.test(node.text))
      found.push(...at(source, node, node.text));
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/**
 * Ids proved by the tests of one file: in titles of live tests, and in titles of suites that hold a live
 * test.
 */
export function citationsInTitles(text: string, file: string): Citation[] {
  const source = parse(text, file);
  const found: Citation[] = [];
  const visit = (node: ts.Node): number => {
    const call = ts.isCallExpression(node) ? titledCall(node) : null;
    if (call?.dead === true) return 0;
    let tests = 0;
    ts.forEachChild(node, (child) => {
      tests += visit(child);
    });
    if (call === null) return tests;
    if (call.role === 'test') tests++;
    if (tests > 0)
      for (const part of titleTexts(call.title, source)) found.push(...at(source, call.title, part));
    return tests;
  };
  visit(source);
  return found;
}

/**
 * For each line of one source the name of the innermost function, method, field or type that it belongs to,
 * its comment included.
 */
export function ownersOfLines(text: string, file: string): (string | undefined)[] {
  const source = parse(text, file);
  const owners: (string | undefined)[] = Array.from({ length: source.getLineStarts().length });
  const visit = (node: ts.Node, within: string): void => {
    const own = ownName(node);
    const name = own === null ? within : within === '' ? own : `${within}.${own}`;
    if (own !== null) {
      const first = source.getLineAndCharacterOfPosition(node.getStart(source, true)).line;
      const comments = ts.getLeadingCommentRanges(text, node.getFullStart()) ?? [];
      const from = comments.reduce(
        (line, range) => Math.min(line, source.getLineAndCharacterOfPosition(range.pos).line),
        first,
      );
      const to = source.getLineAndCharacterOfPosition(node.getEnd()).line;
      // The comment at the head of a file belongs to the file.
      for (let line = node.getFullStart() === 0 ? first : from; line <= to; line++) owners[line] = name;
    }
    ts.forEachChild(node, (child) => visit(child, name));
  };
  visit(source, '');
  return owners;
}

/**
 * The name under which a reader looks for `node`; null for a node without one, and for a node inside a
 * function.
 */
function ownName(node: ts.Node): string | null {
  if (ts.isVariableDeclaration(node))
    return ts.isSourceFile(node.parent.parent.parent) && ts.isIdentifier(node.name) ? node.name.text : null;
  if (ts.isConstructorDeclaration(node)) return 'constructor';
  const named =
    ts.isFunctionDeclaration(node) ||
    ts.isClassDeclaration(node) ||
    ts.isInterfaceDeclaration(node) ||
    ts.isTypeAliasDeclaration(node) ||
    ts.isMethodDeclaration(node) ||
    ts.isPropertyDeclaration(node) ||
    ts.isAccessor(node) ||
    ts.isPropertySignature(node);
  if (!named || node.name === undefined) return null;
  return ts.isIdentifier(node.name) || ts.isPrivateIdentifier(node.name) ? node.name.text : null;
}

/** Read one file below `root`, with a path that looks the same on every system. */
export function readBelow(root: string, path: string): { readonly text: string; readonly file: string } {
  return { text: readFileSync(join(root, path), 'utf8'), file: path.split(sep).join('/') };
}

function parse(text: string, file: string): ts.SourceFile {
  return ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
}

function at(source: ts.SourceFile, node: ts.Node, text: string): Citation[] {
  const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
  return idsIn(text).map((id) => ({ id, file: source.fileName, line, text }));
}

interface TitledCall {
  readonly role: 'test' | 'suite';
  readonly dead: boolean;
  readonly title: ts.Expression;
}

/** `it('…')`, `test.each(t)('…')`, `describe.skip('…')` and their like; null for any other call. */
function titledCall(node: ts.CallExpression): TitledCall | null {
  const title = node.arguments[0];
  if (title === undefined) return null;
  // the it.each(…) of it.each(…)('…')
  if (ts.isCallExpression(node.parent) && node.parent.expression === node) return null;
  let callee: ts.Node = node.expression;
  let dead = false;
  for (;;) {
    if (ts.isPropertyAccessExpression(callee)) {
      if (callee.name.text === 'skip' || callee.name.text === 'todo') dead = true;
      callee = callee.expression;
    } else if (ts.isCallExpression(callee)) callee = callee.expression;
    else if (ts.isTaggedTemplateExpression(callee)) callee = callee.tag;
    else break;
  }
  if (!ts.isIdentifier(callee)) return null;
  if (callee.text === 'it' || callee.text === 'test') return { role: 'test', dead, title };
  if (callee.text === 'describe' || callee.text === 'suite') return { role: 'suite', dead, title };
  return null;
}

/** The texts a title is made of; for `it.each(table)('… %s')` the table's strings too. */
function titleTexts(title: ts.Expression, source: ts.SourceFile): string[] {
  const texts = stringsOf(title, source, new Set());
  const call = title.parent;
  const isPattern = texts.some((text) => /%|\$/.test(text));
  if (isPattern && ts.isCallExpression(call) && ts.isCallExpression(call.expression)) {
    for (const table of call.expression.arguments) texts.push(...stringsOf(table, source, new Set()));
  }
  return texts;
}

/** String literals inside `node`, following names to the data they stand for within this file. */
function stringsOf(node: ts.Node, source: ts.SourceFile, seen: Set<ts.Node>): string[] {
  if (seen.has(node)) return [];
  seen.add(node);
  if (ts.isStringLiteralLike(node)) return [node.text];
  if (ts.isFunctionLike(node)) return [];
  const texts: string[] = [];
  if (ts.isTemplateExpression(node))
    texts.push(node.head.text, ...node.templateSpans.map((span) => span.literal.text));
  if (ts.isIdentifier(node) && !isMemberName(node)) {
    for (const origin of originsOf(node, source)) texts.push(...stringsOf(origin, source, seen));
  }
  ts.forEachChild(node, (child) => {
    texts.push(...stringsOf(child, source, seen));
  });
  return texts;
}

function isMemberName(node: ts.Identifier): boolean {
  const parent = node.parent;
  return (
    (ts.isPropertyAccessExpression(parent) && parent.name === node) ||
    (ts.isPropertyAssignment(parent) && parent.name === node)
  );
}

/**
 * Where a name's value comes from: a loop's table, a callback's table, the calls of a helper, or an
 * initializer.
 */
function originsOf(name: ts.Identifier, source: ts.SourceFile): ts.Node[] {
  for (let scope: ts.Node = name.parent; scope !== undefined; scope = scope.parent) {
    if (ts.isForOfStatement(scope) && bindsInLoop(scope, name.text)) return [scope.expression];
    if (ts.isFunctionLike(scope)) {
      const index = scope.parameters.findIndex((parameter) => binds(parameter.name, name.text));
      if (index >= 0) return argumentsFor(scope, index, source);
    }
    if (ts.isBlock(scope) || ts.isSourceFile(scope)) {
      const value = declared(scope.statements, name.text);
      if (value !== null) return [value];
    }
  }
  return [];
}

function bindsInLoop(loop: ts.ForOfStatement, name: string): boolean {
  return (
    ts.isVariableDeclarationList(loop.initializer) &&
    loop.initializer.declarations.some((d) => binds(d.name, name))
  );
}

function binds(binding: ts.BindingName, name: string): boolean {
  if (ts.isIdentifier(binding)) return binding.text === name;
  return binding.elements.some((element) => ts.isBindingElement(element) && binds(element.name, name));
}

function declared(statements: ts.NodeArray<ts.Statement>, name: string): ts.Node | null {
  for (const statement of statements) {
    if (!ts.isVariableStatement(statement)) continue;
    for (const declaration of statement.declarationList.declarations) {
      if (binds(declaration.name, name) && declaration.initializer !== undefined)
        return declaration.initializer;
    }
  }
  return null;
}

/**
 * The arguments for parameter `index` of a function: the table of `table.forEach(…)`, or the arguments of its
 * calls.
 */
function argumentsFor(scope: ts.SignatureDeclaration, index: number, source: ts.SourceFile): ts.Node[] {
  const parent = scope.parent;
  if (ts.isCallExpression(parent) && ts.isPropertyAccessExpression(parent.expression))
    return [parent.expression.expression];
  const name = scope.name ?? (ts.isVariableDeclaration(parent) ? parent.name : undefined);
  if (name === undefined || !ts.isIdentifier(name)) return [];
  const passed: ts.Node[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && ts.isIdentifier(node.expression) && node.expression.text === name.text) {
      const argument = node.arguments[index];
      if (argument !== undefined) passed.push(argument);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return passed;
}
