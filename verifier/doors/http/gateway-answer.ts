import type { ServerResponse } from 'node:http';
import { systemClock } from '#shared/process/clock.ts';
import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import { type Limit, ownLimit } from '#shared/protocol/records/limits-in-memory.ts';
import { originOf } from '#shared/rules/origins.ts';
import { perVerdict, type VerdictCode } from '#shared/rules/verdict-codes.ts';
import type { LimitOutcome, Spending, Verdict } from '../../core/verdict.ts';
import { DOOR_FIELDS, showsKey, VERDICT_FIELDS } from '../../core/verdict-body.ts';
import type { CredentialFault, CredentialSource } from './credentials.ts';
import { answer, PROBLEM_TYPE, problemBody } from './respond.ts';

/** The outcome of a question: a verdict, or the reason why there was no usable key. */
export type AuthzOutcome =
  | Verdict
  | AnonymousRefusal
  // ANONYMOUS: a request without a key, where keys are optional.
  | { readonly code: CredentialFault | 'PREFLIGHT' | 'ANONYMOUS' };

/** The refusal of a request without a key, from an address that has sent too many. */
export interface AnonymousRefusal {
  readonly code: 'RATE_LIMITED';
  readonly spending: Spending;
  readonly detail: string;
}

/** An answer to a gateway. */
export interface AuthzAnswer {
  readonly status: number;
  readonly headers: readonly HeaderLine[];
  /** Headers of the API's response that tell the client what its key has left. */
  readonly allowances?: readonly HeaderLine[] | undefined;
  readonly body: string;
  /** Content type of the body; default: `PROBLEM_TYPE`. */
  readonly type?: string;
}

/** The settings that answers depend on. */
export interface AnswerSettings {
  /** The places for keys, which a challenge names. */
  readonly sources: readonly CredentialSource[];
  /** True = the identity headers include `X-Key-Meta`. */
  readonly withMeta: boolean;
  /** The headers of stamps, which they include; undefined = none. */
  readonly stamps?: readonly string[] | undefined;
  /** URL of the resource's metadata (RFC 9728), which a challenge names; undefined = none. */
  readonly resourceMetadata?: string | undefined;
}

/** The settings that identity headers depend on. */
type IdentitySettings = Pick<AnswerSettings, 'withMeta' | 'stamps'>;

/** The answers in the form that one kind of gateway understands. */
export interface GatewayAnswers {
  /** Returns the answer to a question. */
  answer(outcome: AuthzOutcome, requestId: string, settings: AnswerSettings): AuthzAnswer;
  /**
   * Returns the header lines of the answer to a valid key without details. The lines equal those of `answer`
   * byte for byte, at a lower cost.
   */
  plainLines?(verdict: Pick<Verdict, 'stamps'>, entry: Entry, settings: IdentitySettings): string;
}

/**
 * Returns the answer that gateways of every dialect understand: 200 without a body allows, any other status
 * refuses. `X-Key-Code` names a refusal because of credits or rate limits, so that a gateway can turn it into
 * 429 itself.
 * @param knows429 true if the gateway accepts a 429
 */
export function authzAnswer(
  outcome: AuthzOutcome,
  requestId: string,
  settings: AnswerSettings,
  knows429 = true,
): AuthzAnswer {
  const { code } = outcome;
  if (code === 'VALID' || code === 'PREFLIGHT' || code === 'ANONYMOUS') {
    const allowances = 'spending' in outcome ? allowancesOf(outcome.spending) : undefined;
    return { status: 200, headers: identityHeaders(outcome, settings), allowances, body: '' };
  }
  const { sources, resourceMetadata } = settings;
  const [status, error, sentence] = REFUSALS[code];
  const detail = 'detail' in outcome ? outcome.detail : sentence;
  const headers: HeaderLine[] =
    status === 401 ? [['WWW-Authenticate', challengeOf(sources, error, resourceMetadata)]] : [];
  if (status !== 429) return { status, headers, body: problemBody({ status, code, detail, requestId }) };
  const spending = 'spending' in outcome ? outcome.spending : undefined;
  headers.push(['X-Key-Code', code], ...whenAgain(spending));
  const gatewayStatus = knows429 ? 429 : 403;
  return {
    status: gatewayStatus,
    headers,
    body: problemBody({ status: gatewayStatus, code, detail, ...shortageOf(spending), requestId }),
  };
}

/** Returns what a refusal says of a cost that no wait makes fit. */
function shortageOf({ needed: cost, remaining = 0, limits = [] }: Partial<Spending> = {}) {
  if (cost === undefined || cost === 1) return {};
  const over = limits.find(({ exceeded }) => exceeded);
  const rest = over
    ? `the limit ${over.limit.name} is ${over.limit.limit}`
    : `the API key has ${remaining} credits left`;
  return {
    ...{ detail: `The request needs ${cost}, and ${rest}.`, cost },
    remaining: over ? over.remaining : remaining,
  };
}

