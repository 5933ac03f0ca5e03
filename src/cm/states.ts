/** The lives of a connection of the connection manager, on either side, and of its listener, as tables. */
import type { MachineTable } from '../base/fsm.ts';

export const ACTIVE_STATES = [
  'connecting',
  'requesting',
  'deciding',
  'confirming',
  'established',
  'closing',
  'leaving',
  'lapsed',
  'expired',
  'ended',
] as const;
export type ActiveState = (typeof ACTIVE_STATES)[number];
export const ACTIVE_INPUTS = [
  'opened',
  'response',
  'confirm',
  'establish',
  'reject',
  'startup-failed',
  'close',
  'cancel',
  'ended',
  'heard',
] as const;
export type ActiveInput = (typeof ACTIVE_INPUTS)[number];

/**
 * The side that connects. A program decides in its own time: a confirmation for a connection that has failed
 * (`lapsed`) or ended (`expired`) meanwhile is no mistake of the program until it has `heard` of that by an
 * event.
 */
export const ACTIVE_TABLE: MachineTable<ActiveState, ActiveInput> = {
  name: 'active connection',
  initial: 'connecting',
  transitions: {
    connecting: { opened: 'requesting', 'startup-failed': 'leaving', cancel: 'ended' },
    requesting: {
      response: 'deciding',
      establish: 'established',
      reject: 'leaving',
      'startup-failed': 'leaving',
      ended: 'ended',
    },
    deciding: { confirm: 'confirming', 'startup-failed': 'lapsed', ended: 'expired' },
    confirming: { establish: 'established', 'startup-failed': 'leaving', ended: 'ended' },
    established: { close: 'closing', ended: 'ended' },
    closing: { close: 'closing', ended: 'ended' },
    leaving: { 'startup-failed': 'leaving', ended: 'ended' },
    lapsed: { confirm: 'leaving', heard: 'leaving', ended: 'expired' },
    expired: { confirm: 'ended', heard: 'ended' },
    ended: {},
  },
};

export const PASSIVE_STATES = [
  'starting',
  'requested',
  'accepting',
  'established',
  'closing',
  'leaving',
  'lapsed',
  'expired',
  'ended',
] as const;
export type PassiveState = (typeof PASSIVE_STATES)[number];
export const PASSIVE_INPUTS = [
  'request',
  'accept',
  'reject',
  'establish',
  'startup-failed',
  'leave',
  'close',
  'ended',
] as const;
export type PassiveInput = (typeof PASSIVE_INPUTS)[number];

/**
 * The side that is connected to. The first answer to a request whose connection has failed (`lapsed`) or
 * ended (`expired`) is never a mistake: a program that asks others before it answers may learn of the end
 * much earlier. `leave` is a close or an abort by the program, or by the end of the listener; once the
 * request is answered the events of the stream alone say where the connection is.
 */
export const PASSIVE_TABLE: MachineTable<PassiveState, PassiveInput> = {
  name: 'passive connection',
  initial: 'starting',
  transitions: {
    starting: { request: 'requested', 'startup-failed': 'leaving', leave: 'leaving', ended: 'ended' },
    requested: {
      accept: 'accepting',
      reject: 'leaving',
      'startup-failed': 'lapsed',
      leave: 'lapsed',
      ended: 'expired',
    },
    accepting: { establish: 'established', 'startup-failed': 'leaving', leave: 'accepting', ended: 'ended' },
    established: { leave: 'established', close: 'closing', ended: 'ended' },
    closing: { leave: 'closing', close: 'closing', ended: 'ended' },
    leaving: { request: 'leaving', 'startup-failed': 'leaving', leave: 'leaving', ended: 'ended' },
    lapsed: {
      accept: 'leaving',
      reject: 'leaving',
      'startup-failed': 'lapsed',
      leave: 'lapsed',
      ended: 'expired',
    },
    expired: { accept: 'ended', reject: 'ended', leave: 'expired' },
    ended: { leave: 'ended' },
  },
};

export const LISTENER_STATES = ['binding', 'listening', 'closing', 'closed'] as const;
export type ListenerState = (typeof LISTENER_STATES)[number];
export const LISTENER_INPUTS = ['bound', 'bind-failed', 'close', 'released'] as const;
export type ListenerInput = (typeof LISTENER_INPUTS)[number];

/** A listener. `closing` waits until the address is free. */
export const LISTENER_TABLE: MachineTable<ListenerState, ListenerInput> = {
  name: 'CM listener',
  initial: 'binding',
  transitions: {
    binding: { bound: 'listening', 'bind-failed': 'closed' },
    listening: { close: 'closing' },
    closing: { close: 'closing', released: 'closed' },
    closed: { close: 'closed' },
  },
};
