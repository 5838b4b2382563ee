import { CREDITS_MAX } from '#shared/protocol/records/credits.ts';
import { LIMIT_MAX, LIMIT_NAME } from '#shared/protocol/records/limit.ts';
import { ANY_API } from '#shared/rules/slugs.ts';
import {
  bearerKey,
  type CredentialSource,
  cookieSource,
  type HeaderLines,
  headerSource,
  namesOf,
  originIn,
  SOURCES,
} from '../../doors/http/credentials.ts';
import { isIdentityHeader } from '../../doors/http/gateway-answer.ts';
import { amountsOf } from '../held-key.ts';
import type { AskedRateLimit, Costs, PermissionQuery, QuestionOptions } from '../key-verifier.ts';
import {
  ABORT_RULES,
  type AbortRule,
  apiIdFault,
  CREDITS,
  fixedOptions,
  HELD_LIMITS_MAX,
  HOLD_MAX_MS,
  HOLD_MIN_MS,
  optionsObject,
  permissionsFault,
  wrongOptions,
} from '../options.ts';
import type { RouteGuardOptions } from './guard-options.ts';

/** The names of headers, in lower case, that a guard reads. */
class HeaderReader {
  readonly #names: ReadonlySet<string>;
  /** The lengths of the names. Comparing lengths first skips most other headers cheaply. */
  readonly #lengths: ReadonlySet<number>;

  constructor(names: readonly string[] = []) {
    this.#names = new Set(['authorization', 'x-api-key', 'x-request-id', ...names]);
    this.#lengths = new Set([...this.#names].map((name) => name.length));
  }

  /**
   * Returns the headers that the guard reads, with each line by itself.
   * @param rawHeaders names and values, alternating
   */
  read(rawHeaders: readonly string[]): HeaderLines {
    const lines: Record<string, string[]> = {};
    for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
      const [name, value] = [rawHeaders[i], rawHeaders[i + 1]];
      if (name === undefined || value === undefined || !this.#lengths.has(name.length)) continue;
      const lowerName = name.toLowerCase();
      if (!this.#names.has(lowerName)) continue;
      const values = lines[lowerName];
      if (values === undefined) lines[lowerName] = [value];
      else values.push(value);
    }
    return lines;
  }
}

/** Returns what a request says of the web page that sent it; see `originIn`. */
export const originOf = (rawHeaders: readonly string[]): string | undefined =>
  originIn(ORIGIN_HEADERS.read(rawHeaders));
const ORIGIN_HEADERS = new HeaderReader(['origin', 'referer']);

/** Reads the headers of the usual sources. */
export const USUAL_HEADERS = new HeaderReader();

/**
 * Returns the key if the request has the most common form: one `Authorization: Bearer` and no `X-Api-Key`.
 * undefined = the caller must read all headers.
 */
export function loneBearer(rawHeaders: readonly string[]): string | undefined {
  let line: string | undefined;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    if (name.length === 9 && name.toLowerCase() === 'x-api-key') return undefined;
    if (name.length !== 13 || name.toLowerCase() !== 'authorization') continue;
    if (line !== undefined) return undefined;
    line = rawHeaders[i + 1];
  }
  // An empty text is no key.
  return (line && bearerKey(line)) || undefined;
}

/** A request of node:http or node:http2, reduced to its headers. */
export interface WithHeaders {
  readonly rawHeaders: string[];
  readonly headers: Record<string, unknown>;
  /** Missing in HTTP/2. */
  readonly headersDistinct?: Record<string, unknown>;
}

/**
 * Removes the headers with which gateways tell an API whose key it was. No gateway stands before a guard, so
 * only the client can have set them.
 */
export function removeIdentity(request: WithHeaders): void {
  const { rawHeaders } = request;
  if (!hasIdentity(rawHeaders)) return;
  // Node derives both objects from the raw headers at their first use, and relies on the number of raw
  // headers.
  for (const headers of [request.headers, request.headersDistinct ?? {}]) {
    for (const name of Object.keys(headers)) if (isIdentity(name)) delete headers[name];
  }
  for (let i = rawHeaders.length - 2; i >= 0; i -= 2) {
    if (isIdentity(rawHeaders[i] ?? '')) rawHeaders.splice(i, 2);
  }
}

/** Returns true if one of the headers says whose key it is. */
export function hasIdentity(rawHeaders: readonly string[]): boolean {
  for (let i = 0; i < rawHeaders.length; i += 2) if (isIdentity(rawHeaders[i] ?? '')) return true;
  return false;
}

/**
 * Returns the same as `isIdentityHeader`, but for most names compares only the first letter (x) and the third
 * (k).
 */