/**
 * Returns an answer with the headers that let the script of a web page read a refusal, if it may. The origins in a key's list may
 * read the refusals of that key. If there is no list, because the key has none or is missing or unknown, any page may or none, and
 * never with the visitor's cookies.
 * @param origin of the page; undefined = no page asks
 * @param isForPages true = any page may
 */
export function readableByPage(
  answer: AuthzAnswer,
  outcome: AuthzOutcome,
  origin: string | undefined,
  isForPages: boolean,
): AuthzAnswer {
  if (origin === undefined || answer.status === 200) return answer;
  const entry = 'about' in outcome ? outcome.about : 'entry' in outcome ? outcome.entry : undefined;
  const origins = entry?.origins;
  if (origins === undefined ? !isForPages : !origins.has(origin)) return answer;
  const allowed: readonly HeaderLine[] = origins
    ? [
        ['Access-Control-Allow-Origin', originOf(origin) ?? ''],
        ['Access-Control-Allow-Credentials', 'true'],
      ]
    : [['Access-Control-Allow-Origin', '*']];
  return { ...answer, headers: [...answer.headers, ...allowed, EXPOSED] };
}

/** Tells browsers which headers of a refusal a page may read. */
const EXPOSED: HeaderLine = [
  'Access-Control-Expose-Headers',
  'Retry-After, RateLimit, RateLimit-Policy, WWW-Authenticate, X-Request-Id',
];

const plainLines: GatewayAnswers['plainLines'] = (verdict, { keyId, epoch }, { withMeta, stamps = [] }) => {
  let lines = `X-Key-Id: ${keyId}\r\nX-Key-Api-Id: ${epoch.apiId}\r\nX-Key-Name: \r\nX-Key-External-Id: \r\n${withMeta ? 'X-Key-Meta: {}\r\n' : ''}`;
  for (const name of stamps) lines += `${name}: ${verdict.stamps?.[name] ?? ''}\r\n`;
  return lines;
};

/** Answers that almost every gateway understands. */
export const ANSWERS: GatewayAnswers = { answer: authzAnswer, plainLines };

/** Answers to gateways that understand no other refusals than 401 and 403. */
export const ANSWERS_WITHOUT_429: GatewayAnswers = {
  answer: (outcome, requestId, settings) => authzAnswer(outcome, requestId, settings, false),
  plainLines,
};

/** Sends an answer as a complete response. */
export function sendAnswer(
  response: ServerResponse,
  { status, headers, allowances = [], body, type = PROBLEM_TYPE }: AuthzAnswer,
): void {
  for (const [name, value] of headers) response.setHeader(name, value);
  for (const [name, value] of allowances) response.setHeader(name, value);
  answer(response, status, body === '' ? undefined : type, body);
}

/** Returns a rate limit in the form that `authzAnswer` takes. */
export const limitOutcome = ({
  name,
  limit,
  duration,
  ...state
}: Pick<Limit, 'name' | 'limit'> & { readonly duration: number } & Omit<
    LimitOutcome,
    'limit'
  >): LimitOutcome => ({
  limit: ownLimit(name, limit, duration),
  ...state,
});

/**
 * Returns the headers that tell a refused client when to ask again: `Retry-After`, `RateLimit` and
 * `RateLimit-Policy` (IETF draft). A cost that no wait makes fit has no `Retry-After`.
 */
function whenAgain({
  code,
  remaining = 0,
  limits = [],
  retryMs,
  needed,
}: Partial<Spending> = {}): HeaderLine[] {
  const seconds = retryMs === undefined ? undefined : secondsOf(retryMs);
  const retryAfter = (otherwise: number): HeaderLine[] =>
    needed === undefined ? [['Retry-After', String(seconds ?? otherwise)]] : [];
  // There is no header for places.
  if (code === 'CONCURRENCY_EXCEEDED') return retryAfter(1);
  const until = seconds === undefined ? '' : `;t=${seconds}`;
  const limit = limits.find(({ exceeded }) => exceeded);
  if (limit === undefined) {
    return [...retryAfter(RETRY_AFTER_S), ['RateLimit', `"credits";r=${remaining}${until}`]];
  }
  return [
    ...retryAfter(1),
    ['RateLimit', `"${limit.limit.name}";r=${limit.remaining}${until}`],
    [
      'RateLimit-Policy',
      `"${limit.limit.name}";q=${limit.limit.limit};w=${secondsOf(limit.limit.durationMs)}`,
    ],
  ];
}

/**
 * Returns `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers) for a request that passes: what its key has
 * left; undefined = the key has neither limits nor credits.
 */
export const allowancesOf = ({ remaining, limits }: Spending): readonly HeaderLine[] | undefined =>
  remaining === undefined && limits === undefined
    ? undefined
    : allowanceLines(
        (limits ?? []).map(({ limit: { name, limit, durationMs: duration }, ...state }) => ({
          ...{ name, limit, duration },
          ...state,
        })),
        remaining,
        systemClock.wallMs(),
      );

