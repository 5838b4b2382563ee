import type { VerdictCode } from '#shared/contract/verdict-codes.ts';
import { IpRanges, rangesText } from '#shared/lang/ip-ranges.ts';
import { allows, type Query } from '#shared/permissions/permission-query.ts';

/** A rule, in the order in which verifiers apply them. */
export type RuleName = keyof typeof CODES;

/** The verdict if a rule fails. */
const CODES = {
  secret: 'NOT_FOUND',
  key: 'NOT_FOUND',
  api: 'FORBIDDEN',
  enabled: 'DISABLED',
  identity: 'DISABLED',
  expires: 'EXPIRED',
  address: 'FORBIDDEN',
  permissions: 'INSUFFICIENT_PERMISSIONS',
  ratelimit: 'RATE_LIMITED',
  credits: 'USAGE_EXCEEDED',
} as const satisfies Record<string, VerdictCode>;
export const RULES = Object.keys(CODES) as RuleName[];

/** The outcome of one rule. */
export interface Rule {
  readonly rule: RuleName;
  readonly passed: boolean;
  /** Text for people, with the numbers. */
  readonly detail: string;
}

/** The facts about a key by which verifiers judge. */
export interface KeyFacts {
  readonly apiId: string;
  readonly enabled: boolean;
  readonly expires?: number;
  readonly rerolledTo?: string;
  readonly allowedIps?: readonly string[];
  readonly permissions: readonly string[];
  readonly roles: readonly { readonly name: string; readonly permissions: readonly string[] }[];
  readonly identity?: { readonly externalId: string; readonly enabled: boolean };
  readonly limits: readonly LimitFacts[];
  /** undefined = unlimited. */
  readonly credits?: { readonly remaining: number; readonly held: number };
}

/** A rate limit of a key or of its identity. */
export interface LimitFacts {
  readonly name: string;
  readonly of: 'key' | 'identity';
  readonly limit: number;
  readonly duration: number;
  /** Rest of the current window in Redis; amounts that verifiers took in advance count as used. */
  readonly remaining: number;
  readonly appliesAlways: boolean;
}

/** A question, as verifyKey takes it. */
export interface KeyQuestion {
  readonly apiId?: string;
  readonly clientIp?: string;
  readonly permissions?: Query;
  readonly cost: number;
  /** Costs of the named limits. */
  readonly limits: ReadonlyMap<string, number>;
  readonly nowMs: number;
}

/** Returns every rule in its order, and the verdict: that of the first rule that fails. */
export function explain(
  key: KeyFacts,
  question: KeyQuestion,
): { readonly code: VerdictCode; readonly rules: Rule[] } {
  const rules = [
    ofApi(key, question),
    {
      rule: 'enabled',
      passed: key.enabled,
      detail: key.enabled ? 'the key is enabled' : 'the key is disabled',
    },
    ofIdentity(key),
    ofExpiry(key, question),
    ofAddress(key, question),
    ofPermissions(key, question),
    ...ofLimits(key, question),
    ofCredits(key, question),
  ] satisfies Rule[];
  return { code: codeOf(rules), rules };
}

/** Returns the verdict by these rules. */
export function codeOf(rules: readonly Rule[]): VerdictCode {
  const failed = rules.find(({ passed }) => !passed);
  return failed ? CODES[failed.rule] : 'VALID';
}

function ofApi(key: KeyFacts, { apiId }: KeyQuestion): Rule {
  if (apiId === undefined)
    return { rule: 'api', passed: true, detail: `of ${key.apiId}; the question names no API` };
  const passed = apiId === key.apiId;
  return { rule: 'api', passed, detail: passed ? `of ${apiId}` : `of ${key.apiId}, not of ${apiId}` };
}

function ofIdentity({ identity }: KeyFacts): Rule {
  if (identity === undefined)
    return { rule: 'identity', passed: true, detail: 'no identity applies to the key' };
  const { externalId, enabled } = identity;
  return {
    rule: 'identity',
    passed: enabled,
    detail: `${externalId} is ${enabled ? 'enabled' : 'disabled'}`,
  };
}

function ofExpiry({ expires, rerolledTo }: KeyFacts, { nowMs }: KeyQuestion): Rule {
  if (expires === undefined) return { rule: 'expires', passed: true, detail: 'never' };
  const successor = rerolledTo === undefined ? '' : `; ${rerolledTo} replaced it`;
  return { rule: 'expires', passed: expires > nowMs, detail: `${textOf(expires)}${successor}` };
}

/** Times beyond what a date can be are told as numbers. */
const textOf = (ms: number): string => {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString();
};

function ofAddress({ allowedIps = [] }: KeyFacts, { clientIp }: KeyQuestion): Rule {
  if (allowedIps.length === 0)
    return { rule: 'address', passed: true, detail: 'the key may be used from anywhere' };
  const list = allowedIps.join(' ');
  if (clientIp === undefined)
    return { rule: 'address', passed: false, detail: `clientIp is unknown, and must be in ${list}` };
  const passed = new IpRanges(rangesText(allowedIps)).has(clientIp);
  return { rule: 'address', passed, detail: `${clientIp} is ${passed ? '' : 'not '}in ${list}` };
}

function ofPermissions({ permissions, roles }: KeyFacts, { permissions: query }: KeyQuestion): Rule {
  if (query === undefined) return { rule: 'permissions', passed: true, detail: 'the question needs none' };
  const slugs = new Set([...permissions, ...roles.flatMap((role) => role.permissions)]);
  const parts = [...new Set(slugsIn(query))].map((slug) => {
    const sources = [
      ...(permissions.includes(slug) ? ['the key'] : []),
      ...roles.flatMap((role) => (role.permissions.includes(slug) ? [`role ${role.name}`] : [])),
    ];
    return `${slug}: ${sources.length > 0 ? `by ${sources.join(', ')}` : 'missing'}`;
  });
  return { rule: 'permissions', passed: allows(slugs, query), detail: parts.join('; ') };
}

const slugsIn = (query: Query): string[] =>
  typeof query === 'string' ? [query] : query.parts.flatMap(slugsIn);

function ofLimits({ limits }: KeyFacts, { limits: named }: KeyQuestion): Rule[] {
  const applied = limits.filter(({ name, of }, i) => {
    // A limit of the key takes precedence over its identity's limit of the same name.
    if (of === 'identity' && limits.slice(0, i).some((other) => other.name === name)) return false;
    return named.has(name) || limits[i]?.appliesAlways;
  });
  if (applied.length === 0) return [{ rule: 'ratelimit', passed: true, detail: 'none applies' }];
  return applied.map(({ name, of, limit, duration, remaining }) => {
    const cost = named.get(name) ?? 1;
    const detail = `${name} of the ${of}: ${limit} in ${duration} ms, ${remaining} left, takes ${cost}`;
    return { rule: 'ratelimit', passed: cost <= remaining, detail };
  });
}

function ofCredits({ credits }: KeyFacts, { cost }: KeyQuestion): Rule {
  if (credits === undefined) return { rule: 'credits', passed: true, detail: 'unlimited' };
  const { remaining, held } = credits;
  const detail = `${remaining} left${held > 0 ? `, of which verifiers hold ${held}` : ''}, takes ${cost}`;
  return { rule: 'credits', passed: cost <= remaining, detail };
}
