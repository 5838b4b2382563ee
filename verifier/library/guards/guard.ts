import { systemClock } from '#shared/process/clock.ts';
import { ApiError, RETRY_AFTER_SECONDS } from '#shared/rules/errors.ts';
import { requestIdFrom } from '#shared/rules/request-id.ts';
import { ANY_API } from '#shared/rules/slugs.ts';
import { VERDICTS } from '#shared/rules/verdict-codes.ts';
import { credentialOf } from '../../doors/http/credentials.ts';
import {
  type AuthzOutcome,
  allowanceLines,
  authzAnswer,
  type HeaderLine,
  limitOutcome,
} from '../../doors/http/gateway-answer.ts';
import { PROBLEM_TYPE, problemBody } from '../../doors/http/respond.ts';
import { createClient } from '../client.ts';
import type { AskedRateLimit, KeyVerdict, KeyVerifier, QuestionOptions, ValidKey } from '../key-verifier.ts';
import {
  CREDITS,
  fixedOptions,
  optionsObject,
  QUESTION_LIMITS_MAX,
  RequestQuestion,
  wrongOptions,
} from '../options.ts';
import type { GuardOptions, PassedKey, RefusedCode, RouteGuardOptions } from './guard-options.ts';
import { Refusal, RefusedError } from './refusal.ts';
import { type Ending, RequestHolds } from './request-holds.ts';
import {
  checkedCredits,
  checkedList,
  checkedNow,
  checkedReserve,
  DEFAULT_RULES,
  holdOf,
  loneBearer,
  optionsAsked,
  originOf,
  type Rules,
  rulesOf,
  USUAL_HEADERS,
} from './rules.ts';

/**
 * The result of a check: the key that lets the request pass; undefined if the guard is optional and the
 * request has no key; or a refusal.
 */
export type Passage = PassedKey | undefined | Refusal;

/**
 * A guard that lets only requests with a valid key pass. It fails closed: every failure is a refusal. It
 * throws, or rejects with, only the errors of the application's own functions, and `RefusedError` if the
 * application wants refusals as errors.
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
interface IncomingRequest<R> {
  /** The request's header names and values, alternating. */
  readonly rawHeaders: readonly string[];
  /** Path and query of the request. */
  readonly target: string;
  /** The framework's request object, for `cost`. */
  readonly request: R;
  /** An object that is the same for all guards of a request. */
  readonly carrier: Carrier;
  /** The end of its response; undefined = nobody tells it, so there is no hold. */
  readonly ending: Ending | undefined;
  /** The request's id in the framework's log; undefined = none. */
  readonly id: unknown;
}

/** Returns the address of a request's client, as the framework knows it; undefined = unknown. */
type ClientIpOf<R> = (request: R) => string | undefined;

/** Creates a guard. Throws a TypeError that names every wrong option. */
export function createGuard<R>(options: GuardOptions<R>, clientIpOf: ClientIpOf<R>): Guard<R> {
  const { verifier, url, unixSocket, ...rest } = optionsObject(options, 'options') as GuardOptions<R>;
  const ways = [verifier, url, unixSocket].filter((way) => way !== undefined);
  if (ways.length !== 1) throw wrongOptions(['verifier, url, unixSocket: set exactly one of them']);
  const rules = rulesOf(rest, DEFAULT_RULES);
  if (rest.apiId === undefined && (Object(verifier) as Partial<KeyVerifier>).apiIds === undefined)
    throw wrongOptions([
      `apiId: required, with the API to which a key must belong, or '${ANY_API}' for any; or give createVerifier its apiIds`,
    ]);
  if (verifier === undefined) {
    const client = createClient(url === undefined ? { unixSocket: unixSocket ?? '' } : { url });
    return guard(client, rules, clientIpOf, () => client.close());
  }
  const { decide, verify } = Object(verifier) as Partial<KeyVerifier>;
  if (typeof decide !== 'function' || typeof verify !== 'function')
    throw wrongOptions(['verifier: must come from createVerifier or createClient']);
  return guard(verifier, rules, clientIpOf, async () => undefined);
}

/**
 * Returns the guard of a route by its own rules: `guard` if there are none, undefined if they are `false`.
 * Guards with the same rules are created once.
 * @param place name of the rules, for messages
 */
export function routeGuards<R>(guard: Guard<R>, place: string): (rules: unknown) => Guard<R> | undefined {
  const guards = new WeakMap<object, Guard<R>>();
  return (rules) => {
    if (rules === undefined) return guard;
    if (rules === false) return undefined;
    if (typeof rules !== 'object' || rules === null)
      throw wrongOptions([`${place}: must be false or an object`]);
    const own = guards.get(rules) ?? guard.with(rules);
    guards.set(rules, own);
    return own;
  };
}

