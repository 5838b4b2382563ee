// The entry `keyfence/testing` of the package.

import { systemClock } from '#shared/process/clock.ts';
import type { LimitRequirement } from '#shared/protocol/records/limits-in-memory.ts';
import { drawBytes } from '#shared/rules/key-format.ts';
import { UNKNOWN_PRESENTER } from '#shared/rules/presenter.ts';
import { brokenRule, type KeyFacts, RULES, UNRESTRICTED } from '#shared/rules/rules.ts';
import type { VerdictCode } from '#shared/rules/verdict-codes.ts';
import { CREDITS, holdFields } from '../core/question.ts';
import { amountsTaken } from '../metering/holds.ts';
import { readWatchOptions } from './events.ts';
import { holdThrough } from './held-key.ts';
import {
  type Costs,
  type HeldKey,
  type HoldOptions,
  type KeyVerdict,
  type KeyVerifier,
  type KnownKey,
  type LimitState,
  type QuestionOptions,
  type Release,
  type ValidKey,
  VerifierError,
  type VerifierEvents,
  WatchError,
  type WatchOptions,
} from './key-verifier.ts';
import { checkedRelease, type KeylessQuestion, readQuestionOptions } from './options.ts';

export type {
  Costs,
  HeldKey,
  HoldOptions,
  KeyVerdict,
  KeyVerifier,
  KnownKey,
  QuestionOptions,
  Release,
} from './key-verifier.ts';
export { VerifierError, WatchError } from './key-verifier.ts';

/**
 * The verdict on a key. `valid` = VALID, as far as the key's other fields allow it; `unavailable` =
 * there is no verdict, as without Redis; the others are the code of the verdict.
 */
export type TestKeyState =
  | 'valid'
  | 'concurrencyExceeded'
  | 'disabled'
  | 'expired'
  | 'forbidden'
  | 'insufficientPermissions'
  | 'notFound'
  | 'rateLimited'
  | 'unavailable'
  | 'usageExceeded';

/** A key of a test: its state, by default `valid`, and its fields as a verdict shows them. */
export interface TestKey extends Partial<KnownKey> {
  readonly state?: TestKeyState;
}

/** A verifier without Redis, whose keys a test sets. */
export interface TestVerifier extends KeyVerifier {
  /** Sets a key, from now on. Watches of a key that is no longer good abort at once. */
  set(key: string, state: TestKeyState | TestKey): void;
  /** The questions so far, in their order. */
  readonly questions: readonly { readonly key: string; readonly options: QuestionOptions }[];
}

/**
 * Creates a verifier in memory for the tests of an application: other keys than those that are set get
 * NOT_FOUND. It honours `apiId`, `permissions`, `expires` and `remaining` (a VALID verdict takes the cost of
 * the question, and a release charges that of a hold) as a real verifier does. Limits do not count by themselves: set
 * `rateLimited` or `concurrencyExceeded`. It throws the same TypeErrors as a real verifier.
 */
export function createTestVerifier(
  keys: Readonly<Record<string, TestKeyState | TestKey>> = {},
): TestVerifier {
  const verifier = new MemoryVerifier();
  for (const [key, state] of Object.entries(keys)) verifier.set(key, state);
  return verifier;
}

const CODES = {
  valid: 'VALID',
  concurrencyExceeded: 'CONCURRENCY_EXCEEDED',
  disabled: 'DISABLED',
  expired: 'EXPIRED',
  forbidden: 'FORBIDDEN',
  insufficientPermissions: 'INSUFFICIENT_PERMISSIONS',
  notFound: 'NOT_FOUND',
  rateLimited: 'RATE_LIMITED',
  usageExceeded: 'USAGE_EXCEEDED',
} as const;