export function isIdentity(name: string): boolean {
  return (
    (name.charCodeAt(0) | 0x20) === 0x78 && (name.charCodeAt(2) | 0x20) === 0x6b && isIdentityHeader(name)
  );
}

/** The options of a guard after their check. */
export interface Rules<R> {
  readonly sources: readonly CredentialSource[];
  readonly headers: HeaderReader;
  /** True if most requests have their key where `loneBearer` looks, and no other place counts. */
  readonly takesBearer: boolean;
  /** The parts of the question that are the same for all requests. */
  readonly questionOptions: QuestionOptions;
  /** Computes the credits that a request costs; undefined = they are the same for all requests. */
  readonly costOf: ((request: R) => number) | undefined;
  /** Computes what a request reserves; undefined = it is the same for all requests. */
  readonly reserveOf: ((request: R) => number | Costs) | undefined;
  /** True = `charge` says what a request costs. */
  readonly reserves: boolean;
  readonly onAbort: AbortRule;
  readonly ratelimitsOf: ((request: R) => readonly AskedRateLimit[]) | undefined;
  readonly tagsOf: ((request: R) => readonly string[]) | undefined;
  readonly permissionsOf: ((request: R) => PermissionQuery | undefined) | undefined;
  readonly resourceMetadata: string | undefined;
  /** Returns the client's address; undefined = the framework's own function does. */
  readonly ownClientIpOf: ((request: R) => string | undefined) | undefined;
  readonly isOptional: boolean;
  readonly onRefused: RouteGuardOptions<R>['onRefused'];
  readonly throwsRefusals: boolean;
}

export const DEFAULT_RULES: Rules<unknown> = {
  sources: ['bearer', 'x-api-key'],
  headers: USUAL_HEADERS,
  takesBearer: true,
  questionOptions: fixedOptions({ hold: { forMs: HOLD_MAX_MS, onlyIfNeeded: true } }),
  costOf: undefined,
  reserveOf: undefined,
  reserves: false,
  onAbort: 'charge',
  ratelimitsOf: undefined,
  tagsOf: undefined,
  permissionsOf: undefined,
  resourceMetadata: undefined,
  ownClientIpOf: undefined,
  isOptional: false,
  onRefused: undefined,
  throwsRefusals: false,
};

/**
 * Returns the rules with those that `options` replaces. Throws a TypeError that names every wrong option.
 */
export function rulesOf<R>(options: RouteGuardOptions<R>, byDefault: Rules<R>): Rules<R> {
  const faults = [...faultsOf(optionsObject(options, 'options'))];
  if (options.cost !== undefined && options.reserve !== undefined)
    faults.push('cost, reserve: set one of them');
  if (faults.length > 0) throw wrongOptions(faults);
  const sources = sourcesOf(options.sources);
  const { cost, reserve } = options;
  return {
    ...(sources === undefined ? byDefault : placesOf(sources)),
    questionOptions: fixedQuestion(options, byDefault.questionOptions),
    costOf: functionOf(cost, reserve === undefined ? byDefault.costOf : undefined),
    reserveOf: functionOf(reserve, cost === undefined ? byDefault.reserveOf : undefined),
    reserves: reserve !== undefined || (cost === undefined && byDefault.reserves),
    onAbort: options.onAbort ?? byDefault.onAbort,
    ratelimitsOf: functionOf(options.ratelimits, byDefault.ratelimitsOf),
    tagsOf: functionOf(options.tags, byDefault.tagsOf),
    permissionsOf: functionOf(options.permissions, byDefault.permissionsOf),
    resourceMetadata: options.resourceMetadata ?? byDefault.resourceMetadata,
    ownClientIpOf: options.clientIp ?? byDefault.ownClientIpOf,
    isOptional: options.optional ?? byDefault.isOptional,
    onRefused: options.onRefused ?? byDefault.onRefused,
    throwsRefusals: options.throwRefusals ?? byDefault.throwsRefusals,
  };
}

/** Returns the function that computes an option for each request; undefined = a constant replaces it. */
function functionOf<F extends (...parameters: never[]) => unknown>(
  option: F | number | Costs | PermissionQuery | readonly unknown[] | undefined,
  byDefault: F | undefined,
): F | undefined {
  if (option === undefined) return byDefault;
  return typeof option === 'function' ? option : undefined;
}

