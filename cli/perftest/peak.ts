/**
 * The peak of a bandwidth test: operations a millisecond in the best stretch from a post to a completion. As
 * points of a plane, post i stands at (i, its time) and completion j at (j + 1, its time), and the best
 * stretch is the flattest line from a post to a completion that is not before it. The stock programs compare
 * each post with each completion, which takes minutes with many queue pairs.
 */

/**
 * The least of (done[j] - posted[i]) / (j - i + 1) for all i <= j, where i is a multiple of `postList` and
 * `done[j]` above 0, turned into a rate; 0 if there is none. Both lists have their times in order, as a
 * clock gives them, with zeros in `done` for operations without a completion.
 */
export function peakRate(posted: Float64Array, done: Float64Array, postList: number): number {
  // The flattest line to any later point begins at a corner of the upper hull of the posts before it.
  const hull: number[] = [];
  let best = Number.POSITIVE_INFINITY;
  for (let j = 0; j < done.length; j++) {
    if (j % postList === 0) addCorner(hull, posted, j);
    if (done[j]! > 0) best = Math.min(best, flattest(hull, posted, j + 1, done[j]!));
  }
  return best > 0 && best < Number.POSITIVE_INFINITY ? 1 / best : 0;
}

/** Post `i` joins the hull: corners that are not above the line past them leave it. */
function addCorner(hull: number[], posted: Float64Array, i: number): void {
  while (hull.length > 1) {
    const last = hull.at(-1)!;
    const before = hull.at(-2)!;
    if (slope(posted, before, last, posted[last]!) > slope(posted, before, i, posted[i]!)) break;
    hull.pop();
  }
  hull.push(i);
}

/** The slope of the flattest line from a corner to (x, time): slopes fall to the least, then they rise. */
function flattest(hull: readonly number[], posted: Float64Array, x: number, time: number): number {
  let low = 0;
  let high = hull.length - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (slope(posted, hull[middle]!, x, time) > slope(posted, hull[middle + 1]!, x, time)) low = middle + 1;
    else high = middle;
  }
  return slope(posted, hull[low]!, x, time);
}

function slope(posted: Float64Array, from: number, x: number, time: number): number {
  return (time - posted[from]!) / (x - from);
}
