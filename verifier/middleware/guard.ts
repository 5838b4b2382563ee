import { ApiError, RETRY_AFTER_SECONDS } from '#shared/errors.ts';
import { requestIdFrom } from '#shared/request-id.ts';
import { VERDICTS } from '#shared/verdict-codes.ts';
import { authzAnswer } from '../endpoints/authz.ts';
import { credentialOf, SOURCES, type Source } from '../endpoints/credentials.ts';
import type { HeaderLine } from '../endpoints/identity-headers.ts';
import { PROBLEM_TYPE, problemBody } from '../http/problem.ts';
import { createClient } from '../library/client.ts';
import type { KeyVerdict, KeyVerifier, QuestionOptions, ValidKey } from '../library/key-verifier.ts';
import { apiIdFault, optionsObject, wrongOptions } from '../library/options.ts';
import { fixedOptions } from '../library/questions.ts';
import type { GuardOptions, RouteGuardOptions } from './guard-options.ts';
import { headersOf, loneBearer } from './header-lines.ts';

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

/** Lets requests pass that have a good key. Closed: whatever goes wrong is a refusal, and nothing is thrown. */
export interface Guard {
  /**
   * Judges a request, at once where memory may tell.
   * @param rawHeaders names and values of its headers in turn
   * @param target its path and query
   */
  check(rawHeaders: readonly string[], target: string): Passage | Promise<Passage>;
  /** The same guard for other sources or another API. Throws TypeError, which names every wrong option. */
  with(options: RouteGuardOptions): Guard;
  /** Closes the client that was made for `url` or `unixSocket`; a verifier that was handed in stays. */
  close(): Promise<void>;
}

/** Throws TypeError, which names every wrong option. */
export function createGuard(options: GuardOptions): Guard {
  const { verifier, url, unixSocket, ...rest } = optionsObject(options, 'options') as GuardOptions;
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

interface Rules {
  readonly sources: readonly Source[];
  readonly asked: QuestionOptions | undefined;
}

const DEFAULT_RULES: Rules = { sources: ['bearer', 'x-api-key'], asked: undefined };

function rulesOf(options: RouteGuardOptions, byDefault: Rules): Rules {
  const given = optionsObject(options, 'options');
  const faults = Object.keys(given).flatMap((name) =>
    name === 'apiId' || name === 'sources' ? [] : [`${name}: unknown option`],
  );
  const { apiId, sources } = given;
  // One that is there and undefined is a mistake, which would let the keys of any API pass.
  const fault = 'apiId' in given ? apiIdFault(apiId, 'apiId') : undefined;
  if (fault !== undefined) faults.push(fault);
  const isList =
    Array.isArray(sources) && sources.length > 0 && sources.every((one) => SOURCES.includes(one));
  if (sources !== undefined && !isList) faults.push(`sources: must be an array of ${SOURCES.join(', ')}`);
  if (faults.length > 0) throw wrongOptions(faults);
  return {
    sources: isList ? SOURCES.filter((source) => sources.includes(source)) : byDefault.sources,
    asked: typeof apiId === 'string' ? fixedOptions({ apiId }) : byDefault.asked,
  };
}

function guard(verifier: KeyVerifier, rules: Rules, close: () => Promise<void>): Guard {
  const { sources, asked } = rules;
  const takesBearer = sources.includes('bearer') && !sources.includes('query');
  return {
    close,
    with: (options) => guard(verifier, rulesOf(options, rules), close),
    check(rawHeaders, target) {
      try {
        let key = takesBearer ? loneBearer(rawHeaders) : undefined;
        if (key === undefined) {
          const credential = credentialOf(headersOf(rawHeaders), target, sources);
          if ('fault' in credential) return refused(credential.fault, rawHeaders);
          ({ key } = credential);
        }
        const verdict = verifier.decide(key, asked);
        if (verdict !== undefined) return passageOf(verdict, rawHeaders);
        return Promise.resolve(verifier.verify(key, asked))
          .then((late) => passageOf(late, rawHeaders))
          .catch(() => unavailable(rawHeaders));
      } catch {
        return unavailable([]);
      }
    },
  };
}

/** Only a verdict that is VALID in all its parts lets pass; one that is not known decides nothing. */
function passageOf(verdict: KeyVerdict, rawHeaders: readonly string[]): Passage {
  if (verdict.code === 'VALID' && verdict.valid === true) return verdict;
  const { code } = verdict;
  const status: number = Object.hasOwn(VERDICTS, code) ? VERDICTS[code].status : 200;
  return status !== 200 ? refused(code, rawHeaders) : unavailable(rawHeaders);
}

/** The answer that `/authz` gives. */
function refused(code: Parameters<typeof authzAnswer>[0]['code'], rawHeaders: readonly string[]): Refusal {
  const requestId = requestIdOf(rawHeaders);
  const { status, headers, body } = authzAnswer({ code }, requestId, false);
  return new Refusal(status, [...headers, ...everyAnswer(requestId)], body);
}

function unavailable(rawHeaders: readonly string[]): Refusal {
  const requestId = requestIdOf(rawHeaders);
  const { code, status } = new ApiError('SERVICE_UNAVAILABLE', '');
  const headers: HeaderLine[] = [['Retry-After', String(RETRY_AFTER_SECONDS)], ...everyAnswer(requestId)];
  return new Refusal(status, headers, problemBody({ status, code, requestId }));
}

const requestIdOf = (rawHeaders: readonly string[]): string =>
  requestIdFrom(headersOf(rawHeaders)['x-request-id']?.[0]);

const everyAnswer = (requestId: string): HeaderLine[] => [
  ['Content-Type', PROBLEM_TYPE],
  ['Cache-Control', 'no-store'],
  ['X-Request-Id', requestId],
];
