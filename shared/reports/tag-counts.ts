import { perVerdict, VERDICT_CODES, type VerdictCode, type VerdictCounts } from '../rules/verdict-codes.ts';

/** The name under which further tags are counted together. No real tag is empty. */
export const OTHER_TAGS = '';

/**
 * Unreported counts of verdicts by API and tag. Their number is bounded: further tags are counted together as
 * others.
 */
export class TagCounts {
  readonly #tagsMax: number;
  readonly #apis = new Map<string, Map<string, VerdictCounts>>();
  #tags = 0;

  /** @param tagsMax maximum number of tags, in all APIs together */
  constructor(tagsMax: number) {
    this.#tagsMax = tagsMax;
  }

  get size(): number {
    return this.#tags;
  }

  /** Counts a verdict once for each of its tags. */
  count(apiId: string, tags: readonly string[], code: VerdictCode): void {
    for (const tag of new Set(tags)) this.#of(apiId, tag)[code]++;
  }

  /** Adds counts back that were taken. */
  restore(apiId: string, tag: string, counts: VerdictCounts): void {
    const sum = this.#of(apiId, tag);
    for (const code of VERDICT_CODES) sum[code] += counts[code];
  }

  /** Takes all counts out, in parts of at most `most` tags of one API. */
  *take(most: number): Generator<readonly [apiId: string, tags: (readonly [string, VerdictCounts])[]]> {
    const apis = [...this.#apis];
    this.#apis.clear();
    this.#tags = 0;
    for (const [apiId, counts] of apis) {
      const tags = [...counts];
      for (let i = 0; i < tags.length; i += most) yield [apiId, tags.slice(i, i + most)];
    }
  }

  #of(apiId: string, tag: string): VerdictCounts {
    const tags = this.#apis.get(apiId) ?? new Map<string, VerdictCounts>();
    this.#apis.set(apiId, tags);
    const present = tags.get(tag);
    if (present !== undefined) return present;
    if (tag !== OTHER_TAGS && this.#tags >= this.#tagsMax) return this.#of(apiId, OTHER_TAGS);
    if (tag !== OTHER_TAGS) this.#tags++;
    const counts = { ...NO_COUNTS };
    tags.set(tag, counts);
    return counts;
  }
}

const NO_COUNTS: Readonly<VerdictCounts> = perVerdict(() => 0);
