/** Every probe, in the order in which a report tells them. */
import { allocation } from './allocation.ts';
import { busy } from './busy.ts';
import { counters } from './counters.ts';
import { handover } from './handover.ts';
import { hostile } from './hostile.ts';
import { idle } from './idle.ts';
import { micro } from './micro.ts';
import type { Probe } from './probe.ts';

export const PROBES: readonly Probe[] = [micro, handover, busy, hostile, idle, allocation, counters];
