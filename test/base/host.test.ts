/**
 * What the stack takes of its host: once, when it is loaded. A program that replaces a global later, as tests
 * with a fake clock do, stops nothing, and a global that is missing is had elsewhere.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { sourceFiles, textOf } from '../support/modules.ts';
import { plain } from '../support/plain.ts';

/** Globals that programs and their tests replace. */
const REPLACED: ReadonlySet<string> = new Set([
  ...['AbortController', 'Buffer', 'TextDecoder', 'TextEncoder', 'crypto', 'performance', 'queueMicrotask'],
  ...['clearImmediate', 'clearInterval', 'clearTimeout', 'setImmediate', 'setInterval', 'setTimeout'],
  'structuredClone',
]);

/** The globals of the list that a text looks up while it runs, and not when it is loaded. */
function usedLater(path: string, text: string): string[] {
  const own = new Set<string>();
  const used = new Set<string>();
  const isName = (node: ts.Identifier): boolean => {
    const { parent } = node;
    if (ts.isPropertyAccessExpression(parent)) return parent.expression === node;
    if (ts.isPropertyAssignment(parent)) return parent.initializer === node;
    return !ts.isImportSpecifier(parent) && !ts.isClassElement(parent) && !ts.isTypeElement(parent);
  };
  const visit = (node: ts.Node, later: boolean): void => {
    if (ts.isTypeNode(node)) return;
    const declares =
      ts.isImportSpecifier(node) ||
      ts.isVariableDeclaration(node) ||
      ts.isBindingElement(node) ||
      ts.isParameter(node);
    if (declares && ts.isIdentifier(node.name)) own.add(node.name.text);
    if (later && ts.isIdentifier(node) && REPLACED.has(node.text) && isName(node)) used.add(node.text);
    if (later && ts.isPropertyAccessExpression(node)) {
      const name = node.getText();
      if (name === 'process.nextTick' || REPLACED.has(name.replace(/^globalThis\./, ''))) used.add(name);
    }
    const inside = later || ts.isFunctionLike(node) || ts.isPropertyDeclaration(node);
    ts.forEachChild(node, (child) => visit(child, inside));
  };
  visit(ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true), false);
  return [...used].filter((name) => !own.has(name)).map((name) => `${path}: ${name}`);
}

describe('globals', () => {
  it('are taken when the stack is loaded, never while it runs', () => {
    expect(sourceFiles('src').flatMap((path) => usedLater(path, textOf(path)))).toEqual([]);
  });

  it('that are looked up later are found', () => {
    expect(
      usedLater(
        'a.ts',
        `
        import { setTimeout } from 'node:timers';
        const text = new TextEncoder();
        class A { readonly stop = new AbortController(); at = { performance: 1 }; b = this.at.performance; }
        const f = (b: Buffer): void => void setTimeout(() => globalThis.crypto.x, performance.now());
        function g() { process.nextTick(f); queueMicrotask(f); }`,
      ).sort(),
    ).toEqual([
      'a.ts: AbortController',
      'a.ts: globalThis.crypto',
      'a.ts: performance',
      'a.ts: process.nextTick',
      'a.ts: queueMicrotask',
    ]);
  });
});

describe('a process', () => {
  const INDEX = plain('src/index.ts');
  const run = async (engine: string, before: string, behind: string): Promise<string> => {
    const program = `
      ${before}
      const { connect, createServer } = await import(${JSON.stringify(INDEX)});
      ${behind}
      const server = await createServer((c) => c.serve(() => 'pong')).listen({ port: 0, host: '127.0.0.1' });
      const c = await connect({ host: '127.0.0.1', port: server.address().port });
      c.allocate(8);
      console.log(String(await c.request('ping', { timeout: 60_000 })));
      await c.close();
      await server.close();`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
      cwd: fileURLToPath(new URL('../..', import.meta.url)),
      env: { ...process.env, IWARP_ENGINE: engine },
    });
    return stdout;
  };

  it.each(['thread', 'worker'])('without a global crypto connects: engine %s', async (engine) => {
    expect(await run(engine, 'delete globalThis.crypto;', '')).toBe('pong\n');
  });

  it.each(['thread', 'worker'])(
    'that replaces every global behind the import connects: %s',
    async (engine) => {
      const names = JSON.stringify([...REPLACED].filter((name) => name !== 'Buffer'));
      const behind = `
      const never = function () { throw new Error('a replaced global was used'); };
      for (const name of ${names})
        Object.defineProperty(globalThis, name, { configurable: true, writable: true, value: never });`;
      expect(await run(engine, '', behind)).toBe('pong\n');
    },
  );
});
