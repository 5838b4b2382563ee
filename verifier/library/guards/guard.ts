import { VERDICTS } from '#shared/contract/verdict-codes.ts';
import { credentialOf } from '../../http/credentials.ts';
import { createClient } from '../client.ts';
import type { KeyVerdict, KeyVerifier, QuestionOptions, ValidKey } from '../key-verifier.ts';
import { optionsObject, wrongOptions } from '../options.ts';
import { fixedOptions, RequestQuestion } from '../questions.ts';
import { outcomeOf, refusalOf, unavailable } from './answers.ts';
import type { GuardOptions, RouteGuardOptions } from './guard-options.ts';
import { checkedCost, checkedList, DEFAULT_RULES, type Rules, rulesOf } from './guard-rules.ts';
import { loneBearer } from './header-lines.ts';
import { type Carrier, notePayment, Payment, paymentOf } from './paid-requests.ts';
import { type Refusal, RefusedError } from './refusal.ts';

/**
 * The result of a check: the key that lets the request pass; undefined if the guard is optional and the
 * request has no key; or a refusal.
 */
export type Passage = ValidKey | undefined | Refusal;

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
          return refused(refusalOf({ code: credential.fault }, incoming), rules, incoming);
        }
        ({ key } = credential);
      }
      const payment = paymentOf(carrier, key);
      const question = questionOf(rules, clientIpOf, incoming, payment);
      const settle = (verdict: KeyVerdict | undefined) => {
        const passage = passageOf(verdict, incoming, payment);
        if ('valid' in passage) notePayment(carrier, new Payment(key, verifier, question, passage, payment));
        return 'valid' in passage ? passage : refused(passage, rules, incoming);
      };
      let verdict: KeyVerdict | undefined;
      try {
        verdict = verifier.decide(key, question);
        if (verdict === undefined)
          return Promise.resolve(verifier.verify(key, question)).then(toItself, toNothing).then(settle);
      } catch {
        return settle(undefined);
      }
      return settle(verdict);
    },
  };
}

const toItself = <T>(value: T): T => value;
const toNothing = () => undefined;

/** Returns the options of the question about a request's key. Throws what the application's functions throw. */
function questionOf<R>(
  rules: Rules<R>,
  clientIpOf: ClientIpOf<R>,
  incoming: IncomingRequest<R>,
  payment: Payment | undefined,
): QuestionOptions {
  const { costOf, tagsOf, ratelimitsOf, ownClientIpOf } = rules;
  const { request } = incoming;
  let options = rules.questionOptions;
  if (costOf !== undefined || tagsOf !== undefined || ratelimitsOf !== undefined) {
    options = fixedOptions({
      ...options,
      ...(costOf && { remaining: { cost: checkedCost(costOf(request)) } }),
      ...(tagsOf && { tags: checkedList('tags', tagsOf(request)) }),
      ...(ratelimitsOf && { ratelimits: checkedList('ratelimits', ratelimitsOf(request)) }),
    });
  }
  if (payment !== undefined) options = payment.question(options);
  // The application's own function is called now, so that its errors are left to the framework.
  const question = ownClientIpOf
    ? new RequestQuestion(options, ownClientIpOf(request), asItIs)
    : new RequestQuestion(options, request, clientIpOf);
  return question.asOptions();
}

const asItIs = (clientIp: string | undefined) => clientIp;

/** Lets only a consistent VALID verdict pass. An unknown code, or no verdict, is an outage. */
function passageOf(
  verdict: KeyVerdict | undefined,
  incoming: IncomingRequest<unknown>,
  payment: Payment | undefined,
): ValidKey | Refusal {
  try {
    if (verdict?.code === 'VALID' && verdict.valid === true)
      return payment === undefined ? verdict : payment.completeVerdict(verdict);
    if (verdict === undefined || verdict.valid !== false) return unavailable(incoming);
    const { code } = verdict;
    const status: number = Object.hasOwn(VERDICTS, code) ? VERDICTS[code].status : 200;
    const keyId = 'keyId' in verdict ? verdict.keyId : undefined;
    return status === 200 ? unavailable(incoming) : refusalOf(outcomeOf(verdict), incoming, keyId);
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
