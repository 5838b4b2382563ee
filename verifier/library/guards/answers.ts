import { ApiError, RETRY_AFTER_SECONDS } from '#shared/contract/errors.ts';
import { requestIdFrom } from '#shared/contract/request-id.ts';
import { systemClock } from '#shared/lang/clock.ts';
import { type AuthzOutcome, authzAnswer, type HeaderLine, limitOutcome } from '../../http/gateway-answer.ts';
import { PROBLEM_TYPE, problemBody } from '../../http/respond.ts';
import type { KeyVerdict, ValidKey } from '../key-verifier.ts';
import type { RefusedCode } from './guard-options.ts';
import { USUAL_HEADERS } from './header-lines.ts';
import { Refusal } from './refusal.ts';

/** The parts of a request of which a refusal tells. */
interface RefusedIncoming {
  readonly rawHeaders: readonly string[];
  /** The request's id in the framework's log; undefined = none. */
  readonly id: unknown;
}

/** Returns the refusal that `/authz` would answer. */
export function refusalOf(
  outcome: AuthzOutcome & { readonly code: Exclude<RefusedCode, 'SERVICE_UNAVAILABLE'> },
  incoming: RefusedIncoming,
  keyId?: string,
): Refusal {
  const requestId = requestIdOf(incoming);
  const { code } = outcome;
  const { status, headers, body } = authzAnswer(outcome, requestId, false);
  const about = { status, code, requestId, ...(keyId === undefined ? {} : { keyId }) };
  return new Refusal(about, [...headers, ...everyAnswer(requestId)], body);
}

/** Returns the verdict with its credits and rate limits, for the headers of the refusal. */
export function outcomeOf<V extends KeyVerdict>(verdict: V): AuthzOutcome & { readonly code: V['code'] } {
  const { code } = verdict;
  if (code !== 'RATE_LIMITED' && code !== 'USAGE_EXCEEDED') return { code };
  const { remaining, ratelimits } = verdict;
  const exceededLimit = ratelimits?.find((limit) => limit.exceeded);
  const retryMs = exceededLimit && exceededLimit.reset - systemClock.wallMs();
  return { code, spending: { code, remaining, limits: ratelimits?.map(limitOutcome), retryMs } };
}

/** Returns the refusal of a request for which there is no verdict. */
export function unavailable(incoming: RefusedIncoming): Refusal {
  const requestId = requestIdOf(incoming);
  const { status } = new ApiError('SERVICE_UNAVAILABLE', '');
  const code = 'SERVICE_UNAVAILABLE';
  const headers: HeaderLine[] = [['Retry-After', String(RETRY_AFTER_SECONDS)], ...everyAnswer(requestId)];
  return new Refusal({ status, code, requestId }, headers, problemBody({ status, code, requestId }));
}

/**
 * Returns the id from the application's own log if a header may contain it, else the client's id, or a new
 * one.
 */
function requestIdOf({ id, rawHeaders }: RefusedIncoming): string {
  const own = typeof id === 'string' || typeof id === 'number' ? String(id) : '';
  return /^[\x21-\x7e]{1,256}$/.test(own)
    ? own
    : requestIdFrom(USUAL_HEADERS.read(rawHeaders)['x-request-id']?.[0]);
}

const everyAnswer = (requestId: string): HeaderLine[] => [
  ['Content-Type', PROBLEM_TYPE],
  ['Cache-Control', 'no-store'],
  ['X-Request-Id', requestId],
];

/**
 * Returns `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers) for a request that passes:
 * what its key has left. Returns undefined if the key has neither limits nor credits.
 */
export function allowanceHeaders({ remaining, ratelimits }: ValidKey): readonly HeaderLine[] | undefined {
  if (remaining === undefined && ratelimits === undefined) return undefined;
  const limits = ratelimits?.map(
    (limit) => `"${limit.name}";r=${limit.remaining};t=${secondsUntil(limit.reset)}`,
  );
  const credits = remaining === undefined ? [] : [`"credits";r=${remaining}`];
  const policies = ratelimits?.map(
    ({ name, limit, duration }) => `"${name}";q=${limit};w=${Math.max(1, Math.ceil(duration / 1000))}`,
  );
  const lines: HeaderLine[] = [['RateLimit', [...(limits ?? []), ...credits].join(', ')]];
  if (policies !== undefined && policies.length > 0) lines.push(['RateLimit-Policy', policies.join(', ')]);
  return lines;
}

const secondsUntil = (unixMs: number) => Math.max(1, Math.ceil((unixMs - systemClock.wallMs()) / 1000));
