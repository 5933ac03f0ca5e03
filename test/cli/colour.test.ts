import { describe, expect, it } from 'vitest';
import { painted, wantsColour } from '../../cli/support/colour.ts';
import { dissect } from '../../cli/dissect.ts';
import { renderLine } from '../../src/inspect/render/text.ts';
import { conversation, decodeConversation } from '../inspect/support.ts';

describe('colour', () => {
  it.each([
    [{ isTTY: true }, {}, true],
    [{ isTTY: true }, { NO_COLOR: '' }, true],
    [{ isTTY: true }, { NO_COLOR: '1' }, false],
    [{ isTTY: true }, { TERM: 'dumb' }, false],
    [{ isTTY: false }, {}, false],
    [{}, { FORCE_COLOR: '1' }, false],
  ] as const)('stream %j, environment %j: %j', (stream, environment, wanted) => {
    expect(wantsColour(stream, environment)).toBe(wanted);
  });

  it('marks the opcode and the broken rule, and changes no text', () => {
    const talk = conversation();
    talk.fromInitiator[talk.fromInitiator.length - 1]! ^= 1;
    const events = decodeConversation(talk);
    const lines = events.map((event) => ({
      plain: renderLine(event),
      shown: painted(renderLine(event), event),
    }));
    // oxlint-disable-next-line no-control-regex -- the escapes are looked for
    for (const { plain, shown } of lines) expect(shown.replaceAll(/\u001b\[\d*m/g, '')).toBe(plain);
    expect(lines.some(({ shown }) => shown.includes('\u001b[36mSend\u001b[0m'))).toBe(true);
    expect(lines.some(({ shown }) => shown.includes('\u001b[31m  [MPA-069 '))).toBe(true);
  });

  it('is not in what dissect prints without a terminal', () => {
    let out = '';
    dissect(['--help'], { out: (text) => (out += text), err: () => undefined });
    expect(out).not.toContain('\u001b');
  });
});
