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
import { fixedOptions, withClientIp } from '../library/questions.ts';
import type { GuardOptions, RouteGuardOptions } from './guard-options.ts';
import { headersOf, loneBearer } from './header-lines.ts';
import { type Carrier, notePayment, Payment, paymentOf } from './paid-requests.ts';

/** An answer that replaces the handler's. */
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

/** The result of a check: the key that lets the request pass, or a refusal. */
export type Passage = ValidKey | Refusal;

/**
 * A guard that lets only requests with a valid key pass. It fails closed: every failure is a refusal, and it
 * throws only the errors of the application's own `cost`.
 */
export interface Guard<R> {
  /**
   * Checks a request, synchronously if the verdict is in memory. If another guard already let the request
   * pass with the same key, this guard asks again, but takes only the credits that it costs beyond those
   * already paid.
   */
  check(incoming: IncomingRequest<R>): Passage | Promise<Passage>;
  /** Returns a guard with some rules replaced. Throws a TypeError that names every wrong option. */
  with(options: RouteGuardOptions<R>): Guard<R>;
  /**
   * Closes the client that was created for `url` or `unixSocket`. Does not close the application's own
   * verifier.
   */
  close(): Promise<void>;
}

/** A request to check. */
export interface IncomingRequest<R> {
  /** The request's header names and values, alternating. */
  readonly rawHeaders: readonly string[];
  /** Path and query of the request. */
  readonly target: string;
  /** The framework's request object, for `cost`. */
  readonly request: R;
  /** Address of the client, as the framework knows it; undefined = unknown. */
  readonly clientIp: string | undefined;
  /** An object that is the same for all guards of a request. */
  readonly carrier: Carrier;
  /** The request's id in the framework's log; undefined = none. */
  readonly id: unknown;
}

/** Creates a guard. Throws a TypeError that names every wrong option. */
export function createGuard<R>(options: GuardOptions<R>): Guard<R> {
  const { verifier, url, unixSocket, ...rest } = optionsObject(options, 'options') as GuardOptions<R>;
  const ways = [verifier, url, unixSocket].filter((way) => way !== undefined);
  if (ways.length !== 1) throw wrongOptions(['verifier, url, unixSocket: set exactly one of them']);
  const rules = rulesOf(rest, DEFAULT_RULES);
  if (verifier === undefined) {
    const client = createClient(url === undefined ? { unixSocket: unixSocket ?? '' } : { url });
    return guard(client, rules, () => client.close());
  }
  const { decide, verify } = Object(verifier) as Partial<KeyVerifier>;
  if (typeof decide !== 'function' || typeof verify !== 'function')
    throw wrongOptions(['verifier: must come from createVerifier or createClient']);
  return guard(verifier, rules, async () => undefined);
}

interface Rules<R> {
  readonly sources: readonly Source[];
  readonly questionOptions: QuestionOptions | undefined;
  /** Computes the credits that a request costs; undefined = the cost is the same for all requests. */
  readonly costOf: ((request: R) => number) | undefined;
  /** Returns the client's address; undefined = the framework's own counts. */
  readonly clientIpOf: ((request: R) => string | undefined) | undefined;
}

const DEFAULT_RULES: Rules<unknown> = {
  sources: ['bearer', 'x-api-key'],
  questionOptions: undefined,
  costOf: undefined,
  clientIpOf: undefined,
};

function rulesOf<R>(options: RouteGuardOptions<R>, byDefault: Rules<R>): Rules<R> {
  const record = optionsObject(options, 'options');
  const faults = Object.keys(record).flatMap((name) =>
    OPTIONS.has(name) ? [] : [`${name}: unknown option`],
  );
  const { apiId, sources, permissions, cost, clientIp } = options;
  // An `apiId` that is present but undefined is a mistake, and would accept the keys of any API.
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
  if ('clientIp' in record && typeof clientIp !== 'function') faults.push('clientIp: must be a function');
  if (faults.length > 0) throw wrongOptions(faults);
  const merged = { ...byDefault.questionOptions, ...questionOptionsOf(options) };
  return {
    sources: isList ? SOURCES.filter((source) => sources.includes(source)) : byDefault.sources,
    questionOptions: Object.keys(merged).length > 0 ? fixedOptions(merged) : undefined,
    costOf: typeof cost === 'function' ? cost : cost === undefined ? byDefault.costOf : undefined,
    clientIpOf: clientIp ?? byDefault.clientIpOf,
  };
}

