import { systemClock } from '#shared/process/clock.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { instant } from '../../shared/process/clock.ts';
import { Entry, type Epoch } from '../../shared/protocol/follower/key-cache.ts';
import { Lease } from '../../shared/protocol/follower/lease.ts';
import { decodeState } from '../../shared/protocol/records/key-record.ts';
import { ownLimit } from '../../shared/protocol/records/limits-in-memory.ts';
import type { Question } from '../../verifier/core/question.ts';
import {
  FORBIDDEN,
  NOT_FOUND,
  ruleOn,
  type Verdict,
  type VerdictSource,
} from '../../verifier/core/verdict.ts';
import type { HttpLimits } from '../../verifier/doors/http/server.ts';
import { noPools } from './no-credits.ts';

export const limits: HttpLimits = {
  BODY_BYTES_MAX: 65_536,
  HEADER_BYTES_MAX: 16_384,
  FAST_LANE: true,
  FAST_LANE_WAIT_BYTES_MAX: 1_048_576,
  HEADERS_TIMEOUT_MS: 10_000,
  REQUEST_TIMEOUT_MS: 15_000,
  KEEP_ALIVE_TIMEOUT_MS: 90_000,
  STALL_TIMEOUT_MS: 120_000,
  CONNECTIONS_MAX: 1000,
  REQUESTS_IN_FLIGHT_MAX: 1000,
};

/** Ended, and given anew, by tests. */
export const lease = new Lease(systemClock);
export const LEASE_MS = 3_600_000;
lease.extend(instant(systemClock), LEASE_MS);
/** The same of the shared log, which `rich` goes by too: it has an owner, who has no identity. */
export const sharedLease = new Lease(systemClock);
sharedLease.extend(instant(systemClock), LEASE_MS);
const epoch: Epoch = {
  apiId: 'payments',
  lease,
  companion: noPools,
  current: true,
  used: false,
  obeyedAtMs: 0,
};
const plain = decodeState(['1']);
const entries = new Map(
  Object.entries({
    good: plain,
    disabled: { ...plain, enabled: false },
    expired: { ...plain, expires: 1 },
    rich: {
      ...plain,
      name: 'Zoë "Z"',
      externalId: 'user_1',
      meta: '{"plan":"日本"}',
      expires: 32_503_680_000_000,
    },
    poor: { ...plain, name: 'Poor', pool: 'pool_1' },
    empty: { ...plain, pool: 'pool_2' },
    limited: { ...plain, name: 'Límited' },
    permitted: { ...plain, permissions: 'a b.c' },
    listed: { ...plain, allowedIps: '192.0.2.0/24' },
    paged: { ...plain, allowedOrigins: 'https://a.example' },
    large: { ...plain, meta: JSON.stringify({ note: 'x'.repeat(8000) }) },
  }).map(([name, state]) => [name, new Entry(epoch, `key_${name}`, state)]),
);

const rich = entries.get('rich');
if (rich) rich.join = { isCurrent: true, obeyedAtMs: 0, lease: sharedLease, effectivePermissions: undefined };

const LIMITED = {
  code: 'RATE_LIMITED',
  limits: [{ limit: ownLimit('default', 100, 9500), remaining: 0, reset: 1_900_000_000_000, exceeded: true }],
  retryMs: 1200,
} as const;

/**
 * Decides by what the key is called: `good`, `rich`, `large`, `disabled`, `expired`, `other` are in memory, and with credits
 * `poor`, which has 3 whatever it spent, and `empty`, which has none and no refill; `limited` was used too often; `permitted` may do `a` and `b.c`; `listed` may be used from 192.0.2.0/24, and `paged` by https://a.example; any other name is unknown. `slow-<name>` is looked up and waits for `release`; `remote-<name>` is looked up at once;
 * `down` ends in an outage; `bug` and `remote-bug` are faults of ours. Good keys have a token, except `permitted`.
 */
export class ScriptedAnswers implements VerdictSource {
  readonly asked: string[] = [];
  /** Keys that are disabled from now on. */
  readonly disabled = new Set<string>();
  /** Keys that may do nothing from now on. */
  readonly stripped = new Set<string>();
  /** The API that each was asked to be of; `undefined` = any. */
  readonly askedApis: (string | undefined)[] = [];
  #held = Promise.withResolvers<void>();

  /** Lets all look-ups that wait go on. */
  release(): void {
    this.#held.resolve();
    this.#held = Promise.withResolvers();
  }

  decide(question: Question): Verdict | undefined {
    const { key, apiId, isRecheck } = question;
    const { cost, permissions } = question.requirements;
    this.asked.push(key);
    this.askedApis.push(apiId);
    if (key === 'bug') throw new TypeError('a fault of ours');
    if (this.disabled.has(key)) return { code: 'DISABLED' } as const;
    if (key === 'down' || /^(slow|remote)-/.test(key)) return undefined;
    if (key === 'other') return FORBIDDEN;
    const entry = entries.get(key);
    if (entry === undefined) return NOT_FOUND;
    if (permissions !== undefined && this.stripped.has(key))
      return { code: 'INSUFFICIENT_PERMISSIONS', entry };
    const ruled = ruleOn(entry, question, Date.now());
    if (ruled.code !== 'VALID' || isRecheck) return ruled;
    const verdict = key === 'permitted' ? ruled : { ...ruled, stamps: { 'X-Key-Token': `token.of.${key}` } };
    if (key === 'limited') return { code: 'RATE_LIMITED', entry, spending: LIMITED };
    if (entry.pool === '') return verdict;
    const left = key === 'poor' ? 3 : 0;
    if (cost <= left) return { ...verdict, spending: { code: 'VALID', remaining: left - cost } };
    const retryMs = left > 0 ? 5000.5 : undefined;
    return { code: 'USAGE_EXCEEDED', entry, spending: { code: 'USAGE_EXCEEDED', remaining: left, retryMs } };
  }

  async lookUp(question: Question) {
    const { key } = question;
    if (key === 'remote-wrong') throw new ApiError('BAD_REQUEST', 'asked wrongly');
    if (key === 'down') throw unavailable('no answer from Redis');
    if (key === 'remote-bug') throw new TypeError('a fault of ours');
    if (key.startsWith('slow-')) await this.#held.promise;
    return this.decide({ ...question, key: key.slice(key.indexOf('-') + 1) }) ?? NOT_FOUND;
  }
}