/**
 * Returns the same for limits and credits as verdicts show them.
 * @param remaining credits left; undefined = they are not counted
 */
export function allowanceLines(
  limits: readonly Readonly<
    Record<'limit' | 'duration' | 'remaining' | 'reset', number> & { name: string }
  >[],
  remaining: number | undefined,
  nowMs: number,
): readonly HeaderLine[] {
  const items = limits.map((of) => `"${of.name}";r=${of.remaining};t=${secondsOf(of.reset - nowMs)}`);
  const credits = remaining === undefined ? [] : [`"credits";r=${remaining}`];
  const policies = limits.map((of) => `"${of.name}";q=${of.limit};w=${secondsOf(of.duration)}`);
  const lines: HeaderLine[] = [['RateLimit', [...items, ...credits].join(', ')]];
  if (policies.length > 0) lines.push(['RateLimit-Policy', policies.join(', ')]);
  return lines;
}

const secondsOf = (ms: number) => Math.max(1, Math.ceil(ms / 1000));

/** Wait for a key without a refill, some of whose credits may come back when work that holds them ends. */
export const RETRY_AFTER_S = 60;

/**
 * Returns the challenge of a 401, with the schemes in which clients may send their keys. Basic comes first, because
 * browsers read only the first, and then ask for a key. Where keys come in no scheme, a 401 needs one all the same (RFC
 * 9110 §15.5.2).
 */
function challengeOf(
  sources: readonly CredentialSource[],
  error: string | undefined,
  resourceMetadata: string | undefined,
): string {
  const metadata = resourceMetadata === undefined ? '' : `, resource_metadata="${resourceMetadata}"`;
  const schemes = sources.includes('basic') ? ['Basic realm="api"'] : [];
  if (sources.includes('bearer'))
    schemes.push(`Bearer realm="api"${error ? `, error="${error}"` : ''}${metadata}`);
  return schemes.length > 0 ? schemes.join(', ') : `ApiKey realm="api"${metadata}`;
}

/** Status, error of RFC 6750 and the text for the client. */
const REFUSALS: Readonly<
  Record<VerdictCode | CredentialFault, readonly [status: number, error: string | undefined, detail: string]>
> = {
  KEY_MISSING: [401, undefined, 'An API key is required.'],
  KEY_AMBIGUOUS: [401, 'invalid_request', 'The request contains more than one API key; send exactly one.'],
  ...perVerdict(({ status, sentence }) => [status, 'invalid_token', sentence] as const),
};

/** A header line: name and value. */
export type HeaderLine = readonly [name: string, value: string];

/**
 * Maximum length of `X-Key-Meta`, in bytes. With more, the head of an answer could overflow a gateway's
 * buffer.
 */
const META_BYTES_MAX = 2048;

const IDENTITY_HEADERS = DOOR_FIELDS.flatMap(({ field, header }) =>
  header === undefined ? [] : [[header, VERDICT_FIELDS[field].value] as const],
);

/**
 * Returns the headers that tell the API behind a gateway whose key it was. A header without a value is empty
 * instead of missing, because some gateways replace a missing header by a placeholder or by the client's own.
 * @param outcome one without a key: all headers are empty
 * @param settings.withMeta adds `X-Key-Meta`, which is empty if `meta` is longer than 2 KiB
 */
export function identityHeaders(
  outcome: AuthzOutcome,
  { withMeta, stamps = [] }: IdentitySettings,
): HeaderLine[] {
  const verdict = 'entry' in outcome && showsKey(outcome) ? outcome : undefined;
  const headers = IDENTITY_HEADERS.map(
    ([name, value]): HeaderLine => [name, percentEncoded((verdict && value(verdict)) ?? '')],
  );
  if (withMeta)
    headers.push([
      'X-Key-Meta',
      verdict === undefined ? '' : metaHeader(verdict.entry.details?.meta ?? '{}'),
    ]);
  for (const name of stamps) headers.push([name, verdict?.stamps?.[name] ?? '']);
  return headers;
}

/**
 * Returns true for a header that only this process may set. The client's own is removed before the API sees
 * it.
 */
export function isIdentityHeader(name: string): boolean {
  return /^x[^a-z\d]key[^a-z\d]/i.test(name);
}

/**
 * Encodes every character except visible ASCII, and `%`, as in a URL. decodeURIComponent restores the text.
 */
function percentEncoded(text: string): string {
  return /^[\x21-\x24\x26-\x7e]*$/.test(text)
    ? text
    : text.toWellFormed().replace(/[^\x21-\x24\x26-\x7e]+/g, encodeURIComponent);
}

/** Returns JSON in ASCII, with `\uXXXX` for all other characters. */
function metaHeader(json: string): string {
  const ascii = json.replace(
    /[^\x20-\x7e]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return ascii.length > META_BYTES_MAX ? '' : ascii;
}
