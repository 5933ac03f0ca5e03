/** The figure that the OSU report promised, at a few of its points. */
import { describe, expect, it } from 'vitest';
import { RECEIVERS, runLab } from '../../bench/trp/figure.ts';

describe('placement under loss, in virtual time', () => {
  it('at 1 % loss at least 0.8 of the rate without loss is left', () => {
    const rates = [0, 1].map((loss) => runLab('placing', loss, 0, 7).goodput);
    expect(rates[1]! / rates[0]!).toBeGreaterThan(0.8);
  });

  it.each([
    ['a loss of 2 %', 2, 0],
    ['a reordering of 5 %', 0, 5],
  ] as const)('at %s a placing receiver waits for nothing and holds headers', (_what, loss, order) => {
    const [placing, ordered, stream] = RECEIVERS.map((receiver) => runLab(receiver, loss, order, 3));
    expect(placing!.placement).toBe(0);
    expect(placing!.turn).toBeGreaterThan(0);
    expect(ordered!.placement).toBe(ordered!.turn);
    expect(placing!.held).toBeLessThan(ordered!.held / 20);
    expect(stream!.held).toBeGreaterThan(10 * placing!.held);
    // The same hole keeps all of them back.
    expect(placing!.turn).toBe(ordered!.turn);
    expect(placing!.goodput).toBe(ordered!.goodput);
    expect(stream!.goodput / placing!.goodput).toBeGreaterThan(0.8);
  });
});
