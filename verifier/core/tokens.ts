import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import type { Question } from './question.ts';
import type { VerdictSource } from './verdict.ts';
import { showsKey, type VerdictWithKey } from './verdict-body.ts';

/** A key about which a token may be issued at this instant, and the token's end. */
interface Issue {
  readonly verdict: VerdictWithKey;
  /** Unix seconds. */
  readonly endS: number;
}

/**
 * Decides, in one synchronous block, if a token may be issued about a key that was just accepted: the verdict may be older than
 * the lease. undefined = none may, because the key is not good any more, its API has no tokens, or this clock is wrong.
 * @param question the one that was accepted; it is not counted again
 */
export function issueNow(verifier: Pick<VerdictSource, 'decide'>, question: Question, nowMs: number) {
  const verdict = verifier.decide({ ...question, isRecheck: true });
  if (verdict?.code !== 'VALID' || !showsKey(verdict)) return undefined;
  const endS = Math.floor(endMsOf(verdict.entry) / 1000);
  return 1000 * endS > nowMs ? ({ verdict, endS } satisfies Issue) : undefined;
}

/** A token ends with the first of the leases from which its verdict follows, and with its key. */
function endMsOf({ epoch, links, join, expires }: Entry): number {
  const sharedMs = links === undefined ? Number.POSITIVE_INFINITY : (join?.lease.tokenEndMs() ?? 0);
  return Math.min(epoch.lease.tokenEndMs(), sharedMs, expires || Number.POSITIVE_INFINITY);
}
