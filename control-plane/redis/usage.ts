import type { RedisNodes } from '#shared/redis/redis.ts';
import { usageKey } from '#shared/redis/redis-keys.ts';
import {
  type Granularity,
  KEPT,
  LAST_USED,
  LENGTH_MS,
  perUsageField,
  type UsageField,
  usageField,
} from '#shared/usage.ts';

/** Verdicts on a key in one hour or day. */
export interface UsageBucket extends Readonly<Record<UsageField, number>> {
  /** Its beginning, Unix milliseconds. */
  readonly time: number;
}

/** Use of keys, as verifiers reported it. Anything but a number counts as 0. */
export class UsageView {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /** Unix milliseconds of the latest report of an accepted verification; undefined = none that is still known. */
  async lastUsedAt(apiId: string, keyId: string): Promise<number | undefined> {
    const usage = usageKey(apiId, keyId);
    return count(await this.#nodes.run(usage, (redis) => redis.hget(usage, LAST_USED))) || undefined;
  }

  /**
   * One bucket for each hour or day that lies in the time asked for, at least in part, and of which counts are kept.
   * @param nowMs Unix milliseconds
   */
  async series(
    apiId: string,
    keyId: string,
    granularity: Granularity,
    nowMs: number,
    startMs = 0,
    endMs = nowMs,
  ): Promise<UsageBucket[]> {
    const usage = usageKey(apiId, keyId);
    const fields = await this.#nodes.run(usage, (redis) => redis.hgetall(usage));
    const length = LENGTH_MS[granularity];
    const numberOf = (timeMs: number) => Math.floor(timeMs / length);
    const last = Math.min(numberOf(endMs), numberOf(nowMs));
    const first = Math.max(numberOf(startMs), numberOf(nowMs) - KEPT[granularity] + 1);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => {
      const of = (letter: string) => count(fields[usageField(granularity, first + i, letter)]);
      return {
        time: (first + i) * length,
        ...perUsageField(({ letter }) => of(letter)),
      };
    });
  }
}

function count(text: string | null | undefined): number {
  const number = Number(text ?? 0);
  return Number.isSafeInteger(number) && number > 0 ? number : 0;
}