function guard<R>(
  verifier: KeyVerifier,
  rules: Rules<R>,
  clientIpOf: ClientIpOf<R>,
  close: () => Promise<void>,
): Guard<R> {
  const { sources, takesBearer, isOptional } = rules;
  return {
    close,
    with: (options) => guard(verifier, rulesOf(options, rules), clientIpOf, close),
    check(incoming) {
      const { rawHeaders, target, carrier } = incoming;
      let key = takesBearer ? loneBearer(rawHeaders) : undefined;
      if (key === undefined) {
        const credential = credentialOf(rules.headers.read(rawHeaders), target, sources);
        if ('fault' in credential) {
          if (isOptional && credential.fault === 'KEY_MISSING') return undefined;
          return refused(refusalOf({ code: credential.fault }, incoming, rules), rules, incoming);
        }
        ({ key } = credential);
      }
      const payment = paymentOf(carrier, key);
      const options = optionsOf(rules, incoming);
      const rest = payment === undefined ? options : payment.question(options);
      const question = questionOf(rules, clientIpOf, incoming, rest);
      const conclude = (verdict: KeyVerdict | undefined) => {
        const passage = passageOf(verdict, incoming, payment, rules);
        if (!('valid' in passage)) return refused(passage, rules, incoming);
        const { ending } = incoming;
        let holds = payment?.holds;
        if (holds === undefined && ending && (passage.hold !== undefined || rules.reserves))
          holds = new RequestHolds(ending, payment?.costs() ?? new Map());
        const own = new Payment(key, verifier, question, passage, payment, holds);
        notePayment(carrier, own);
        if (holds === undefined) return passage as PassedKey;
        const reserve = rules.reserves ? { ...options.hold, onAbort: rules.onAbort } : undefined;
        const passed = holds.add(verifier, passage, {
          costs: own.ownCosts(),
          held: question.reserved,
          reserve,
        });
        return holds.isUnsent ? refused(unavailable(incoming), rules, incoming) : passed;
      };
      let verdict: KeyVerdict | undefined;
      try {
        verdict = verifier.decide(key, question.asOptions());
        if (verdict === undefined) {
          // A server may abort the signal of a request only if somebody has looked at it before.
          void incoming.ending?.destroyed;
          return Promise.resolve(verifier.verify(key, question.asOptions()))
            .then(toItself, toNothing)
            .then(conclude);
        }
      } catch {
        return conclude(undefined);
      }
      return conclude(verdict);
    },
  };
}

const toItself = <T>(value: T): T => value;
const toNothing = () => undefined;

/** Returns the options of a guard's question about a request. Throws what the application's functions throw. */
function optionsOf<R>(rules: Rules<R>, { request, ending }: IncomingRequest<R>): QuestionOptions {
  const { questionOptions, reserves, costOf, reserveOf, tagsOf, ratelimitsOf, permissionsOf } = rules;
  if (reserves && ending === undefined)
    throw new Error('check: needs the signal of the request where `reserve` is set');
  if (!(costOf || reserveOf || tagsOf || ratelimitsOf || permissionsOf)) return questionOptions;
  const permissions = permissionsOf && checkedNow('permissions', permissionsOf(request));
  return optionsAsked({
    ...questionOptions,
    ...(costOf && { remaining: { cost: checkedCredits('cost', costOf(request)) } }),
    ...(reserveOf && { hold: { ...questionOptions.hold, ...holdOf(checkedReserve(reserveOf(request))) } }),
    ...(tagsOf && { tags: checkedList('tags', tagsOf(request)) }),
    ...(permissions !== undefined && { permissions }),
    ...(ratelimitsOf && { ratelimits: checkedList('ratelimits', ratelimitsOf(request)) }),
  });
}

/** Returns the question about the key of a request, with these options. */
function questionOf<R>(
  { ownClientIpOf }: Rules<R>,
  clientIpOf: ClientIpOf<R>,
  { request, rawHeaders, ending }: IncomingRequest<R>,
  options: QuestionOptions,
): AnyQuestion {
  // The application's own function is called now, so that its errors are left to the framework.
  const isHeld = ending !== undefined;
  return ownClientIpOf
    ? new RequestQuestion(
        options,
        checkedNow('clientIp', ownClientIpOf(request)),
        asItIs,
        rawHeaders,
        originOf,
        isHeld,
      )
    : new RequestQuestion(options, request, clientIpOf, rawHeaders, originOf, isHeld);
}

type AnyQuestion = Pick<
  RequestQuestion<unknown>,
  'apiId' | 'asOptions' | 'clientIp' | 'origin' | 'permissions' | 'ratelimits' | 'remaining' | 'reserved'
>;

const asItIs = (clientIp: string | undefined) => clientIp;

