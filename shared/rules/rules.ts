import type { IpRanges } from '#shared/rules/ip-ranges.ts';
import type { Origins } from '#shared/rules/origins.ts';
import { allows, type Query } from '#shared/rules/permission-query.ts';
import type { Presenter } from './presenter.ts';
import type { VerdictCode } from './verdict-codes.ts';

/** The facts about a known key that its rules need. Its credits and rate limits are counted elsewhere. */
export interface KeyFacts {
  readonly apiId: string;
  readonly enabled: boolean;
  /** undefined = none applies. */
  readonly identity: { readonly enabled: boolean } | undefined;
  /** Unix milliseconds; 0 = never. */
  readonly expires: number;
  /** undefined = the key may be used from anywhere. */
  readonly ranges: Pick<IpRanges, 'has'> | undefined;
  /** undefined = any web page may use the key, and no page at all. */
  readonly origins: Pick<Origins, 'has'> | undefined;
  /** Effective permissions; undefined = none. */
  readonly slugSet: ReadonlySet<string> | undefined;
}

/** The lists of a key that may be used by everybody and has no permissions. */
export const UNRESTRICTED = { ranges: undefined, origins: undefined, slugSet: undefined };

/** The part of a question that the rules need. */
export interface RuleQuestion {
  readonly apiId?: string | undefined;
  readonly presenter: Presenter;
  readonly permissions?: Query | undefined;
}

interface Rule {
  /** The verdict on a key that does not keep the rule. */
  readonly code: VerdictCode;
  isKept(key: KeyFacts, question: RuleQuestion, nowMs: number): boolean;
}

/**
 * The only table of the rules for a known key, in their order. The API comes first so that a question about a
 * key of another API reveals nothing about that key, not even that it is disabled.
 */
export const RULES = {
  api: {
    code: 'FORBIDDEN',
    isKept: (key: KeyFacts, { apiId }: RuleQuestion) => apiId === undefined || apiId === key.apiId,
  },
  enabled: { code: 'DISABLED', isKept: (key: KeyFacts) => key.enabled },
  identity: { code: 'DISABLED', isKept: (key: KeyFacts) => key.identity?.enabled !== false },
  expires: {
    code: 'EXPIRED',
    isKept: (key: KeyFacts, _question: RuleQuestion, nowMs: number) =>
      key.expires === 0 || key.expires > nowMs,
  },
  address: {
    code: 'FORBIDDEN',
    isKept: ({ ranges }: KeyFacts, { presenter }: RuleQuestion) =>
      ranges === undefined || has(ranges, presenter.clientIp),
  },
  origin: {
    code: 'FORBIDDEN',
    isKept: ({ origins }: KeyFacts, { presenter }: RuleQuestion) =>
      origins === undefined || has(origins, presenter.origin),
  },
  permissions: {
    code: 'INSUFFICIENT_PERMISSIONS',
    isKept: ({ slugSet = NO_SLUGS }: KeyFacts, { permissions }: RuleQuestion) =>
      permissions === undefined || allows(slugSet, permissions),
  },
} as const satisfies Record<string, Rule>;

const NO_SLUGS: ReadonlySet<string> = new Set();

/** Tells whether a list has a fact; no list has one that is unknown. */
const has = (list: { has(fact: string): boolean }, fact: string | undefined): boolean =>
  !!fact && list.has(fact);

/** The name of a rule. */
export type RuleName = keyof typeof RULES;

export const RULE_NAMES = Object.keys(RULES) as readonly RuleName[];

/**
 * Returns the first rule that a key does not keep; undefined = it keeps all. It spells the table out, because a loop
 * over it takes 50 ns of each answer.
 */
export function brokenRule(key: KeyFacts, question: RuleQuestion, nowMs: number): RuleName | undefined {
  if (!RULES.api.isKept(key, question)) return 'api';
  if (!RULES.enabled.isKept(key)) return 'enabled';
  if (!RULES.identity.isKept(key)) return 'identity';
  if (!RULES.expires.isKept(key, question, nowMs)) return 'expires';
  if (!RULES.address.isKept(key, question)) return 'address';
  if (!RULES.origin.isKept(key, question)) return 'origin';
  if (!RULES.permissions.isKept(key, question)) return 'permissions';
  return undefined;
}
