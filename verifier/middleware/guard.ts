import { CREDITS_MAX } from '#shared/contract/credits.ts';
import { ApiError, RETRY_AFTER_SECONDS } from '#shared/contract/errors.ts';
import { requestIdFrom } from '#shared/contract/request-id.ts';
import { VERDICTS } from '#shared/contract/verdict-codes.ts';
import { systemClock } from '#shared/lang/clock.ts';
import { credentialOf, SOURCES, type Source } from '../endpoints/credentials.ts';
import { type AuthzOutcome, authzAnswer, limitOutcome } from '../endpoints/gateway-answer.ts';
import type { HeaderLine } from '../endpoints/identity-headers.ts';
import { PROBLEM_TYPE, problemBody } from '../http/problem.ts';
import { createClient } from '../library/client.ts';
import type { KeyVerdict, KeyVerifier, QuestionOptions, ValidKey } from '../library/key-verifier.ts';
import { apiIdFault, optionsObject, permissionsFault, wrongOptions } from '../library/options.ts';
import { fixedOptions } from '../library/questions.ts';
import type { GuardOptions, RouteGuardOptions } from './guard-options.ts';
import { headersOf, loneBearer } from './header-lines.ts';
import { type Carrier, notePayment, Payment, paymentOf } from './paid-requests.ts';

/** An answer in place of the handler's. */
export class Refusal {
  readonly status: number;
  readonly headers: readonly HeaderLine[];
  readonly body: string;

  constructor(status: number, headers: readonly HeaderLine[], body: string) {
    this.status = status;
    this.headers = headers;
    this.body = body;
  }
}

/** Says whether a request may come to its handler: the key that lets it, or the answer that it gets instead. */
export type Passage = ValidKey | Refusal;

/**
 * Lets requests pass that have a good key. Closed: whatever goes wrong is a refusal, and nothing is thrown but what the
 * application's own `cost` throws.
 */
export interface Guard<R> {
  /**
   * Judges a request, at once where memory may tell. One that another guard let pass by the same key is judged anew, and pays
   * only what this guard asks for beyond that.
   */
  check(incoming: IncomingRequest<R>): Passage | Promise<Passage>;
  /** The same guard for other sources or another API. Throws TypeError, which names every wrong option. */
  with(options: RouteGuardOptions<R>): Guard<R>;
  /** Closes the client that was made for `url` or `unixSocket`; a verifier that was handed in stays. */
  close(): Promise<void>;
}

/** A request that wants to pass. */
export interface IncomingRequest<R> {
  /** Names and values of its headers in turn. */
  readonly rawHeaders: readonly string[];
  /** Its path and query. */
  readonly target: string;
  /** As the framework has it, for `cost`. */
  readonly request: R;
  /** The same object for all guards of a request. */
  readonly carrier: Carrier;
  /** Its id in the framework's log, undefined where there is none. */
  readonly id: unknown;
}

/** Throws TypeError, which names every wrong option. */
export function createGuard<R>(options: GuardOptions<R>): Guard<R> {
  const { verifier, url, unixSocket, ...rest } = optionsObject(options, 'options') as GuardOptions<R>;
  const ways = [verifier, url, unixSocket].filter((way) => way !== undefined);
  if (ways.length !== 1) throw wrongOptions(['verifier, url, unixSocket: give one of them']);
  const rules = rulesOf(rest, DEFAULT_RULES);
  if (verifier === undefined) {
    const client = createClient(url === undefined ? { unixSocket: unixSocket ?? '' } : { url });
    return guard(client, rules, () => client.close());
  }
  const { decide, verify } = Object(verifier) as Partial<KeyVerifier>;
  if (typeof decide !== 'function' || typeof verify !== 'function')
    throw wrongOptions(['verifier: must be one of createVerifier or createClient']);
  return guard(verifier, rules, async () => undefined);
}

interface Rules<R> {
  readonly sources: readonly Source[];
  readonly questionOptions: QuestionOptions | undefined;
  /** Credits that a request costs, where that is not the same for all. */
  readonly costOf: ((request: R) => number) | undefined;
}

const DEFAULT_RULES: Rules<unknown> = {
  sources: ['bearer', 'x-api-key'],
  questionOptions: undefined,
  costOf: undefined,
};

function rulesOf<R>(options: RouteGuardOptions<R>, byDefault: Rules<R>): Rules<R> {
  const record = optionsObject(options, 'options');
  const faults = Object.keys(record).flatMap((name) =>
    OPTIONS.has(name) ? [] : [`${name}: unknown option`],
  );
  const { apiId, sources, permissions, cost } = options;
  // One that is there and undefined is a mistake, which would let the keys of any API pass.
  const fault = 'apiId' in record ? apiIdFault(apiId, 'apiId') : undefined;
  if (fault !== undefined) faults.push(fault);
  const permissionsProblem =
    'permissions' in record ? permissionsFault(permissions, 'permissions') : undefined;
  if (permissionsProblem !== undefined) faults.push(permissionsProblem);
  const isList =
    Array.isArray(sources) && sources.length > 0 && sources.every((source) => SOURCES.includes(source));
  if (sources !== undefined && !isList) faults.push(`sources: must be an array of ${SOURCES.join(', ')}`);
  if ('cost' in record && typeof cost !== 'function' && !isCost(cost))
    faults.push(`cost: must be a whole number from 0 to ${CREDITS_MAX}, or a function`);
  if (faults.length > 0) throw wrongOptions(faults);
  const merged = { ...byDefault.questionOptions, ...questionOptionsOf(options) };
  return {
    sources: isList ? SOURCES.filter((source) => sources.includes(source)) : byDefault.sources,
    questionOptions: Object.keys(merged).length > 0 ? fixedOptions(merged) : undefined,
    costOf: typeof cost === 'function' ? cost : cost === undefined ? byDefault.costOf : undefined,
  };
}

