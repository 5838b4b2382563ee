import { type Static, Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { CREDITS_MAX } from '#shared/protocol/records/credits.ts';
import { LIMIT_NAME, LIMITS_MAX, leftInWords } from '#shared/protocol/records/limit.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { IpRanges, rangesText } from '#shared/rules/ip-ranges.ts';
import { isWellFormed } from '#shared/rules/key-format.ts';
import { Origins, originOf, originsText } from '#shared/rules/origins.ts';
import { parseQuery, type Query, slugsIn } from '#shared/rules/permission-query.ts';
import { PRESENTER_FACTS, presenterOf } from '#shared/rules/presenter.ts';
import { RULE_NAMES, RULES, type RuleName, type RuleQuestion } from '#shared/rules/rules.ts';
import { VERDICT_CODES, type VerdictCode } from '#shared/rules/verdict-codes.ts';
import { identityOf, type NameStores, PEPPERED, rolesOf } from '../../core/keys/key-answer.ts';
import type { Keys } from '../../core/keys/keys.ts';
import type { KeyIdentity } from '../../core/ports.ts';
import type { Key, KeyView } from '../../core/records/key-view.ts';
import { LIMIT_SIZE } from '../../core/schema/limits.ts';
import { ApiId, Fields, Id, KeyId, List } from '../../core/schema/primitives.ts';
import { absence, requireApi } from '../../core/serve/authorization.ts';
import type { Call } from '../../core/serve/call.ts';
import { operation } from '../../core/serve/operation.ts';
import { type AppliedLimit, appliedLimits } from '../rate-limits/applied-limits.ts';
import type { LimitView } from '../rate-limits/limit-view.ts';
import type { Role, Roles } from '../roles/roles.ts';
import { timeText } from './refusals.ts';

/** The verdict if a rule fails: those that find a key, those by its record, and those that count. */
const CODES: Record<Explained['rule'], VerdictCode> = {
  secret: 'NOT_FOUND',
  key: 'NOT_FOUND',
  ...(Object.fromEntries(RULE_NAMES.map((name) => [name, RULES[name].code])) as Record<
    RuleName,
    VerdictCode
  >),
  ratelimit: 'RATE_LIMITED',
  concurrency: 'CONCURRENCY_EXCEEDED',
  credits: 'USAGE_EXCEEDED',
};

/** The outcome of one rule. */
interface Explained {
  readonly rule: 'secret' | 'key' | RuleName | 'ratelimit' | 'concurrency' | 'credits';
  readonly passed: boolean;
  /** Text for people, with the numbers. */
  readonly detail: string;
}

const Cost = Type.Optional(Type.Integer({ minimum: 0, maximum: CREDITS_MAX, description: 'Default 1.' }));

const Queries = Type.Optional(Type.Array(Type.Unknown(), { description: 'Queries of the same form.' }));

const request = Fields({
  keyId: Type.Optional(KeyId),
  key: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 512,
      description: 'The secret, in place of keyId; only its hash is looked up.',
    }),
  ),
  apiId: Type.Optional(ApiId),
  clientIp: Type.Optional(Type.String({ maxLength: 64, description: 'Address of the client.' })),
  origin: Type.Optional(
    Type.String({ maxLength: 4096, description: '`Origin` of the request, or else its `Referer`.' }),
  ),
  permissions: Type.Optional(
    Type.Union(
      [
        Type.String({ minLength: 1, maxLength: 1000 }),
        Type.Object({ and: Queries, or: Queries }, { additionalProperties: true }),
      ],
      {
        description: 'A permission query, as in `authorization.permissions` of verifyKey.',
      },
    ),
  ),
  cost: Cost,
  ratelimits: Type.Optional(
    Type.Array(
      Type.Object(
        {
          name: Type.String({ pattern: LIMIT_NAME.source }),
          cost: Cost,
          limit: Type.Optional(LIMIT_SIZE.limit),
          duration: Type.Optional(LIMIT_SIZE.duration),
        },
        { additionalProperties: false },
      ),
      {
        maxItems: LIMITS_MAX,
        description:
          'Limits that the question names, with their costs. `limit` and `duration`, together, define a limit that the key does not have.',
      },
    ),
  ),
});