/** Checks for each option. An option that is present but undefined is a mistake, except for `sources`. */
const CHECKS: Readonly<Record<keyof RouteGuardOptions, (value: unknown) => string | undefined>> = {
  // An `apiId` that is present but undefined would accept the keys of any API.
  apiId: (value) => (value === ANY_API ? undefined : apiIdFault(value, 'apiId')),
  permissions: (value) => (typeof value === 'function' ? undefined : permissionsFault(value, 'permissions')),
  resourceMetadata: (value) =>
    typeof value === 'string' && /^https?:\/\/[^\s"\\]+$/.test(value)
      ? undefined
      : 'resourceMetadata: must be a URL that begins with https:// or http://',
  sources: (value) =>
    value === undefined || sourcesOf(value) !== undefined
      ? undefined
      : `sources: must be an array of ${SOURCES.join(', ')}, { header: 'X-Your-Header' } and { cookie: 'your-cookie' }`,
  cost: (value) => creditsFault(value, 'cost'),
  reserve: (value) => (typeof value === 'function' ? undefined : reserveFault(value)),
  onAbort: (value) =>
    ABORT_RULES.some((rule) => rule === value)
      ? undefined
      : `onAbort: must be one of ${ABORT_RULES.join(', ')}`,
  holdMs: (value) =>
    Number.isInteger(value) && Number(value) >= HOLD_MIN_MS && Number(value) <= HOLD_MAX_MS
      ? undefined
      : `holdMs: must be a whole number from ${HOLD_MIN_MS} to ${HOLD_MAX_MS}`,
  ratelimits: (value) =>
    typeof value === 'function' || Array.isArray(value)
      ? undefined
      : 'ratelimits: must be an array of rate limits, or a function',
  tags: (value) =>
    typeof value === 'function' || Array.isArray(value)
      ? undefined
      : 'tags: must be an array of texts, or a function',
  clientIp: (value) => functionFault(value, 'clientIp'),
  optional: (value) => flagFault(value, 'optional'),
  onRefused: (value) => functionFault(value, 'onRefused'),
  throwRefusals: (value) => flagFault(value, 'throwRefusals'),
};

const creditsFault = (value: unknown, name: string) =>
  typeof value === 'function' || isCost(value)
    ? undefined
    : `${name}: must be a whole number from 0 to ${CREDITS_MAX}, or a function`;
/** Returns the fault of what a guard reserves; undefined = none. */
function reserveFault(value: unknown): string | undefined {
  const amounts = Object.entries(costsIn(value));
  if (amounts.length === 0) return 'reserve: must be credits, or amounts such as { tokens: 5000 }';
  for (const [name, amount] of amounts) {
    const place = typeof value === 'number' ? 'reserve' : `reserve.${name}`;
    const most = name === CREDITS ? CREDITS_MAX : LIMIT_MAX;
    if (!LIMIT_NAME.test(name)) return `reserve: names must match ${LIMIT_NAME.source}`;
    if (!isWholeNumber(amount, most)) return `${place}: must be a whole number from 0 to ${most}`;
  }
  const limits = amounts.filter(([name]) => name !== CREDITS);
  return limits.length > HELD_LIMITS_MAX
    ? `reserve: must name at most ${HELD_LIMITS_MAX} rate limits`
    : undefined;
}

const functionFault = (value: unknown, name: string) =>
  typeof value === 'function' ? undefined : `${name}: must be a function`;
const flagFault = (value: unknown, name: string) =>
  typeof value === 'boolean' ? undefined : `${name}: must be true or false`;

function* faultsOf(record: Readonly<Record<string, unknown>>): Generator<string> {
  for (const [name, value] of Object.entries(record)) {
    const check = Object.hasOwn(CHECKS, name) ? CHECKS[name as keyof typeof CHECKS] : undefined;
    const fault = check === undefined ? `${name}: unknown option` : check(value);
    if (fault !== undefined) yield fault;
  }
}

/** Returns the sources, with headers and cookies of the application's own; undefined = they are wrong. */
function sourcesOf(sources: unknown): readonly CredentialSource[] | undefined {
  if (!Array.isArray(sources) || sources.length === 0) return undefined;
  const all = (sources as readonly unknown[]).map((source) => {
    const { header, cookie } = Object(source) as { readonly header?: unknown; readonly cookie?: unknown };
    if (typeof header === 'string') return headerSource(header);
    if (typeof cookie === 'string') return cookieSource(cookie);
    return SOURCES.find((name) => name === source);
  });
  return all.every((source) => typeof source === 'string') ? [...new Set(all)] : undefined;
}

function placesOf(
  sources: readonly CredentialSource[],
): Pick<Rules<unknown>, 'sources' | 'headers' | 'takesBearer'> {
  const own = [...namesOf(sources, 'header'), ...(namesOf(sources, 'cookie').length > 0 ? ['cookie'] : [])];
  return {
    sources,
    headers: own.length === 0 ? USUAL_HEADERS : new HeaderReader(own),
    takesBearer: own.length === 0 && sources.includes('bearer') && !sources.includes('query'),
  };
}

function fixedQuestion<R>(
  { apiId, permissions, cost, reserve, holdMs, ratelimits, tags }: RouteGuardOptions<R>,
  { remaining, hold, apiId: ownApiId, ...byDefault }: QuestionOptions,
): QuestionOptions {
  const { credits, ratelimits: held, ...times } = { ...hold, ...(holdMs !== undefined && { forMs: holdMs }) };
  const isInherited = reserve === undefined && cost === undefined;
  return optionsAsked({
    ...byDefault,
    ...(remaining && reserve === undefined && { remaining }),
    hold: {
      ...times,
      ...(isInherited && credits !== undefined && { credits }),
      ...(isInherited && held && { ratelimits: held }),
      ...(reserve !== undefined && typeof reserve !== 'function' && holdOf(reserve)),
    },
    ...apiOf(apiId ?? ownApiId),
    ...(permissions === undefined || typeof permissions === 'function' ? {} : { permissions }),
    ...(typeof cost === 'number' ? { remaining: { cost } } : {}),
    ...(Array.isArray(ratelimits) ? { ratelimits } : {}),
    ...(Array.isArray(tags) ? { tags } : {}),
  });
}

const apiOf = (apiId: string | undefined) => (apiId === undefined || apiId === ANY_API ? {} : { apiId });

/** Returns the options of a guard's question, parsed. Throws a TypeError with the names of the guard's options. */
export function optionsAsked(options: QuestionOptions): QuestionOptions {
  const { ratelimits = [], hold } = options;
  const double = ratelimits.find(({ name }) => hold?.ratelimits?.some((held) => held.name === name));
  if (double) throw wrongOptions([`reserve, ratelimits: name ${double.name} in one of them`]);
  return fixedOptions(options);
}

const isWholeNumber = (value: unknown, most: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most;
const isCost = (cost: unknown): cost is number => isWholeNumber(cost, CREDITS_MAX);

/** Returns amounts by name. A number is credits; what is neither has no amounts, such as a promise. */
const costsIn = (costs: unknown): Costs =>
  typeof costs === 'number'
    ? { [CREDITS]: costs }
    : typeof costs === 'object' && !Array.isArray(costs)
      ? { ...costs }
      : {};

/** Returns the parts of a hold that reserves this. */
export function holdOf(reserve: number | Costs): NonNullable<QuestionOptions['hold']> {
  const { credits, ...limits } = costsIn(reserve);
  const ratelimits = amountsOf(limits);
  return { ...(credits !== undefined && { credits }), ...(ratelimits.length > 0 && { ratelimits }) };
}

/** Checks what the application's function wants to reserve. */
export function checkedReserve(reserve: number | Costs): number | Costs {
  const fault = reserveFault(reserve);
  if (fault === undefined) return reserve;
  void Promise.resolve<unknown>(reserve).catch(() => undefined);
  throw new TypeError(fault);
}

/**
 * Checks credits from the application.
 * @param verb what its function `name` does with them
 */
export function checkedCredits(name: string, cost: number, verb = 'must return'): number {
  if (!isCost(cost)) {
    // If a function returned a promise, its unhandled rejection would end the process.
    void Promise.resolve<unknown>(cost).catch(() => undefined);
    throw new TypeError(`${name}: ${verb} a whole number from 0 to ${CREDITS_MAX}`);
  }
  return cost;
}

/** Checks the costs in a call of `charge` or `charge.add`, and returns them by name. */
export function checkedCosts(caller: string, cost: number | Costs): Costs {
  const costs = typeof cost === 'number' ? {} : costsIn(cost);
  const amounts = Object.entries(costs);
  if (amounts.length === 0) return { [CREDITS]: checkedCredits(caller, cost as number, 'takes') };
  for (const [name, amount] of amounts) checkedCredits(`${caller}: ${name}`, amount, 'takes');
  return costs;
}

/** Checks what the application's function for an option returned: a promise that rejects would end the process. */
export function checkedNow<T>(name: string, value: T): T {
  if (typeof (value as { then?: unknown } | undefined)?.then !== 'function') return value;
  void Promise.resolve<unknown>(value).catch(() => undefined);
  throw new TypeError(`${name}: must not return a promise`);
}

/** Checks the result of the application's function for an option that is a list. */
export function checkedList<T>(name: string, list: readonly T[]): readonly T[] {
  if (!Array.isArray(list)) {
    void Promise.resolve<unknown>(list).catch(() => undefined);
    throw new TypeError(`${name}: must return an array`);
  }
  return list;
}
