/** All interop cases, those of one driver setting together: in the order in which they run. */
import { DRIVERS, type InteropCase } from './bench.ts';
import { LACKING_CASES } from './lacking-cases.ts';
import { LEAVE_CASES } from './leave-cases.ts';
import { NBD_CASES } from './nbd-cases.ts';
import { PROXIED_CASES } from './proxied-cases.ts';
import { REVISION_CASES } from './revision-cases.ts';
import { RPING_CASES } from './rping-cases.ts';
import { TOOLS_CASES } from './tools-cases.ts';

const order = Object.keys(DRIVERS);

export const CASES: readonly InteropCase[] = [
  ...RPING_CASES,
  ...REVISION_CASES,
  ...TOOLS_CASES,
  ...NBD_CASES,
  ...PROXIED_CASES,
  ...LEAVE_CASES,
  ...LACKING_CASES,
].sort((a, b) => order.indexOf(a.driver) - order.indexOf(b.driver));
