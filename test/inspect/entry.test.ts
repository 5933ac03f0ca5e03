// The entry `iwarp/inspect`, bundled for a browser and run where nothing of Node is: no Buffer, no process,
// no modules. TextEncoder and TextDecoder are globals of the Web.
import { runInNewContext } from 'node:vm';
import { buildSync } from 'esbuild';
import { describe, expect, it } from 'vitest';
import { sourceFiles, textOf } from '../support/modules.ts';
import { conversation, pcapOf, wireOf } from './support.ts';

describe('iwarp/inspect', () => {
  it('decodes and renders a capture in a realm without Buffer and process', () => {
    const [bundle] = buildSync({
      entryPoints: ['src/inspect/index.ts'],
      bundle: true,
      write: false,
      format: 'iife',
      globalName: 'inspect',
      platform: 'browser',
      logLevel: 'silent',
    }).outputFiles;
    const program = `
      const lines = [];
      const page = new inspect.PageBuilder('a capture');
      const dissector = new inspect.CaptureDissector({
        event: (connection, event) => {
          lines.push(inspect.renderLine(event));
          inspect.renderJson(event, connection), inspect.renderTree(event), inspect.renderOctets(event);
          page.add(connection, event);
        },
        remark: (offset, message) => lines.push(message),
      });
      dissector.push(Uint8Array.from(file));
      dissector.end();
      const { connections } = dissector;
      lines.concat(inspect.renderSummary(connections[0]), page.finish(connections)).join('\\n');
    `;
    const realm = { TextEncoder, TextDecoder, file: [...pcapOf(wireOf(conversation()).packets)] };
    const text = runInNewContext(`${bundle!.text}\n${program}`, realm) as string;
    expect(text).toMatch(/^→ 0\.003000 {2}MPA Req/);
    expect(text.match(/CRC ok/g)).toHaveLength(14);
    expect(text).toMatch(/<\/html>\n$/);
  });

  it('has three parts that import one way, and one file that needs Node', () => {
    const imports = sourceFiles('src/inspect').flatMap((path) =>
      [...textOf(path).matchAll(/^(?! \*).* from '([^']+)'/gm)].map(([, from]) => [path, from!] as const),
    );
    const order = ['/capture/', '/decode/', '/render/'];
    const part = (path: string): number => order.findIndex((name) => path.includes(name));
    expect(imports.filter(([path, from]) => part(path) >= 0 && part(from) > part(path))).toEqual([]);
    const node = imports.filter(([, from]) => from.startsWith('node:'));
    expect(node).toEqual([['src/inspect/read-file.ts', 'node:fs']]);
    const words = sourceFiles('src/inspect').filter((path) => /\b(Buffer|process)[.(]/.test(textOf(path)));
    expect(words).toEqual([]);
  });
});