/** Lets only a consistent VALID verdict pass. An unknown code, or no verdict, is an outage. */
function passageOf(
  verdict: KeyVerdict | undefined,
  incoming: IncomingRequest<unknown>,
  payment: Payment | undefined,
  rules: Challenge,
): ValidKey | Refusal {
  try {
    if (verdict?.code === 'VALID' && verdict.valid === true)
      return payment === undefined ? verdict : payment.completeVerdict(verdict);
    if (verdict === undefined || verdict.valid !== false) return unavailable(incoming);
    const { code } = verdict;
    const status: number = Object.hasOwn(VERDICTS, code) ? VERDICTS[code].status : 200;
    const keyId = 'keyId' in verdict ? verdict.keyId : undefined;
    return status === 200 ? unavailable(incoming) : refusalOf(outcomeOf(verdict), incoming, rules, keyId);
  } catch {
    // Whatever it was, it was no verdict.
    return unavailable(incoming);
  }
}

/** Returns the refusal as the application wants it. Throws it if the application wants that. */
function refused<R>(
  refusal: Refusal,
  { onRefused, throwsRefusals }: Rules<R>,
  { request }: IncomingRequest<R>,
) {
  const own = onRefused === undefined ? refusal : refusal.with(onRefused(refusal.notice(), request));
  if (throwsRefusals) throw new RefusedError(own);
  return own;
}

/** The parts of a request of which a refusal tells. */
interface RefusedIncoming {
  readonly rawHeaders: readonly string[];
  /** The request's id in the framework's log; undefined = none. */
  readonly id: unknown;
}

/** The rules that the challenge of a refusal names. */
type Challenge = Pick<Rules<unknown>, 'sources' | 'resourceMetadata'>;

/** Returns the refusal that `/authz` would answer. */
function refusalOf(
  outcome: AuthzOutcome & { readonly code: Exclude<RefusedCode, 'SERVICE_UNAVAILABLE'> },
  incoming: RefusedIncoming,
  { sources, resourceMetadata }: Challenge,
  keyId?: string,
): Refusal {
  const requestId = requestIdOf(incoming);
  const { code } = outcome;
  const { status, headers, body } = authzAnswer(outcome, requestId, {
    sources,
    resourceMetadata,
    withMeta: false,
  });
  const about = { status, code, requestId, ...(keyId === undefined ? {} : { keyId }) };
  return new Refusal(about, [...headers, ...everyAnswer(requestId)], body);
}

/** Returns the verdict with its credits and rate limits, for the headers of the refusal. */
function outcomeOf<V extends KeyVerdict>(verdict: V): AuthzOutcome & { readonly code: V['code'] } {
  const { code } = verdict;
  if (code === 'CONCURRENCY_EXCEEDED') return { code, spending: { code } };
  if (code !== 'RATE_LIMITED' && code !== 'USAGE_EXCEEDED') return { code };
  const { remaining, ratelimits, needed } = verdict;
  const exceededLimit = ratelimits?.find((limit) => limit.exceeded);
  const retryMs = exceededLimit && exceededLimit.reset - systemClock.wallMs();
  return { code, spending: { code, remaining, limits: ratelimits?.map(limitOutcome), retryMs, needed } };
}

/** Returns the refusal of a request for which there is no verdict. */
function unavailable(incoming: RefusedIncoming): Refusal {
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
  return allowanceLines(ratelimits ?? [], remaining, systemClock.wallMs());
}

/** The credits and limits that guards took for a request; a later guard takes only what its rules cost more. */
class Payment {
  /** Private, so that printing the request does not show its key. */
  readonly #key: string;
  readonly #verifier: KeyVerifier;
  /** That of the last guard. */
  readonly #question: AnyQuestion;
  /** Verdict of the last guard. */
  readonly #verdict: ValidKey;
  /** The payment to earlier guards; undefined = there was none. */
  readonly #earlier: Payment | undefined;
  /** Those of the request; undefined = nothing is held. */
  readonly holds: RequestHolds | undefined;

  constructor(
    key: string,
    verifier: KeyVerifier,
    question: AnyQuestion,
    verdict: ValidKey,
    earlier: Payment | undefined,
    holds: RequestHolds | undefined,
  ) {
    this.#key = key;
    this.#verifier = verifier;
    this.#question = question;
    this.#verdict = verdict;
    this.#earlier = earlier;
    this.holds = holds;
  }

  isFor(key: string): boolean {
    return key === this.#key;
  }

  /** Returns the credits paid so far, if the key has credits. */
  cost(): number {
    return this.#ownCost() + (this.#earlier?.cost() ?? 0);
  }