/** Returns the options that are set. A guard's options are one object for each request, with other data. */
function presentIn(
  { apiId, clientIp, origin, tags, remaining, ratelimits, permissions }: QuestionOptions,
  question: KeylessQuestion,
): QuestionOptions {
  // Guards always ask for the places that a key might need.
  const isUsual = question.hold?.onlyWith === 'places' && question.hold.names === undefined;
  const held = isUsual ? {} : holdFields(question);
  const all = { apiId, clientIp, origin, tags, remaining, ratelimits, permissions, ...held };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

interface Watch {
  readonly key: string;
  readonly question: KeylessQuestion;
  readonly over: AbortController;
}

interface TestHold {
  readonly key: string;
  readonly reserved: number;
  readonly limits: readonly LimitRequirement[];
  release?: Release;
}

/** Charges all of a rate limit, as if there were always enough. */
function limitsCharged(limits: TestHold['limits'], costs: Costs): Pick<Release, 'ratelimits'> {
  if (limits.length === 0) return {};
  return { ratelimits: limits.map(({ name, cost }) => ({ name, charged: costs[name] ?? cost })) };
}

class MemoryVerifier implements TestVerifier {
  /** Its keys are those of the test, so that guards need not name an API. */
  readonly apiIds: readonly string[] = [];
  readonly questions: { key: string; options: QuestionOptions }[] = [];
  readonly #keys = new Map<string, TestKey>();
  readonly #watches = new Set<Watch>();
  readonly #holds = new Map<string, TestHold>();
  #isClosed = false;

  set(key: string, state: TestKeyState | TestKey): void {
    const testKey = typeof state === 'string' ? { state } : state;
    if (
      testKey.state !== undefined &&
      testKey.state !== 'unavailable' &&
      !Object.hasOwn(CODES, testKey.state)
    )
      throw new TypeError(`state: must be one of ${Object.keys(CODES).join(', ')}, unavailable`);
    this.#keys.set(key, { keyId: `key_test_${this.#keys.size + 1}`, ...this.#keys.get(key), ...testKey });
    for (const watch of this.#watches) this.#recheck(watch);
  }

  async ready(): Promise<void> {
    if (this.#isClosed) throw new VerifierError('CLOSED', 'the verifier was closed');
  }

  decide(key: string, options: QuestionOptions = {}): KeyVerdict | undefined {
    const question = readQuestionOptions(key, options);
    if (this.#isClosed || this.#isUnavailable(key)) return undefined;
    if (!question.isRecheck) this.questions.push({ key, options: presentIn(options, question) });
    const before = this.#keys.get(key)?.remaining;
    const verdict = this.#verdict(key, question);
    if (verdict.code === 'VALID' && verdict.remaining !== undefined)
      this.#keys.set(key, { ...this.#keys.get(key), remaining: verdict.remaining });
    return verdict.code === 'VALID' ? this.#withHold(key, verdict, question, before) : verdict;
  }

  async verify(key: string, options: QuestionOptions = {}): Promise<KeyVerdict> {
    const verdict = this.decide(key, options);
    if (verdict !== undefined) return verdict;
    throw this.#isClosed
      ? new VerifierError('CLOSED', 'the verifier was closed')
      : new VerifierError('SERVICE_UNAVAILABLE', 'the test set this key to unavailable');
  }

  #withHold(
    key: string,
    verdict: ValidKey,
    { hold, requirements }: KeylessQuestion,
    before: number | undefined,
  ): KeyVerdict {
    const hasCredits = verdict.remaining !== undefined;
    const isNeeded =
      verdict.concurrency !== undefined || (hasCredits && hold?.onlyWith === 'placesOrCredits');
    if (hold === undefined || (hold.onlyWith && !hold.names && !isNeeded)) return verdict;
    const id = `hold_test_${drawBytes(16).toString('base64url')}`;
    const limits = requirements.limits.filter(({ isHeld }) => isHeld);
    const reserved = (before ?? requirements.cost) - (verdict.remaining ?? 0);
    this.#holds.set(id, { key, reserved, limits });
    const parts = limits.map(({ name, cost: held }) => ({ name, held }));
    if (hasCredits) parts.push({ name: CREDITS, held: reserved });
    const isLess = hold.leastCredits !== undefined || limits.some(({ least }) => least !== undefined);
    const expiresAt = systemClock.wallMs() + hold.forMs;
    return { ...verdict, hold: { id, expiresAt, ...(isLess && amountsTaken(parts)) } };
  }

  hold(key: string, options?: HoldOptions): Promise<HeldKey> {
    return holdThrough(this, key, options);
  }

  async release(hold: string, cost?: number | Costs): Promise<Release> {
    const { costs } = checkedRelease(hold, cost);
    if (this.#isClosed) throw new VerifierError('CLOSED', 'the verifier was closed');
    const held = this.#holds.get(hold);
    if (held === undefined) throw new VerifierError('HOLD_UNKNOWN', 'hold: it never was');
    held.release ??= {
      ...this.#charge(held.key, held.reserved, costs[CREDITS] ?? held.reserved),
      ...limitsCharged(held.limits, costs),
    };
    return held.release;
  }

  #charge(key: string, reserved: number, cost: number): Release {
    const { remaining, ...fields } = this.#keys.get(key) ?? {};
    if (remaining === undefined) return { charged: 0 };
    const charged = Math.min(cost, reserved + remaining);
    const rest = remaining + reserved - charged;
    this.#keys.set(key, { ...fields, remaining: rest });
    return { charged, ...(charged < cost && { short: cost - charged }), remaining: rest };
  }

  watch(key: string, options: WatchOptions): AbortSignal {
    const watch = { key, question: readWatchOptions(key, options), over: new AbortController() };
    const { signal } = options;
    if (signal.aborted) return watch.over.signal;
    this.#watches.add(watch);
    signal.addEventListener('abort', () => this.#watches.delete(watch), { once: true });
    this.#recheck(watch);
    return watch.over.signal;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const watch of this.#watches) this.#recheck(watch);
  }

  on<E extends keyof VerifierEvents>(_event: E, _listener: (event: VerifierEvents[E]) => void): () => void {
    return () => undefined;
  }

  #isUnavailable(key: string): boolean {
    return this.#keys.get(key)?.state === 'unavailable';
  }

  #recheck(watch: Watch): void {
    const { key, question, over } = watch;
    const code = this.#isClosed
      ? 'CLOSED'
      : this.#isUnavailable(key)
        ? 'SERVICE_UNAVAILABLE'
        : this.#verdict(key, { ...question, isRecheck: true }).code;
    if (code === 'VALID') return;
    this.#watches.delete(watch);
    over.abort(new WatchError(code));
  }

  #verdict(key: string, { apiId, requirements, isRecheck, hold }: KeylessQuestion): KeyVerdict {
    const { state = 'valid', ...fields } = this.#keys.get(key) ?? { state: 'notFound' as const };
    if (state === 'notFound' || state === 'unavailable') return { valid: false, code: 'NOT_FOUND' };
    const data: KnownKey = { meta: {}, apiId: apiId ?? 'test', keyId: '', ...fields };
    const { remaining } = data;
    const least = hold?.leastCredits ?? requirements.cost;
    const cost = isRecheck ? 0 : Math.max(least, Math.min(requirements.cost, remaining ?? requirements.cost));
    const broken = brokenRule(
      factsOf(data),
      { apiId, presenter: UNKNOWN_PRESENTER, ...requirements },
      systemClock.wallMs(),
    );
    const byRules = broken === undefined ? 'VALID' : RULES[broken].code;
    let code: VerdictCode = state === 'valid' || broken === 'api' ? byRules : CODES[state];
    if (code === 'VALID' && remaining !== undefined && remaining < cost) code = 'USAGE_EXCEEDED';
    if (code === 'FORBIDDEN') return { valid: false, code };
    const enabled = state !== 'disabled';
    if (code !== 'VALID') return { valid: false, code, enabled, ...data, ...limitsOf(code, data) };
    const rest = remaining === undefined ? {} : { remaining: remaining - cost };
    return { valid: true, code, enabled: true, ...data, ...rest };
  }
}

const factsOf = ({ apiId, expires = 0, permissions }: KnownKey): KeyFacts => ({
  ...{ ...UNRESTRICTED, apiId, enabled: true, identity: undefined, expires },
  slugSet: new Set(permissions),
});

/** Returns the limit that refuses the key, unless the test set its limits. */
function limitsOf(code: KeyVerdict['code'], { ratelimits }: KnownKey): { ratelimits?: LimitState[] } {
  if (code !== 'RATE_LIMITED' || ratelimits !== undefined) return {};
  const duration = 60_000;
  const reset = systemClock.wallMs() + duration;
  return { ratelimits: [{ name: 'default', limit: 1, duration, remaining: 0, reset, exceeded: true }] };
}
