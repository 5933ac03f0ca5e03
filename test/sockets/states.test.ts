/** Every input in every state of the tables of byte streams. */
import { describe, expect, it } from 'vitest';
import { Machine, type MachineTable } from '../../src/base/fsm.ts';
import { CHANNEL_TABLE, DIRECTION_TABLE } from '../../src/rsocket/states.ts';
import { SOCKET_SERVER_TABLE } from '../../src/sockets/server-states.ts';

/** The state that each input leads to, in the order of the inputs; a dot is an error. */
type Rows = Readonly<Record<string, string>>;

const check = (table: MachineTable<string, string>, inputs: readonly string[], rows: Rows): void => {
  it(`${table.name} knows these states only`, () => {
    expect(Object.keys(table.transitions).sort()).toEqual(Object.keys(rows).sort());
    const used = new Set(Object.values(table.transitions).flatMap((row) => Object.keys(row)));
    expect([...used].sort()).toEqual([...inputs].sort());
  });

  for (const [state, row] of Object.entries(rows)) {
    const targets = row.split(' ');
    it.each(inputs.map((input, index) => [input, targets[index]!] as const))(
      `${table.name}: ${state} and %s give %s`,
      (input, target) => {
        const machine = new Machine({ ...table, initial: state });
        expect(machine.accepts(input)).toBe(target !== '.');
        if (target === '.') {
          expect(() => machine.step(input)).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
          expect(machine.state).toBe(state);
        } else expect(machine.step(input)).toBe(target);
      },
    );
  }
};

describe('state tables of byte streams', () => {
  check(CHANNEL_TABLE, ['established', 'all-said', 'leave', 'gone'], {
    opening: 'open . closing closed',
    open: '. closing closing closed',
    closing: '. . closing closed',
    closed: '. . . .',
  });
  check(DIRECTION_TABLE, ['shutdown', 'disconnect'], {
    flowing: 'shut-down disconnected',
    'shut-down': 'shut-down disconnected',
    disconnected: 'disconnected disconnected',
  });
  check(SOCKET_SERVER_TABLE, ['listen', 'bound', 'failed', 'close', 'freed', 'ended'], {
    idle: 'binding . . closing . .',
    binding: '. listening idle closing . .',
    listening: '. . . closing . .',
    closing: 'reopening closing closing closing draining .',
    draining: 'binding . . draining . closed',
    reopening: '. reopening reopening closing binding .',
    closed: 'binding . . closing . .',
  });
});