  /** Returns the amounts taken so far from the limits that applied, and those that were to be reserved, by name. */
  limitCosts(): Map<string, number> {
    const costs = this.#earlier?.limitCosts() ?? new Map<string, number>();
    for (const [name, cost] of this.#ownLimitCosts()) costs.set(name, (costs.get(name) ?? 0) + cost);
    return costs;
  }

  /** Returns what the last guard took or reserved, by name. No rate limit that can be reserved has the name of credits. */
  ownCosts(): Map<string, number> {
    return this.#ownLimitCosts().set(CREDITS, this.#ownCost());
  }

  /** Returns the same of all guards. */
  costs(): Map<string, number> {
    return this.limitCosts().set(CREDITS, this.cost());
  }

  #ownCost(): number {
    return this.#question.remaining?.cost ?? 1;
  }

  #ownLimitCosts(): Map<string, number> {
    const { ratelimits = [], reserved } = this.#question;
    const costOf = new Map(ratelimits.map(({ name, cost = 1 }) => [name, cost]));
    const costs = new Map<string, number>();
    for (const { name } of this.#verdict.ratelimits ?? [])
      costs.set(name, costOf.get(name) ?? (this.#earlier ? 0 : 1));
    // One that the key lacks counts too: it would be lacking again.
    for (const { name, cost = 1 } of reserved) costs.set(name, cost);
    return costs;
  }

  /**
   * Returns the options for a further guard's question: of credits and limits it takes only what was not paid
   * yet.
   */
  question({ hold, remaining, ...options }: QuestionOptions): QuestionOptions {
    const rest = Math.max(0, (hold?.credits ?? remaining?.cost ?? 1) - this.cost());
    const costs = this.limitCosts();
    const unpaid = ({ name, cost = 1 }: AskedRateLimit) => Math.max(0, cost - (costs.get(name) ?? 0));
    const named = (options.ratelimits ?? []).map((limit) => ({ ...limit, cost: unpaid(limit) }));
    const held = (hold?.ratelimits ?? [])
      .map((limit) => ({ ...limit, cost: unpaid(limit) }))
      .filter(({ name, cost }) => cost > 0 || !costs.has(name));
    const names = new Set([...named, ...held].map(({ name }) => name));
    // Limits that apply to each question would take again. Places come first, in case there is no room for all.
    const places = (this.#verdict.concurrency ?? []).map(({ name }) => name);
    const limits = (this.#verdict.ratelimits ?? []).map(({ name }) => name);
    const others = new Set([...places, ...limits].filter((name) => !names.has(name)));
    const ratelimits = [...named, ...[...others].map((name) => ({ name, cost: 0 }))].slice(
      0,
      QUESTION_LIMITS_MAX,
    );
    const takesNothing = rest === 0 && held.length === 0 && ratelimits.every(({ cost }) => cost === 0);
    return fixedOptions(
      {
        ...options,
        ...(ratelimits.length > 0 ? { ratelimits } : {}),
        ...(takesNothing || hold?.credits === undefined ? { remaining: { cost: rest } } : {}),
        ...(hold &&
          !takesNothing && {
            hold: {
              ...hold,
              ...(hold.credits !== undefined && { credits: rest }),
              ...(hold.ratelimits && { ratelimits: held }),
            },
          }),
      },
      takesNothing,
    );
  }

  /** Adds the credits and limits of the last guard's verdict to a later one, which may lack them. */
  completeVerdict(verdict: ValidKey): ValidKey {
    const { remaining, ratelimit, ratelimits, concurrency } = this.#verdict;
    return {
      ...(remaining === undefined ? {} : { remaining }),
      ...(ratelimit === undefined ? {} : { ratelimit }),
      ...(ratelimits === undefined ? {} : { ratelimits }),
      ...(concurrency === undefined ? {} : { concurrency }),
      ...verdict,
    };
  }

  /** Watches the key of the request, by the rules of the last guard. */
  watch(signal: AbortSignal): AbortSignal {
    const { apiId, permissions, clientIp, origin } = this.#question;
    return this.#verifier.watch(this.#key, {
      ...(apiId === undefined ? {} : { apiId }),
      ...(permissions === undefined ? {} : { permissions }),
      ...(clientIp === undefined ? {} : { clientIp }),
      ...(origin === undefined ? {} : { origin }),
      signal,
    });
  }
}

const PAYMENT = Symbol('keyfence.payment');

/** Returns the last payment of a request; undefined = no guard let it pass with a key. */
export const lastPayment = (carrier: Carrier): Payment | undefined => (carrier as PaidRequest)[PAYMENT];

/** Returns the payment that a request made with `key`; undefined = no guard let it pass with that key. */
function paymentOf(carrier: Carrier, key: string): Payment | undefined {
  const payment = lastPayment(carrier);
  return payment?.isFor(key) ? payment : undefined;
}

/** Remembers a payment as long as the request lives. */
function notePayment(carrier: Carrier, payment: Payment): void {
  (carrier as PaidRequest)[PAYMENT] = payment;
}

/** An object by which all guards recognize the same request, such as Node's request. */
type Carrier = object;

interface PaidRequest {
  [PAYMENT]?: Payment;
}
