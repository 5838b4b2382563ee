import { useEffect, useState } from 'preact/hooks';
import type { VerdictCode } from '#shared/rules/verdict-codes.ts';
import type { Verifier } from './client.ts';
import { CODES } from './verdicts.ts';

const SAMPLES_MAX = 60;
/** Verdicts per second between two reports of each verifier, summed over all verifiers. */
export interface Sample {
  readonly at: number;
  readonly memory: number;
  readonly redis: number;
  /** Rates by verdict; all 0 if the verifiers are too old to report them. */
  readonly codes: Readonly<Record<VerdictCode, number>>;
}

/** Returns samples of the verdicts per second since this page was opened. */
export function useRates(verifiers: readonly Verifier[] | undefined): readonly Sample[] {
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const [before, setBefore] = useState<readonly Verifier[]>([]);
  useEffect(() => {
    if (!verifiers) return;
    const gains = verifiers.flatMap((now) => {
      const was = before.find(({ id }) => id === now.id);
      const seconds = was ? (now.reportedAt - was.reportedAt) / 1000 : 0;
      return was && seconds > 0 ? [{ now, was, seconds }] : [];
    });
    setBefore(verifiers);
    if (gains.length === 0) return;
    const rate = (of: (verifier: Verifier) => number) =>
      round(gains.reduce((sum, { now, was, seconds }) => sum + (of(now) - of(was)) / seconds, 0));
    const sample: Sample = {
      at: Date.now(),
      memory: rate(({ verdicts }) => verdicts.memory),
      redis: rate(({ verdicts }) => verdicts.redis),
      codes: Object.fromEntries(
        CODES.map((code) => [code, rate(({ codes }) => codes?.[code] ?? 0)]),
      ) as Sample['codes'],
    };
    setSamples((samples) => [...samples, sample].slice(-SAMPLES_MAX));
  }, [verifiers]);
  return samples;
}

const round = (rate: number) => Math.max(0, Math.round(rate * 10) / 10);
