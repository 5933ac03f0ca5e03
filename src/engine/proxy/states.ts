/** The lives of an engine and of a listener over engines, as the program's thread sees them. */
import type { MachineTable } from '../../base/fsm.ts';

export const ENGINE_STATES = ['running', 'stopped', 'failed'] as const;
/** One of `ENGINE_STATES`. */
export type EngineThreadState = (typeof ENGINE_STATES)[number];
export const ENGINE_INPUTS = ['stop', 'fail'] as const;
/** One of `ENGINE_INPUTS`. */
export type EngineThreadInput = (typeof ENGINE_INPUTS)[number];

/** A worker thread. Its end is final. */
export const ENGINE_TABLE: MachineTable<EngineThreadState, EngineThreadInput> = {
  name: 'engine',
  initial: 'running',
  transitions: {
    running: { stop: 'stopped', fail: 'failed' },
    stopped: {},
    failed: {},
  },
};

export const ENGINE_LISTENER_STATES = ['binding', 'bound', 'listening', 'failed', 'lost'] as const;
/** One of `ENGINE_LISTENER_STATES`. */
export type EngineListenerState = (typeof ENGINE_LISTENER_STATES)[number];
export const ENGINE_LISTENER_INPUTS = ['all-bound', 'begin', 'error'] as const;
/** One of `ENGINE_LISTENER_INPUTS`. */
export type EngineListenerInput = (typeof ENGINE_LISTENER_INPUTS)[number];

/** A listener in one engine or in all of them. */
export const ENGINE_LISTENER_TABLE: MachineTable<EngineListenerState, EngineListenerInput> = {
  name: 'engine listener',
  initial: 'binding',
  transitions: {
    binding: { 'all-bound': 'bound', error: 'failed' },
    bound: { begin: 'listening', error: 'lost' },
    listening: { error: 'lost' },
    failed: {},
    lost: {},
  },
};
