import { type Static, Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { lifetimeError } from '#shared/protocol/log/write-error.ts';
import {
  KEY_FIELDS,
  type KeyPatch,
  type StoredFields,
  storedFields,
} from '#shared/protocol/records/key-record.ts';
import { RETENTION } from '#shared/protocol/records/usage.ts';
import { identityIdOf } from '#shared/rules/key-format.ts';
import { UNKNOWN_PRESENTER } from '#shared/rules/presenter.ts';
import { brokenRule, type RuleName, UNRESTRICTED } from '#shared/rules/rules.ts';
import type { Apis } from '../apis/apis.ts';
import type { IdentitiesOfKeys, KeyIdentity, RoleNames } from '../ports.ts';
import type { Key, KeyFilter } from '../records/key-view.ts';
import { LastSequence } from '../schema/changes.ts';
import { CREDITS_VIEW } from '../schema/credits.ts';
import { CHANGED_FIELDS, checkMeta, FIELDS_VIEW } from '../schema/key-fields.ts';
import { checkLimits } from '../schema/limits.ts';
import { CHANGED_MANAGED, MANAGED_VIEW } from '../schema/managed.ts';
import { checkPlaces } from '../schema/places.ts';
import { Id, Time } from '../schema/primitives.ts';
import { type GivenRole, GivenRoles, GivenSlugs, slugsIn } from '../schema/slugs.ts';

/** An id of a key, for examples. */
export const keyIdExample = 'key_0mzc9k4q8r2wfXa1Bc2d';

/** The schema of a key's state. */
export const StateOf = (description: string) =>
  Type.Union(
    [
      Type.Literal('enabled'),
      Type.Literal('disabled'),
      Type.Literal('identity_disabled'),
      Type.Literal('expired'),
    ],
    { description },
  );
export type KeyState = Static<ReturnType<typeof StateOf>>;
/** The states that stand for rules that a key breaks. */
const STATES: Partial<Record<RuleName, KeyState>> = {
  enabled: 'disabled',
  identity: 'identity_disabled',
  expires: 'expired',
};

const { enabled, expires, ...fieldViews } = FIELDS_VIEW;
/** A key as admins see it. */
export const KeyAnswer = Type.Object({
  id: Id('the key'),
  keyId: Type.String({ description: 'The same.' }),
  apiId: Id('its API'),
  start: Type.String({ description: 'First characters of the secret.' }),
  ...fieldViews,
  ...CREDITS_VIEW,
  identity: Type.Optional(
    Type.Object(
      {
        id: Id('the identity'),
        externalId: Type.String(),
        enabled: Type.Boolean({ description: 'false: no key of the identity is accepted.' }),
        credits: Type.Optional(
          Type.Object(CREDITS_VIEW, {
            description: 'Its credits, from which the key takes if it has none of its own.',
          }),
        ),
      },
      { description: 'The identity with this `externalId`.' },
    ),
  ),
  rerolledTo: Type.Optional(Id('the key that replaced this one, and shares its credits')),
  rerolledFrom: Type.Optional(Id('the key that this one replaced')),
  foreign: Type.Optional(
    Type.Literal(true, {
      description: 'The secret has a foreign format: only verifiers with FOREIGN_KEYS on find the key.',
    }),
  ),
  enabled,
  state: StateOf(
    'The state in which verifiers see the key: `disabled` itself, with its identity, expired, or none of these.',
  ),
  leaked: Type.Optional(
    Type.Object(
      { at: Time('When it was last reported'), url: Type.String({ description: "`''` = unknown." }) },
      { description: 'The secret was found in public.' },
    ),
  ),
  ...MANAGED_VIEW,
  createdAt: Time('When it was created'),
  updatedAt: Type.Optional(Time('When it was last changed')),
  sequence: LastSequence,
  expires,
});
export const UsedKey = Type.Object({
  ...KeyAnswer.properties,
  lastUsedAt: Type.Optional(
    Time(
      `When a verifier last reported an accepted verification; absent = never, or not for ${RETENTION.day} days. Reports are up to USAGE_PERIOD_MS late`,
    ),
  ),
  lastRefusedAt: Type.Optional(Time('The same of a refused verification')),
});

/** The stores of what the records of keys only refer to. */
export interface NameStores {
  readonly roles: RoleNames;
  readonly identities: IdentitiesOfKeys;
  readonly clock: Clock;
}

/** Adds to keys what their records do not contain: the names of their roles, their identities, and their states. */
export async function withNames<Shown extends Key>(
  { roles, identities, clock }: NameStores,
  keys: readonly Shown[],
) {
  const complete = await identities.withIdentities(await roles.withRoleNames(keys));
  return complete.map((key) => ({ ...key, state: stateOf(key, clock.wallMs()) }));
}

/** The roles of a key and of its identity that exist. */
export async function rolesOf<Role>(
  key: Key,
  identity: KeyIdentity | undefined,
  { roles }: { readonly roles: { get(roleId: string): Promise<Role | undefined> } },
): Promise<Role[]> {
  const ids = new Set([...(key.roles ?? []), ...(identity?.roles ?? [])]);
  const records = await Promise.all([...ids].map((id) => roles.get(id)));
  return records.filter((role) => role !== undefined);
}

/** The identity that applies to a key in its API; undefined = none does. */
export async function identityOf({ apiId, externalId }: Key, { identities }: Pick<NameStores, 'identities'>) {
  const identity = externalId === undefined ? undefined : await identities.get(identityIdOf(externalId));
  return identity?.apiIds && !identity.apiIds.includes(apiId) ? undefined : identity;
}

/** The reason why the control plane may not find a key of a foreign format by its secret. */
export const PEPPERED =
  'if imported by hmacSha256, only verifiers find it by its secret: ask `keys.verifyKey` for its keyId';

function stateOf(
  { apiId, enabled, identity, expires = 0 }: Key & { readonly identity?: { readonly enabled: boolean } },
  nowMs: number,
): KeyState {
  const rule = brokenRule(
    { ...UNRESTRICTED, apiId, enabled, identity, expires },
    { presenter: UNKNOWN_PRESENTER },
    nowMs,
  );
  return (rule && STATES[rule]) ?? 'enabled';
}

/** The conditions on its record that a key of this state meets; the identity is still to be asked. */
export const recordsIn = (state: KeyState | undefined, nowMs: number): KeyFilter => {
  if (state === undefined) return {};
  if (state === 'disabled') return { enabled: false };
  if (state === 'expired') return { enabled: true, expiredAt: nowMs };
  return state === 'enabled' ? { enabled: true, unexpiredAt: nowMs } : { enabled: true };
};

/** The stores that tell how long keys of an API may live. */
export interface LifetimeStores {
  readonly apis: Apis;
  readonly clock: Clock;
}

/**
 * Rejects with BAD_REQUEST if a change lets a key live longer than its API allows.
 * @param expires `null` = for ever; undefined = unchanged
 */
export async function checkLifetime(
  { apis, clock }: LifetimeStores,
  apiId: string,
  expires: number | null | undefined,
): Promise<void> {
  const longestMs = expires === undefined ? undefined : await apis.maxLifetimeMs(apiId);
  if (longestMs === undefined || (expires && expires <= clock.wallMs() + longestMs)) return;
  throw lifetimeError(apiId, longestMs);
}

const { enabled: _enabled, permissions: _permissions, roles: _roles, ...changedAlike } = CHANGED_FIELDS;
/** The fields that updateKey and updateKeys change, besides `enabled`. */
export const CHANGES = {
  ...changedAlike,
  permissions: Type.Optional(
    Type.Union([GivenSlugs({ description: KEY_FIELDS.permissions.description }), Type.Null()]),
  ),
  roles: Type.Optional(
    Type.Union([GivenRoles({ description: 'All roles of the key after the change.' }), Type.Null()]),
  ),
  ...CHANGED_MANAGED,
};

/** Changes to a key's fields, as requests contain them. */
type Changes = Omit<KeyPatch, 'permissions' | 'roles'> & {
  readonly permissions?: Parameters<typeof slugsIn>[0] | null;
  readonly roles?: readonly GivenRole[] | null;
};

/**
 * Returns changes to a key as they are stored. Rejects with BAD_REQUEST that names the field and the rule.
 */
export async function storedChanges(
  roles: RoleNames,
  { permissions, roles: roleNames, ...fields }: Changes,
): Promise<StoredFields> {
  const patch = {
    ...fields,
    ...(permissions === undefined ? {} : { permissions: permissions && slugsIn(permissions) }),
    ...(await roles.patchOf(roleNames)),
  };
  checkMeta(patch.meta ?? {});
  checkLimits(patch);
  checkPlaces(patch);
  return storedFields(patch);
}

/** In an answer about many keys. */
export const Refused = Type.Integer({ description: 'Number of refused keys; 0 = none.' });
export const refusedIn = (results: readonly { readonly result: string }[]): number =>
  results.filter(({ result }) => result === 'refused').length;
