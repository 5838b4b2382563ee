import { type Static, Type } from 'typebox';
import { DEFAULT_LIMIT, LIMIT_NAME, LIMITS_MAX } from '#shared/contract/credits.ts';
import { ApiError } from '#shared/contract/errors.ts';
import { hashSecret, identityIdOf, isWellFormed } from '#shared/contract/key-format.ts';
import { VERDICT_CODES } from '#shared/contract/verdict-codes.ts';
import { wordsOf } from '#shared/lang/ip-ranges.ts';
import { parseQuery, type Query } from '#shared/permissions/permission-query.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import {
  codeOf,
  explain,
  type KeyFacts,
  type KeyQuestion,
  type LimitFacts,
  RULES,
  type Rule,
} from '../../../core/explanation.ts';
import { Id, List } from '../../../core/schemas/field-schemas.ts';
import type { Key } from '../../../redis/keys/key-view.ts';
import { absence, requireApi } from '../authorization.ts';
import type { Call } from '../call.ts';
import { operation } from '../operation.ts';
import { ApiId, Fields, KeyId } from '../request-parts.ts';
import type { Services } from '../services.ts';

const COST_MAX = 1_000_000_000;
const Cost = Type.Optional(Type.Integer({ minimum: 0, maximum: COST_MAX, description: 'Default 1.' }));

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
        { name: Type.String({ pattern: LIMIT_NAME.source }), cost: Cost },
        { additionalProperties: false },
      ),
      { maxItems: LIMITS_MAX, description: 'Limits that the question names, with their costs.' },
    ),
  ),
});

