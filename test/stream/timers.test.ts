/** The timer table of a stream. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TimerTable, TIMERS, type Timer } from '../../src/stream/timers.ts';

describe('the timer table', () => {
  it('does what a list of armed deadlines does, whatever is armed, disarmed and due', () => {
    const timer = fc.constantFrom(...TIMERS);
    const at = fc.integer({ min: 0, max: 50 });
    const action = fc.oneof(
      fc.record({ type: fc.constant('arm' as const), timer, at }),
      fc.record({ type: fc.constant('disarm' as const), timer }),
      fc.record({ type: fc.constant('expire' as const), at }),
    );
    fc.assert(
      fc.property(fc.array(action, { maxLength: 30 }), (actions) => {
        const table = new TimerTable();
        const model = new Map<Timer, number>();
        for (const one of actions) {
          if (one.type === 'arm') {
            table.arm(one.timer, one.at);
            model.set(one.timer, one.at);
          } else if (one.type === 'disarm') {
            model.delete(one.timer);
            expect(table.disarm(one.timer)).toBe(model.size === 0);
          } else {
            const due = TIMERS.find((name) => (model.get(name) ?? Infinity) <= one.at) ?? null;
            expect(table.expire(one.at)).toBe(due);
            if (due !== null) model.delete(due);
          }
          expect(table.next).toBe(Math.min(Infinity, ...model.values()));
        }
      }),
    );
  });
});
