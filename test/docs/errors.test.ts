// docs/errors.md is the table of src/base/errors.ts, and what src makes has a code of it.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { ERRORS_PAGE, renderErrorsPage } from '../../scripts/docs-errors.ts';
import { ERROR_ADVICE } from '../../scripts/error-advice.ts';
import { ERROR_CODES } from '../../src/base/errors.ts';
import { sourceFiles, textOf } from '../support/modules.ts';

it('docs/errors.md is up to date (npx tsx scripts/docs-errors.ts)', () => {
  expect(readFileSync(ERRORS_PAGE, 'utf8')).toBe(renderErrorsPage());
});

it('the page has one row for each code', () => {
  const codes = [...renderErrorsPage().matchAll(/^\| `(ERR_\w+)` \| .+ \|$/gm)].map((match) => match[1]);
  expect(codes).toEqual(Object.keys(ERROR_CODES));
});

it('says for each code what raises it and what to do', () => {
  expect(Object.keys(ERROR_ADVICE)).toEqual(Object.keys(ERROR_CODES));
  for (const [code, { raisedBy, whatToDo }] of Object.entries(ERROR_ADVICE)) {
    expect(raisedBy.length, code).toBeGreaterThan(8);
    expect(whatToDo, code).toMatch(/^[A-Z].{10,}[.?]$/);
  }
  const rows = renderErrorsPage().match(/^\| `ERR_.+$/gm)!;
  for (const row of rows) expect(row.split(/(?<!\\)\|/), row).toHaveLength(6);
});

it('no error is made without a code', () => {
  const lawful: Readonly<Record<string, string>> = {
    'src/engine/channel/messages.ts':
      'what the system said, put together again at the other end of a message port',
    'src/shm/transport.ts': 'what a system would say, as the cause of one with a code',
    'src/simnet/datagrams.ts': 'what a system would say, as the cause of one with a code',
    'src/simnet/memory.ts': 'what a system would say, as the cause of one with a code',
    'src/api/operations.ts': 'the stack of the call that an error of its operation shows',
    'src/transport/tls.ts':
      'what a system would say of a handshake that takes too long, as the cause of one with a code',
    'src/transport/unix-port.ts':
      'what newer systems say of a path too long, as the cause of one with a code',
    'src/sockets/connect.ts': 'the code of the system, as node:net reports it',
    'src/sockets/socket.ts': 'the code of node:net for a socket that is closed',
    'src/sockets/system-error.ts': 'the code of the system, as node:net reports it; ours is the cause',
    'src/crc32c/arena.ts': 'what WebAssembly throws where it has no memory; the next engine serves',
  };
  const bare = sourceFiles('src').filter((path) =>
    /\bnew (?:Type|Range|Syntax)?Error\(/.test(textOf(path).replaceAll(/^\s*(?:\/\/|\/?\*).*$/gm, '')),
  );
  expect(bare.toSorted()).toEqual(Object.keys(lawful).toSorted());
});

it('every code is that of some error', () => {
  // A set of codes compares; all else that names one makes an error of it.
  const made = sourceFiles('src')
    .filter((path) => path !== 'src/base/errors.ts')
    .map((path) => textOf(path).replaceAll(/new Set\(\[[^\]]*\]\)/g, ''))
    .join('\n');
  const used = new Set([...made.matchAll(/'(ERR_\w+)'/g)].map((match) => match[1]!));
  expect(Object.keys(ERROR_CODES).filter((code) => !used.has(code))).toEqual([]);
});