const OPTIONS: ReadonlySet<string> = new Set(['apiId', 'sources', 'permissions', 'cost']);

/** The part of the options that a verifier is asked with. */
const questionOptionsOf = <R>({ apiId, permissions, cost }: RouteGuardOptions<R>): QuestionOptions => ({
  ...(apiId === undefined ? {} : { apiId }),
  ...(permissions === undefined ? {} : { permissions }),
  ...(typeof cost === 'number' ? { remaining: { cost } } : {}),
});

const isCost = (cost: unknown): cost is number =>
  typeof cost === 'number' && Number.isInteger(cost) && cost >= 0 && cost <= CREDITS_MAX;

/** The price that a request has of its own. */
function checkedCost(cost: number): number {
  if (!isCost(cost)) {
    // Of a promise nobody would hear that it was rejected, which ends a process.
    void Promise.resolve<unknown>(cost).catch(() => undefined);
    throw new TypeError(`cost: must return a whole number from 0 to ${CREDITS_MAX}`);
  }
  return cost;
}

function guard<R>(verifier: KeyVerifier, rules: Rules<R>, close: () => Promise<void>): Guard<R> {
  const { sources, costOf } = rules;
  const takesBearer = sources.includes('bearer') && !sources.includes('query');
  return {
    close,
    with: (options) => guard(verifier, rulesOf(options, rules), close),
    check(incoming) {
      const { rawHeaders, target, request, carrier } = incoming;
      let key = takesBearer ? loneBearer(rawHeaders) : undefined;
      if (key === undefined) {
        const credential = credentialOf(headersOf(rawHeaders), target, sources);
        if ('fault' in credential) return refusalOf({ code: credential.fault }, incoming);
        ({ key } = credential);
      }
      const cost =
        costOf === undefined ? (rules.questionOptions?.remaining?.cost ?? 1) : checkedCost(costOf(request));
      const payment = paymentOf(carrier, key);
      try {
        const questionOptions =
          payment?.question(rules.questionOptions, cost) ??
          (costOf ? { ...rules.questionOptions, remaining: { cost } } : rules.questionOptions);
        const verdict = verifier.decide(key, questionOptions);
        if (verdict !== undefined) return settle(verdict, incoming, key, cost);
        return Promise.resolve(verifier.verify(key, questionOptions))
          .then((lateVerdict) => settle(lateVerdict, incoming, key, cost))
          .catch(() => unavailable(incoming));
      } catch {
        return unavailable(incoming);
      }
    },
  };
}

/** Notes what a request has paid that may pass. */
function settle(verdict: KeyVerdict, incoming: IncomingRequest<unknown>, key: string, cost: number): Passage {
  const { carrier } = incoming;
  const payment = paymentOf(carrier, key);
  const passage = passageOf(payment?.completeVerdict(verdict) ?? verdict, incoming);
  if (!(passage instanceof Refusal))
    notePayment(carrier, new Payment(key, Math.max(cost, payment?.cost ?? 0), passage));
  return passage;
}

/** Only a verdict that is VALID in all its parts lets pass; one that is not known decides nothing. */
function passageOf(verdict: KeyVerdict, incoming: IncomingRequest<unknown>): Passage {
  if (verdict.code === 'VALID' && verdict.valid === true) return verdict;
  const { code } = verdict;
  const status: number = Object.hasOwn(VERDICTS, code) ? VERDICTS[code].status : 200;
  return status === 200 ? unavailable(incoming) : refusalOf(outcomeOf(verdict), incoming);
}

/** The verdict with all that it tells of credits and rate limits, for the headers of its answer. */
function outcomeOf(verdict: KeyVerdict): AuthzOutcome {
  const { code } = verdict;
  if (code !== 'RATE_LIMITED' && code !== 'USAGE_EXCEEDED') return { code };
  const { remaining, ratelimits } = verdict;
  const exceededLimit = ratelimits?.find((limit) => limit.exceeded);
  const retryMs = exceededLimit && exceededLimit.reset - systemClock.wallMs();
  return { code, spending: { code, remaining, limits: ratelimits?.map(limitOutcome), retryMs } };
}

/** The answer that `/authz` gives. */
function refusalOf(outcome: AuthzOutcome, incoming: IncomingRequest<unknown>): Refusal {
  const requestId = requestIdOf(incoming);
  const { status, headers, body } = authzAnswer(outcome, requestId, false);
  return new Refusal(status, [...headers, ...everyAnswer(requestId)], body);
}

function unavailable(incoming: IncomingRequest<unknown>): Refusal {
  const requestId = requestIdOf(incoming);
  const { code, status } = new ApiError('SERVICE_UNAVAILABLE', '');
  const headers: HeaderLine[] = [['Retry-After', String(RETRY_AFTER_SECONDS)], ...everyAnswer(requestId)];
  return new Refusal(status, headers, problemBody({ status, code, requestId }));
}

/** The id that the application's own log has, where a header may say it; else the client's own, or a new one. */
function requestIdOf({ id, rawHeaders }: IncomingRequest<unknown>): string {
  const own = typeof id === 'string' || typeof id === 'number' ? String(id) : '';
  return /^[\x21-\x7e]{1,256}$/.test(own) ? own : requestIdFrom(headersOf(rawHeaders)['x-request-id']?.[0]);
}

const everyAnswer = (requestId: string): HeaderLine[] => [
  ['Content-Type', PROBLEM_TYPE],
  ['Cache-Control', 'no-store'],
  ['X-Request-Id', requestId],
];
