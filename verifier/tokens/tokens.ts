import { LRUCache } from 'lru-cache';
import type { Clock } from '#shared/process/clock.ts';
import { flattenString } from '#shared/process/flatten-string.ts';
import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import type { TokenKeys } from '#shared/tokens/token-keys.ts';
import type { Stamp } from '../core/ports.ts';
import type { Verdict } from '../core/verdict.ts';
import { showsKey, VERDICT_FIELDS, type VerdictWithKey } from '../core/verdict-body.ts';

/** A key about which a token may be issued at this instant, and the token's end. */
export interface Issue {
  readonly verdict: VerdictWithKey;
  /** Unix seconds. */
  readonly endS: number;
  /** Whom it may be for; the first is the default. */
  readonly audiences: readonly string[];
}

/** Returns what may be issued about a verdict that was decided in this synchronous block; undefined = nothing. */
function issueAbout(verdict: Verdict | undefined, nowMs: number): Issue | undefined {
  if (verdict?.code !== 'VALID' || !showsKey(verdict)) return undefined;
  const endS = Math.floor(endMsOf(verdict.entry) / 1000);
  const { apiId, lease } = verdict.entry.epoch;
  return 1000 * endS > nowMs ? { verdict, endS, audiences: lease.audiences ?? [apiId] } : undefined;
}

/** A token ends with the first of the leases from which its verdict follows, and with its key. */
function endMsOf({ epoch, links, join, expires }: Entry): number {
  const sharedMs = links === undefined ? Number.POSITIVE_INFINITY : (join?.lease.lend().endMs ?? 0);
  return Math.min(epoch.lease.lend().endMs, sharedMs, expires || Number.POSITIVE_INFINITY);
}

/**
 * The reasons for which a good key gets no token. `off`: its API has none; `clock`: this machine's may be wrong; `lease`: it ends
 * soon, or the key is not good any more; `older`: a control plane of an older release makes changes; `large`: a header has no room for it.
 */
export type NoToken = 'off' | 'clock' | 'lease' | 'older' | 'large';

function reasonOf(verdict: Verdict | undefined): NoToken {
  const lease = verdict?.entry?.epoch.lease;
  if (lease?.isLending === false) return 'off';
  if (lease?.isLending === undefined) return 'lease';
  if (lease.isWithheld) return 'older';
  return lease?.isClockRight === false ? 'clock' : 'lease';
}

export const newTokenCounts = (): Record<'issued' | NoToken, number> => ({
  ...{ issued: 0, off: 0, clock: 0, lease: 0, older: 0, large: 0 },
});

/** Signs tokens, and counts them. */
export class TokenIssuer {
  /** Counts since the start, for metrics. */
  readonly counts = newTokenCounts();
  readonly #keys: Pick<TokenKeys, 'sign'>;
  readonly clock: Pick<Clock, 'wallMs'>;

  constructor(keys: Pick<TokenKeys, 'sign'>, clock: Pick<Clock, 'wallMs'>) {
    this.#keys = keys;
    this.clock = clock;
  }

  /**
   * Returns what may be issued about a verdict that was decided in this synchronous block; otherwise the reason, and counts it.
   */
  issue(verdict: Verdict | undefined): Issue | NoToken {
    return issueAbout(verdict, this.clock.wallMs()) ?? this.refuse(reasonOf(verdict));
  }

  refuse(reason: NoToken): NoToken {
    this.counts[reason]++;
    return reason;
  }

  /**
   * @param audience one of those of the issue
   * @param permissions those that the token has of the key's; undefined = all
   */
  sign(
    { verdict, endS, audiences }: Issue,
    audience = audiences[0],
    permissions?: readonly string[],
  ): string {
    this.counts.issued++;
    const { keyId, epoch } = verdict.entry;
    return this.#keys.sign({
      ...{ sub: keyId, aud: audience, api: epoch.apiId, exp: endS },
      externalId: VERDICT_FIELDS.externalId.value(verdict),
      permissions: permissions ?? VERDICT_FIELDS.permissions.value(verdict) ?? [],
    });
  }
}

/** Longest token in a header: with more, the head of an answer could overflow a gateway's buffer. */
export const TOKEN_LENGTH_MAX = 2048;
/** Maximum number of tokens that are kept. */
const KEPT_MAX = 10_000;

/** A token that was issued, and what it says. */
interface Kept extends Pick<Issue, 'endS' | 'audiences'>, Pick<VerdictWithKey, 'effectivePermissions'> {
  readonly details: Entry['details'];
  /** `''` = it is too long. */
  readonly token: string;
}

/**
 * Stamps verdicts with a token, if the key's API has tokens. A token that is kept is handed out again only if it could be issued at
 * this instant: its key is good, and it says the same and ends no later. It then has at least half the life of a new one.
 */
export class TokenStamp implements Stamp {
  readonly header = 'X-Key-Token';
  readonly #issuer: TokenIssuer;
  readonly #kept = new LRUCache<Entry, Kept>({ max: KEPT_MAX });

  constructor(issuer: TokenIssuer) {
    this.#issuer = issuer;
  }

  applies({ entry }: Verdict): boolean {
    return entry?.epoch.lease.isLending === true;
  }

  value(now: Verdict | undefined): string {
    const issue = this.#issuer.issue(now);
    if (typeof issue === 'string') return '';
    const { token } = this.#keptAbout(issue) ?? this.#keep(issue);
    if (token === '') this.#issuer.refuse('large');
    return token;
  }

  #keptAbout({ verdict: { entry, effectivePermissions }, endS, audiences }: Issue): Kept | undefined {
    const kept = this.#kept.get(entry);
    if (kept === undefined || kept.endS > endS || kept.audiences[0] !== audiences[0]) return undefined;
    // Changes replace these objects.
    if (kept.details !== entry.details || kept.effectivePermissions !== effectivePermissions)
      return undefined;
    return 2 * kept.endS >= endS + this.#issuer.clock.wallMs() / 1000 ? kept : undefined;
  }

  #keep(issue: Issue): Kept {
    const { entry, effectivePermissions } = issue.verdict;
    // Part of many answers.
    const token = flattenString(this.#issuer.sign(issue));
    const kept = {
      ...{ details: entry.details, effectivePermissions, endS: issue.endS, audiences: issue.audiences },
      token: token.length > TOKEN_LENGTH_MAX ? '' : token,
    };
    this.#kept.set(entry, kept);
    return kept;
  }
}