const OPTIONS: ReadonlySet<string> = new Set(['apiId', 'sources', 'permissions', 'cost', 'clientIp']);

/** Returns the options that belong to the question. */
const questionOptionsOf = <R>({ apiId, permissions, cost }: RouteGuardOptions<R>): QuestionOptions => ({
  ...(apiId === undefined ? {} : { apiId }),
  ...(permissions === undefined ? {} : { permissions }),
  ...(typeof cost === 'number' ? { remaining: { cost } } : {}),
});

const isCost = (cost: unknown): cost is number =>
  typeof cost === 'number' && Number.isInteger(cost) && cost >= 0 && cost <= CREDITS_MAX;

/** Checks the result of the application's `cost` function. */
function checkedCost(cost: number): number {
  if (!isCost(cost)) {
    // If `cost` returned a promise, its unhandled rejection would end the process.
    void Promise.resolve<unknown>(cost).catch(() => undefined);
    throw new TypeError(`cost: must return a whole number from 0 to ${CREDITS_MAX}`);
  }
  return cost;
}

function guard<R>(verifier: KeyVerifier, rules: Rules<R>, close: () => Promise<void>): Guard<R> {
  const { sources, costOf, clientIpOf } = rules;
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
        const questionOptions = withClientIp(
          payment?.question(rules.questionOptions, cost) ??
            (costOf ? { ...rules.questionOptions, remaining: { cost } } : rules.questionOptions),
          clientIpOf ? clientIpOf(request) : incoming.clientIp,
        );
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

/** Turns the verdict into a passage. If the request passes, notes what it has paid. */
function settle(verdict: KeyVerdict, incoming: IncomingRequest<unknown>, key: string, cost: number): Passage {
  const { carrier } = incoming;
  const payment = paymentOf(carrier, key);
  const passage = passageOf(payment?.completeVerdict(verdict) ?? verdict, incoming);
  if (!(passage instanceof Refusal))
    notePayment(carrier, new Payment(key, Math.max(cost, payment?.cost ?? 0), passage));
  return passage;
}

/** Lets only a consistent VALID verdict pass. An unknown code is an outage. */
function passageOf(verdict: KeyVerdict, incoming: IncomingRequest<unknown>): Passage {
  if (verdict.code === 'VALID' && verdict.valid === true) return verdict;
  const { code } = verdict;
  const status: number = Object.hasOwn(VERDICTS, code) ? VERDICTS[code].status : 200;
  return status === 200 ? unavailable(incoming) : refusalOf(outcomeOf(verdict), incoming);
}

/** Returns the verdict with its credits and rate limits, for the headers of the refusal. */
function outcomeOf(verdict: KeyVerdict): AuthzOutcome {
  const { code } = verdict;
  if (code !== 'RATE_LIMITED' && code !== 'USAGE_EXCEEDED') return { code };
  const { remaining, ratelimits } = verdict;
  const exceededLimit = ratelimits?.find((limit) => limit.exceeded);
  const retryMs = exceededLimit && exceededLimit.reset - systemClock.wallMs();
  return { code, spending: { code, remaining, limits: ratelimits?.map(limitOutcome), retryMs } };
}

/** Returns the same refusal as `/authz`. */
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

/**
 * Returns the id from the application's own log if a header may contain it, else the client's id, or a new
 * one.
 */
function requestIdOf({ id, rawHeaders }: IncomingRequest<unknown>): string {
  const own = typeof id === 'string' || typeof id === 'number' ? String(id) : '';
  return /^[\x21-\x7e]{1,256}$/.test(own) ? own : requestIdFrom(headersOf(rawHeaders)['x-request-id']?.[0]);
}

const everyAnswer = (requestId: string): HeaderLine[] => [
  ['Content-Type', PROBLEM_TYPE],
  ['Cache-Control', 'no-store'],
  ['X-Request-Id', requestId],
];
