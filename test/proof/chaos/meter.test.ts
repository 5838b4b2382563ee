import { describe, expect, test } from 'vitest';
import { type Failover, Meter, type Use } from './meter.ts';

/** Uses of a key that may be used 10 times in each second, as [sent, received, cost]. */
function exceeded(uses: readonly [number, number, number?][], failovers: Failover[] = []): string[] {
  const meter = new Meter('key_1', 'secret', 10, 1000);
  for (const [sentMs, receivedMs, cost = 1] of uses)
    meter.accepted({ sentMs, receivedMs, cost } satisfies Use);
  return meter.exceeded(failovers);
}
const times = (count: number, use: [number, number, number?]) => Array.from({ length: count }, () => use);

describe('the checker of rate limits', () => {
  test('takes the limit and what slides over', () => {
    expect(exceeded([...times(10, [5100, 5200]), ...times(10, [6900, 6990])])).toEqual([]);
    expect(exceeded([...times(10, [5010, 5020]), ...times(10, [6980, 6990])])).toEqual([]);
  });

  test('finds one use more than the limit in a window', () => {
    expect(exceeded([...times(10, [5100, 5200]), [5990, 5999]])).not.toEqual([]);
    expect(exceeded([...times(3, [5100, 5200, 3]), [5800, 5900, 2]])).not.toEqual([]);
  });

  test('counts what crosses the end once for both', () => {
    expect(exceeded([...times(10, [5100, 5200]), ...times(5, [5990, 6600])])).toEqual([]);
    expect(exceeded(times(12, [5990, 6001]))).toEqual([expect.stringContaining('12 of 11')]);
    const both = [...times(10, [5001, 5002]), ...times(10, [6997, 6999]), [5990, 6001]] as [number, number][];
    expect(exceeded(both)).toEqual([expect.stringContaining('21 of 20 in 2 × 1000 ms from 5000')]);
  });

  test('finds a slice that survives its window', () => {
    expect(exceeded([...times(10, [5990, 5995]), ...times(10, [6005, 6010])])).not.toEqual([]);
  });

  test('allows the limit twice only in a failover', () => {
    const failover = { fromMs: 5500, untilMs: 5900, count: 1 };
    expect(exceeded(times(20, [5100, 5950]), [failover])).toEqual([]);
    expect(exceeded(times(21, [5100, 5950]), [failover])).not.toEqual([]);
    expect(exceeded(times(11, [7100, 7200]), [failover])).not.toEqual([]);
    expect(exceeded(times(30, [5100, 5950]), [{ ...failover, count: 2 }])).toEqual([]);
  });
});
