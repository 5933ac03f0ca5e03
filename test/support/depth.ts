/**
 * How deep the long searches go. `npm test` takes a seed and a small count, so that it ends in minutes;
 * `npm run judges depth` sets IWARP_DEPTH=full, and takes all.
 */
export const FULL: boolean = process.env['IWARP_DEPTH'] === 'full';

/** The count, or the choice, of `npm test`, or that of the judge. */
export const depth = <T>(small: T, full: T): T => (FULL ? full : small);
