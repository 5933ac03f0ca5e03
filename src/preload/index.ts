/**
 * `iwarp/preload`: `node --import iwarp/preload app.js` lets an unmodified program's TCP connections run over
 * RDMA streams, by the rules of the variable IWARP_PRELOAD or of the file that IWARP_PRELOAD_FILE names. A
 * peer that does not speak MPA gets TCP. IWARP_PRELOAD_LOG=1 reports each connection on stderr.
 *
 * @example
 * IWARP_PRELOAD='10.0.0.0/8:7471 sdp; *:8080 rsocket' node --import iwarp/preload app.js
 *
 * @module iwarp/preload
 */
import { environmentVariable } from '../base/environment.ts';
import { install } from './install.ts';
import { rulesOf } from './rules.ts';

export { install, type PreloadEvent, type PreloadOptions } from './install.ts';
export { parseRules, type PreloadProtocol, type Rule } from './rules.ts';

const names = ['IWARP_PRELOAD', 'IWARP_PRELOAD_FILE'] as const;
const rules = rulesOf(Object.fromEntries(names.map((name) => [name, environmentVariable(name)])));
if (rules.length === 0)
  process.emitWarning(
    "iwarp/preload has no rules, and everything stays TCP: set IWARP_PRELOAD='*:8080 rsocket', say",
    { code: 'IWARP_PRELOAD' },
  );
else install({ rules, log: environmentVariable('IWARP_PRELOAD_LOG') === '1' });
