/** Every probe, in the order of a report. */
import { allocation } from './allocation.ts';
import { busy } from './busy.ts';
import { cost } from './cost.ts';
import { counters } from './counters.ts';
import { handover } from './handover.ts';
import { hostile } from './hostile.ts';
import { idle } from './idle.ts';
import { micro } from './micro.ts';
import { placement } from './placement.ts';
import type { Probe } from './probe.ts';
import { unix } from './unix.ts';

export const PROBES: readonly Probe[] = [
  micro,
  handover,
  busy,
  hostile,
  idle,
  cost,
  unix,
  allocation,
  counters,
  placement,
];