export const explainKey = operation({
  name: 'keys.explain',
  id: 'explainKey',
  summary: 'See how a question about a key would be judged',
  description:
    'Goes through every rule in the order in which verifiers apply them, and consumes nothing. `code` is the verdict of the first rule that fails. What is left of rate limits is what Redis knows: verifiers may hold more. The secret is neither logged nor audited.',
  permissions: ['api.<apiId>.explain_key'],
  authorizesItself: true,
  reads: true,
  request,
  response: Type.Object({
    valid: Type.Boolean(),
    code: Type.String({ description: `The verdict: one of ${VERDICT_CODES.join(', ')}.` }),
    keyId: Type.Optional(Id('the key')),
    apiId: Type.Optional(Id('its API')),
    rules: List(
      Type.Object({
        rule: Type.String({ description: `One of ${RULES.join(', ')}.` }),
        passed: Type.Boolean(),
        detail: Type.String({ description: 'For people, with the numbers.' }),
      }),
      { description: 'In the order in which verifiers apply them.' },
    ),
  }),
  errors: ['NOT_FOUND'],
  example: { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', apiId: 'shop', permissions: 'files.read' },
  async handle(call, services) {
    const { key: secret, keyId: id } = call.request;
    if ((secret === undefined) === (id === undefined))
      throw new ApiError('BAD_REQUEST', 'body: must have either keyId or key');
    const question = questionIn(call.request, services.clock.wallMs());
    const ofSecret: Rule[] = secret === undefined ? [] : [secretRule(secret)];
    const place = await placeOf(call, services);
    const key = place && (await services.view.get(place.apiId, place.keyId));
    if (!place || !key) {
      if (secret === undefined) throw absence(call.caller, `key ${id}`);
      const detail = 'no key that this root key may explain has this secret';
      const rules = [...ofSecret, { rule: 'key', passed: false, detail } as const];
      return { valid: false, code: 'NOT_FOUND', rules };
    }
    const facts = await factsOf(key, services, question.nowMs);
    for (const [i, { name }] of (call.request.ratelimits ?? []).entries())
      if (!facts.limits.some((limit) => limit.name === name))
        throw new ApiError(
          'BAD_REQUEST',
          `ratelimits.${i}.name: neither the key nor its identity has this limit`,
        );
    const rules = [
      ...ofSecret.map((rule) => (key.foreign ? { ...rule, passed: true, detail: FOREIGN } : rule)),
      { rule: 'key', passed: true, detail: `${key.keyId}${key.name ? `, ${key.name}` : ''}` } as const,
      ...explain(facts, question).rules,
    ];
    const code = codeOf(rules);
    return { valid: code === 'VALID', code, ...place, rules };
  },
});

const FOREIGN = 'of a foreign format: only verifiers with FOREIGN_KEYS on find the key';

const secretRule = (secret: string): Rule =>
  isWellFormed(secret)
    ? { rule: 'secret', passed: true, detail: 'its checksum is right' }
    : {
        rule: 'secret',
        passed: false,
        detail: 'its checksum is wrong: it was mistyped or cut, or it is of a foreign format',
      };

function questionIn(body: Static<typeof request>, nowMs: number): KeyQuestion {
  const { apiId, clientIp, permissions, cost = 1, ratelimits = [] } = body;
  if (clientIp !== undefined && wordsOf(clientIp) === undefined)
    throw new ApiError('BAD_REQUEST', 'clientIp: must be an IPv4 or IPv6 address');
  return {
    ...(apiId === undefined ? {} : { apiId }),
    ...(clientIp === undefined ? {} : { clientIp }),
    ...(permissions === undefined ? {} : { permissions: queryIn(permissions) }),
    cost,
    limits: new Map(ratelimits.map((limit) => [limit.name, limit.cost ?? 1])),
    nowMs,
  };
}

function queryIn(permissions: unknown): Query {
  const parsed = parseQuery(permissions);
  if ('fault' in parsed) throw new ApiError('BAD_REQUEST', `permissions: ${parsed.fault}`);
  return parsed.query;
}

/**
 * Resolves with the key of the call; undefined if there is none that the caller may explain, and the call names a
 * secret. Rejects like other calls if it names an id.
 */
async function placeOf(call: Call<{ readonly key?: string; readonly keyId?: string }>, { keys }: Services) {
  const { key: secret, keyId = '' } = call.request;
  if (secret !== undefined) {
    const place = await keys.lookUp(hashSecret(secret));
    return place && call.caller.permissions.allows(place.apiId, 'explain_key') ? place : undefined;
  }
  const apiId = await keys.apiOf(keyId);
  if (apiId === undefined) throw absence(call.caller, `key ${keyId}`);
  requireApi(call.caller, apiId, 'explain_key', `key ${keyId}`);
  return { apiId, keyId };
}

async function factsOf(key: Key, services: Services, nowMs: number): Promise<KeyFacts> {
  const { apiId, keyId, enabled, expires, rerolledTo, allowedIps, permissions = [], remaining } = key;
  const roles = await Promise.all((key.roles ?? []).map((id) => services.roles.get(id)));
  const identity = await identityOf(key, services);
  const limits = await limitsOf(key, identity, services, nowMs);
  return {
    ...{ apiId, keyId, enabled, permissions, limits },
    ...(expires === undefined ? {} : { expires }),
    ...(rerolledTo === undefined ? {} : { rerolledTo }),
    ...(allowedIps === undefined ? {} : { allowedIps }),
    ...(identity ? { identity } : {}),
    ...(remaining === undefined ? {} : { credits: { remaining, held: key.remainingHeld ?? 0 } }),
    roles: roles.flatMap((role) =>
      role ? [{ name: role.name, permissions: role.permissions.map(({ id }) => id) }] : [],
    ),
  };
}

/** The identity that applies to a key in its API; undefined = none does. */
async function identityOf({ apiId, externalId }: Key, { identities }: Services) {
  const identity = externalId === undefined ? undefined : await identities.get(identityIdOf(externalId));
  return identity?.apiIds && !identity.apiIds.includes(apiId) ? undefined : identity;
}

async function limitsOf(
  { apiId, keyId, ratelimit, ratelimits = [] }: Key,
  identity: Awaited<ReturnType<typeof identityOf>>,
  { limits }: Services,
  nowMs: number,
): Promise<LimitFacts[]> {
  const own = [
    ...(ratelimit ? [{ ...ratelimit, name: DEFAULT_LIMIT, autoApply: true }] : []),
    ...ratelimits,
  ].map((limit) => ({ ...limit, of: 'key' as const, ownerId: keyId, space: apiId }));
  const shared = (identity?.ratelimits ?? []).map((limit) => ({
    ...limit,
    ...{ of: 'identity' as const, ownerId: identity?.id ?? '', space: SHARED_LOG },
  }));
  return Promise.all(
    [...own, ...shared].map(async (each) => ({
      ...{ name: each.name, of: each.of, limit: each.limit, duration: each.duration },
      remaining: await limits.remaining(each.space, each, nowMs),
      appliesAlways: each.autoApply === true,
    })),
  );
}