const explainKey = operation({
  name: 'keys.explain',
  kind: 'question',
  id: 'explainKey',
  summary: 'See how a question about a key would be decided',
  description:
    'Goes through every rule in the order in which verifiers apply them, and consumes nothing. `code` is the verdict of the first rule that fails. What is left of rate limits is what Redis knows: verifiers may hold more. Places of concurrency limits count as verifiers last told Redis. The secret is neither logged nor audited.',
  permissions: ['api.<apiId>.explain_key'],
  authorizesItself: true,
  request,
  response: Type.Object({
    valid: Type.Boolean(),
    code: Type.String({ description: `The verdict: one of ${VERDICT_CODES.join(', ')}.` }),
    keyId: Type.Optional(Id('the key')),
    apiId: Type.Optional(Id('its API')),
    rules: List(
      Type.Object({
        rule: Type.String({ description: `One of ${Object.keys(CODES).join(', ')}.` }),
        passed: Type.Boolean(),
        detail: Type.String({ description: 'For people, with the numbers.' }),
      }),
      { description: 'In the order in which verifiers apply them.' },
    ),
  }),
  errors: ['NOT_FOUND'],
  example: { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', apiId: 'shop', permissions: 'files.read' },
  async handle(
    call,
    needs: {
      clock: Clock;
      view: KeyView;
      keys: Keys;
      identities: NameStores['identities'];
      roles: Roles;
      limits: LimitView;
    },
  ) {
    const { key: secret, keyId: id } = call.request;
    if ((secret === undefined) === (id === undefined))
      throw new ApiError('BAD_REQUEST', 'body: must have either keyId or key');
    const question = questionIn(call.request, needs.clock.wallMs());
    const ofSecret: Explained[] = secret === undefined ? [] : [secretRule(secret)];
    const place = await placeOf(call, needs);
    const key = place && (await needs.view.get(place.apiId, place.keyId));
    if (!place || !key) {
      if (secret === undefined) throw absence(call.caller, `key ${id}`);
      const advice = isWellFormed(secret) ? '' : `; ${PEPPERED}`;
      const detail = `no key that this root key may explain has this secret${advice}`;
      const rules = [...ofSecret, { rule: 'key', passed: false, detail } as const];
      return { valid: false, code: 'NOT_FOUND', rules };
    }
    const identity = await identityOf(key, needs);
    const roles = await rolesOf(key, identity, needs);
    const records = recordRules(key, identity, roles, question);
    // A verifier says that a limit is missing only of a key that it would otherwise accept.
    const isRefused = records.some(({ passed }) => !passed);
    const rules: Explained[] = [
      ...ofSecret.map((rule) => (key.foreign ? { ...rule, passed: true, detail: FOREIGN } : rule)),
      { rule: 'key', passed: true, detail: `${key.keyId}${key.name ? `, ${key.name}` : ''}` },
      ...records,
      ...(await limitRules(key, identity, roles, question, isRefused, needs)),
      creditRule(key, identity, question),
    ];
    const failed = rules.find(({ passed }) => !passed);
    const code = failed ? CODES[failed.rule] : 'VALID';
    return { valid: code === 'VALID', code, ...place, rules };
  },
});

const FOREIGN = 'of a foreign format: only verifiers with FOREIGN_KEYS on find the key';

const secretRule = (secret: string): Explained =>
  isWellFormed(secret)
    ? { rule: 'secret', passed: true, detail: 'its checksum is right' }
    : {
        rule: 'secret',
        passed: false,
        detail: 'its checksum is wrong: it was mistyped or cut, or it is of a foreign format',
      };

interface KeyQuestion extends RuleQuestion {
  readonly cost: number;
  readonly limits: NonNullable<Static<typeof request>['ratelimits']>;
  readonly nowMs: number;
}

function questionIn(body: Static<typeof request>, nowMs: number): KeyQuestion {
  const { apiId, clientIp, origin, cost = 1, ratelimits: limits = [] } = body;
  if (clientIp !== undefined && !PRESENTER_FACTS.clientIp.isValid(clientIp))
    throw new ApiError('BAD_REQUEST', `clientIp: ${PRESENTER_FACTS.clientIp.rule}`);
  const permissions = body.permissions === undefined ? undefined : queryIn(body.permissions);
  return { apiId, presenter: presenterOf({ clientIp, origin }), permissions, cost, limits, nowMs };
}

function queryIn(permissions: unknown): Query {
  const parsed = parseQuery(permissions);
  if ('fault' in parsed) throw new ApiError('BAD_REQUEST', `permissions: ${parsed.fault}`);
  return parsed.query;
}

/**
 * Resolves with the key of the call. If the caller may explain no such key: undefined if the call names a secret,
 * and rejects like other calls if it names an id.
 */
async function placeOf(
  call: Call<{ readonly key?: string; readonly keyId?: string }>,
  { keys }: { keys: Keys },
) {
  const { key: secret, keyId = '' } = call.request;
  if (secret !== undefined) {
    const place = await keys.lookUpSecret(secret);
    return place && call.caller.permissions.allows(place.apiId, 'explain_key') ? place : undefined;
  }
  const apiId = await keys.apiOf(keyId);
  if (apiId === undefined) throw absence(call.caller, `key ${keyId}`);
  requireApi(call.caller, apiId, 'explain_key', `key ${keyId}`);
  return { apiId, keyId };
}

/** The rules that a key's record decides, with what people want to know of each. */
function recordRules(
  key: Key,
  identity: KeyIdentity | undefined,
  roles: readonly Role[],
  question: KeyQuestion,
): Explained[] {
  const { clientIp, origin } = question.presenter;
  const { apiId, enabled, expires, allowedIps = [], allowedOrigins = [], permissions = [] } = key;
  const holders = roles.map(({ name, permissions }) => ({ name, slugs: permissions.map(({ id }) => id) }));
  const facts = {
    ...{ apiId, enabled, identity, expires: expires ?? 0 },
    ranges: allowedIps.length === 0 ? undefined : new IpRanges(rangesText(allowedIps)),
    origins: allowedOrigins.length === 0 ? undefined : new Origins(originsText(allowedOrigins)),
    slugSet: new Set([...permissions, ...holders.flatMap(({ slugs }) => slugs)]),
  };
  const details: Record<RuleName, (passed: boolean) => string> = {
    api: (passed) => {
      if (question.apiId === undefined) return `of ${apiId}; the question names no API`;
      return passed ? `of ${apiId}` : `of ${apiId}, not of ${question.apiId}`;
    },
    enabled: () => `the key is ${enabled ? 'enabled' : 'disabled'}`,
    identity: () =>
      identity
        ? `${identity.externalId} is ${identity.enabled ? 'enabled' : 'disabled'}`
        : 'no identity applies to the key',
    expires: () =>
      expires === undefined
        ? 'never'
        : `${timeText(expires)}${key.rerolledTo === undefined ? '' : `; ${key.rerolledTo} replaced it`}`,
    address: (passed) => {
      const list = allowedIps.join(' ');
      if (list === '') return 'the key may be used from anywhere';
      if (clientIp === undefined) return `clientIp is unknown, and must be in ${list}`;
      return `${clientIp} is ${passed ? '' : 'not '}in ${list}`;
    },
    origin: (passed) => {
      const list = allowedOrigins.join(' ');
      if (list === '') return 'the key may be used by any web page, and without one';
      if (origin === undefined) return `origin is unknown, and must be one of ${list}`;
      return `${originOf(origin) ?? 'no origin'} is ${passed ? '' : 'not '}one of ${list}`;
    },
    permissions: () => {
      if (question.permissions === undefined) return 'the question needs none';
      const parts = slugsIn(question.permissions).map((slug) => {
        const from = holders.filter(({ slugs }) => slugs.includes(slug)).map(({ name }) => `role ${name}`);
        if (permissions.includes(slug)) from.unshift('the key');
        return `${slug}: ${from.length > 0 ? `by ${from.join(', ')}` : 'missing'}`;
      });
      return parts.join('; ');
    },
  };
  return RULE_NAMES.map((rule) => {
    const passed = RULES[rule].isKept(facts, question, question.nowMs);
    return { rule, passed, detail: details[rule](passed) };
  });
}

/**
 * The limits that apply to the question. Of limits with one name, that of the question applies, or else that of the key,
 * of its identity, or the largest of its roles. What is left is that of the current window in Redis; amounts that verifiers took in advance count as
 * used.
 */
async function limitRules(
  key: Key,
  identity: KeyIdentity | undefined,
  roles: readonly Role[],
  { limits: named, nowMs }: KeyQuestion,
  isRefused: boolean,
  { limits }: { limits: LimitView },
): Promise<Explained[]> {
  const { apiId, keyId } = key;
  const ownerId = await limits.ownerOf(apiId, keyId);
  const ofQuestion = named.flatMap(({ name, limit, duration }, i) => {
    if ((limit === undefined) !== (duration === undefined))
      throw new ApiError('BAD_REQUEST', `ratelimits.${i}: limit and duration must be set together`);
    if (limit === undefined || duration === undefined) return [];
    return [{ name, limit, duration, autoApply: true, of: 'question', ownerId, space: apiId }];
  });
  const all: readonly AppliedLimit[] = [
    ...ofQuestion,
    ...appliedLimits({ key: { ...key, ownerId }, identity, roles }),
  ].filter(({ name }, i, every) => every.findIndex((each) => each.name === name) === i);
  const missing = named.findIndex(({ name }) => !all.some((each) => each.name === name));
  if (missing >= 0) {
    const fault = `ratelimits.${missing}.name: neither the key nor its identity or roles have this limit`;
    if (isRefused) return [{ rule: 'ratelimit', passed: false, detail: fault }];
    throw new ApiError('BAD_REQUEST', fault);
  }
  const costs = new Map(named.map(({ name, cost = 1 }) => [name, cost]));
  // Places are checked after all rate limits.
  const applied = all
    .filter(({ name, autoApply }) => autoApply || costs.has(name))
    .sort((a, b) => Number(a.duration === 0) - Number(b.duration === 0));
  if (applied.length === 0) return [{ rule: 'ratelimit', passed: true, detail: 'none applies' }];
  return Promise.all(
    applied.map(async (each) => {
      if (each.duration === 0) {
        const inUse = await limits.placesInUse(each.space, each);
        const detail = `${each.name} of the ${each.of}: ${each.limit} holds at the same time, ${inUse} in use`;
        // With cost 0, the question has its place already.
        const passed = inUse < each.limit || costs.get(each.name) === 0;
        return { rule: 'concurrency', passed, detail } as const;
      }
      // A limit of a question has its amount in the name of its window.
      const name = each.of === 'question' ? `${each.name}.${each.limit}` : each.name;
      const remaining = await limits.remaining(each.space, { ...each, name }, nowMs);
      const cost = costs.get(each.name) ?? 1;
      const detail = `${each.name} of the ${each.of}: ${leftInWords(each, remaining)}, takes ${cost}`;
      return { rule: 'ratelimit', passed: cost <= remaining, detail } as const;
    }),
  );
}

function creditRule(key: Key, identity: KeyIdentity | undefined, { cost }: KeyQuestion): Explained {
  const isOwn = key.remaining !== undefined;
  const { remaining, remainingHeld = 0 } = isOwn ? key : (identity?.credits ?? {});
  if (remaining === undefined) return { rule: 'credits', passed: true, detail: 'unlimited' };
  const held = remainingHeld > 0 ? `, of which verifiers hold ${remainingHeld}` : '';
  return {
    rule: 'credits',
    passed: cost <= remaining,
    detail: `${isOwn ? '' : 'of the identity: '}${remaining.toLocaleString('en')} left${held}, takes ${cost}`,
  };
}

export const explainOperations = [explainKey] as const;
