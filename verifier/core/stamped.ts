import type { Stamp } from './ports.ts';
import type { Question } from './question.ts';
import type { Verdict, VerdictSource } from './verdict.ts';

/** A verdict source whose good verdicts have stamps. */
export class StampedVerdicts implements VerdictSource {
  readonly #verifier: VerdictSource;
  readonly #stamps: readonly Stamp[];

  constructor(verifier: VerdictSource, stamps: readonly Stamp[]) {
    this.#verifier = verifier;
    this.#stamps = stamps;
  }

  decide(question: Question): Verdict | undefined {
    const verdict = this.#verifier.decide(question);
    return verdict?.code === 'VALID' && !question.isRecheck ? this.#stamped(verdict, verdict) : verdict;
  }

  async lookUp(question: Question): Promise<Verdict> {
    const verdict = await this.#verifier.lookUp(question);
    if (verdict.code !== 'VALID' || question.isRecheck) return verdict;
    if (!this.#stamps.some((stamp) => stamp.applies(verdict))) return verdict;
    // A change may have come since the verdict.
    return this.#stamped(verdict, this.#verifier.decide({ ...question, isRecheck: true }));
  }

  /** @param now a verdict on the same key, decided in this synchronous block */
  #stamped(verdict: Verdict, now: Verdict | undefined): Verdict {
    let { stamps } = verdict;
    for (const stamp of this.#stamps) {
      const value = stamp.applies(verdict) ? stamp.value(now) : '';
      if (value !== '') stamps = { ...stamps, [stamp.header]: value };
    }
    return stamps === verdict.stamps ? verdict : { ...verdict, stamps };
  }
}
