import { type Static, Type } from 'typebox';
import { ApiError } from '#shared/rules/errors.ts';
import { identityIdOf } from '#shared/rules/key-format.ts';
import { keyIdExample, type UsedKey } from '../core/keys/key-answer.ts';
import type { Keys } from '../core/keys/keys.ts';
import { importKeys } from '../core/keys/operations/import-keys.ts';
import {
  createKey,
  deleteKey,
  getKey,
  updateKey,
  updateRemaining,
  whoami,
} from '../core/keys/operations/keys.ts';
import {
  addPermissions,
  addRoles,
  removePermissions,
  removeRoles,
  setPermissions,
  setRoles,
} from '../core/keys/operations/lists.ts';
import { EXPIRATION_MAX, rerollKey } from '../core/keys/operations/reroll-key.ts';
import type { KeyView } from '../core/records/key-view.ts';
import type { PropagationResponse } from '../core/schema/changes.ts';
import { FIELDS } from '../core/schema/key-fields.ts';
import { ApiId, Bytes, Fields, Id, KeyId, List, Prefix, Secret, Time } from '../core/schema/primitives.ts';
import type { Call } from '../core/serve/call.ts';
import { PermissionView } from '../subjects/roles/operations.ts';
import type { Catalogue } from '../subjects/roles/permissions.ts';
import type { Roles } from '../subjects/roles/roles.ts';
import { asData, CHANGED, DELETED, inV2, onceComplete, same } from './face.ts';
import {
  ChangedCredits,
  CreditsOperation,
  CreditsSchema,
  changedCreditFields,
  creditsView,
  GivenCredits,
  GivenRatelimits,
  limitFields,
  limitsView,
  newCreditFields,
  newLimitFields,
  RatelimitsSchema,
} from './limits-and-credits.ts';
import { GivenPermissions, GivenRoleNames, permissionsData, RoleData, rolesData } from './roles.ts';

const { name, meta, externalId, expires } = FIELDS;
/** The lists of a key, as requests name them. */
const GIVEN_LISTS = {
  permissions: Type.Optional(GivenPermissions),
  roles: Type.Optional(GivenRoleNames),
  ratelimits: Type.Optional(GivenRatelimits),
};
/** The fields of a new key, besides its credits and `enabled`. */
const GIVEN_FIELDS = {
  name: Type.Optional(name),
  externalId: Type.Optional(externalId),
  meta: Type.Optional(meta),
  expires: Type.Optional(expires),
  ...GIVEN_LISTS,
};

export const KeyData = Type.Object({
  keyId: Id('the key'),
  start: Type.String({ description: 'First characters of the secret.' }),
  enabled: Type.Boolean(),
  name: Type.Optional(name),
  meta: Type.Optional(meta),
  createdAt: Time('When it was created'),
  updatedAt: Type.Optional(Time('When it was last changed')),
  lastUsedAt: Type.Optional(Time('When a verifier last reported that it accepted the key')),
  expires: Type.Optional(expires),
  permissions: Type.Optional(List(Type.String())),
  roles: Type.Optional(List(Type.String({ description: 'The name of a role.' }))),
  credits: Type.Optional(CreditsSchema),
  identity: Type.Optional(Type.Object({ id: Id('the identity'), externalId: Type.String() })),
  ratelimits: Type.Optional(RatelimitsSchema),
});

/** Translates a key into this form. Fields that KeyData lacks are left out by its serialisation. */
export function keyData(key: Static<typeof UsedKey>): Static<typeof KeyData> {
  const { meta, permissions = [], roles = [], identity: _, ratelimits: __, ...others } = key;
  const limits = limitsView(key.keyId, key);
  return {
    ...others,
    ...(Object.keys(meta).length > 0 ? { meta } : {}),
    ...(permissions.length > 0 ? { permissions } : {}),
    ...(roles.length > 0 ? { roles } : {}),
    ...creditsView(key),
    // Every external id is an identity, even if no record of the identity exists.
    ...(key.externalId === undefined
      ? {}
      : { identity: { id: identityIdOf(key.externalId), externalId: key.externalId } }),
    ...(limits.length > 0 ? { ratelimits: limits } : {}),
  };
}

/** Returns a field that asks for a secret to be stored or shown again, and must be false. */
const neverKept = (description: string) => Type.Optional(Type.Boolean({ description }));
export const Decrypt = neverKept('true is refused: secrets are not stored, so they cannot be shown again.');

/** Throws BAD_REQUEST if a field asks for a secret to be stored, or shown again. */
export function refuseKept(field: 'recoverable' | 'decrypt', isAsked = false): void {
  if (isAsked)
    throw new ApiError(
      'BAD_REQUEST',
      `${field}: must be false, since only the hash of a secret is kept; reroll a key whose secret is lost`,
    );
}

const MigratedKey = Fields({
  hash: Type.String({
    maxLength: 256,
    description: 'SHA-256 of the key: hex, base64 or base64url. Another hash is listed in `failed`.',
  }),
  ...GIVEN_FIELDS,
  credits: Type.Optional(GivenCredits),
  enabled: Type.Optional(Type.Boolean({ description: 'false: the key is refused. Default: true.' })),
});
/** Converts a hash to hex or base64url, from any form of base64. */
const sha256Of = (hash: string) =>
  hash.length === 64 ? hash : hash.replaceAll('+', '-').replaceAll('/', '_').replace('=', '');

/** The face of an operation that changes a key's permissions, besides its answer: all of them. */
const ofPermissions = {
  request: Fields({ keyId: KeyId, permissions: GivenPermissions }),
  data: List(PermissionView, { description: 'All permissions of the key itself.' }),
  example: { keyId: keyIdExample, permissions: ['files.read'] },
  toRequest: same,
};
/** The same with its answer, where the operation answers with all permissions, too. */
const withPermissions = {
  ...ofPermissions,
  toAnswer: async (permissions: readonly WithId[], _call: object, { catalogue }: RoleStores) => ({
    data: await permissionsData(idsOf(permissions), catalogue),
  }),
};
/** The face of an operation that changes a key's roles, besides its answer: all of them. */
const ofRoles = {
  request: Fields({ keyId: KeyId, roles: GivenRoleNames }),
  data: Type.Array(RoleData, { description: 'All roles of the key.' }),
  example: { keyId: keyIdExample, roles: ['editor'] },
  toRequest: same,
};
/** The same with its answer, where the operation answers with all roles, too. */
const withRoles = {
  ...ofRoles,
  toAnswer: async (roles: readonly WithId[], _call: object, stores: RoleStores) => ({
    data: await presentRoles(idsOf(roles), stores),
  }),
};
interface WithId {
  readonly id: string;
}
const idsOf = (items: readonly WithId[]) => items.map(({ id }) => id);
/** The stores of roles, and of what permissions are called. */
interface RoleStores {
  readonly roles: Roles;
  readonly catalogue: Catalogue;
}

/** Returns the roles of these ids in this form, without deleted roles. */
async function presentRoles(ids: readonly string[], { roles, catalogue }: RoleStores) {
  const present = await Promise.all(ids.map((id) => roles.get(id)));
  return rolesData(
    present.filter((role) => role !== undefined),
    catalogue,
  );
}

/** Returns a key's list after a change of it. Throws SERVICE_UNAVAILABLE while the change is not complete. */
async function listAfter(
  field: 'permissions' | 'roles',
  { propagation }: Static<typeof PropagationResponse>,
  { body, call }: { readonly body: { readonly keyId: string }; readonly call: Call },
  keys: Keys,
): Promise<readonly string[]> {
  onceComplete(propagation);
  return (await keys.listOf(call.apiId, body.keyId, field))?.values ?? [];
}

export const keyFaces = [
  inV2(createKey, {
    request: Fields({
      apiId: ApiId,
      prefix: Type.Optional(Prefix('Beginning of the key, before an underscore.')),
      byteLength: Type.Optional(Bytes('Random bytes in the key.')),
      ...GIVEN_FIELDS,
      credits: Type.Optional(GivenCredits),
      enabled: Type.Boolean({ default: true, description: 'false: the key is refused until it is enabled.' }),
      recoverable: neverKept('true is refused: only the hash of a secret is kept.'),
    }),
    data: Type.Object({ keyId: Id('the key'), key: Secret }),
    example: { apiId: 'shop', name: 'Ada', credits: { remaining: 100 } },
    toRequest({ recoverable, credits, ratelimits = [], ...fields }) {
      refuseKept('recoverable', recoverable);
      return { ...fields, ...newCreditFields(credits), ...newLimitFields(ratelimits) };
    },
    toAnswer: asData,
  }),
  inV2(updateKey, {
    request: Fields({
      keyId: KeyId,
      enabled: Type.Optional(
        Type.Boolean({ description: 'false: the key is refused. true: it is accepted again.' }),
      ),
      name: Type.Optional(Type.Union([name, Type.Null()])),
      externalId: Type.Optional(Type.Union([externalId, Type.Null()])),
      meta: Type.Optional(Type.Union([meta, Type.Null()])),
      expires: Type.Optional(Type.Union([expires, Type.Null()])),
      ...GIVEN_LISTS,
      credits: Type.Optional(ChangedCredits),
    }),
    example: { keyId: keyIdExample, enabled: false },
    toRequest: ({ credits, ratelimits, ...fields }) => ({
      ...{ ...fields, ...changedCreditFields(credits), ...(ratelimits ? limitFields(ratelimits) : {}) },
    }),
    ...CHANGED,
  }),
  inV2(getKey, {
    request: Fields({ keyId: KeyId, decrypt: Decrypt }),
    data: KeyData,
    example: { keyId: keyIdExample },
    toRequest({ keyId, decrypt }) {
      refuseKept('decrypt', decrypt);
      return { keyId };
    },
    toAnswer: (key) => ({ data: keyData(key) }),
  }),
  inV2(whoami, {
    ...{ request: whoami.request, data: KeyData, example: whoami.example },
    toRequest: same,
    toAnswer: (key) => ({ data: keyData(key) }),
  }),
  inV2(deleteKey, {
    request: Fields({
      keyId: KeyId,
      permanent: Type.Optional(
        Type.Boolean({
          description: 'Of no effect: every deletion is for good, and leaves only the audit log.',
        }),
      ),
    }),
    example: { keyId: keyIdExample },
    toRequest: ({ keyId }) => ({ keyId }),
    ...DELETED,
  }),
  inV2(updateRemaining, {
    name: 'keys.updateCredits',
    request: Fields({ keyId: KeyId, ...CreditsOperation }),
    data: CreditsSchema,
    example: { keyId: keyIdExample, operation: 'increment', value: 100 },
    toRequest({ keyId, operation, value = null }) {
      if (value === null && operation !== 'set')
        throw new ApiError('BAD_REQUEST', `value: must be a number where operation is ${operation}`);
      return { keyId, op: operation, value };
    },
    async toAnswer({ remaining }, { body, call }, { view }: { view: KeyView }) {
      if (remaining === null) return { data: { remaining } };
      // They are changed: without an answer the caller would change them twice.
      const key = await view.get(call.apiId, body.keyId).catch(() => undefined);
      const { credits = { remaining } } = creditsView({ ...key, remaining });
      return { data: credits };
    },
  }),
  inV2(rerollKey, {
    request: Fields({
      keyId: KeyId,
      expiration: Type.Integer({
        ...{ minimum: 0, maximum: EXPIRATION_MAX },
        description:
          'For how long the old key is still accepted, ms. 0: it is refused when the call returns.',
      }),
    }),
    data: Type.Object({ keyId: Id('the new key'), key: Secret }),
    example: rerollKey.example,
    toRequest: same,
    toAnswer: ({ keyId, key }) => ({ data: { keyId, key } }),
  }),
  inV2(importKeys, {
    name: 'keys.migrateKeys',
    description:
      'Keys are sent as hashes only. Safe to send again: a key that is there counts as migrated. Verifiers find such keys with FOREIGN_KEYS on. A verifier that was asked for a key up to a second before answers NOT_FOUND for the rest of that second.',
    request: Fields({
      migrationId: Type.String({
        maxLength: 256,
        description: 'Of no effect: hashes are SHA-256, whoever they come from.',
      }),
      apiId: ApiId,
      keys: Type.Array(MigratedKey, { minItems: 1, maxItems: 500 }),
    }),
    data: Type.Object({
      migrated: List(
        Type.Object({
          hash: Type.String({ description: 'As it was sent.' }),
          keyId: Type.String({ description: "The key's id." }),
        }),
        { description: 'Keys that are there now, those that were there already among them.' },
      ),
      failed: List(Type.String(), { description: 'Hashes of keys that were not taken over.' }),
    }),
    example: {
      migrationId: 'hosted',
      apiId: 'shop',
      keys: [{ hash: 'n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=', name: 'Ada' }],
    },
    toRequest: ({ apiId, keys }) => ({
      apiId,
      keys: keys.map(({ hash, credits, ratelimits, ...fields }) => ({
        ...{ ...fields, sha256: sha256Of(hash), ...newCreditFields(credits) },
        ...(ratelimits ? newLimitFields(ratelimits) : {}),
      })),
    }),
    toAnswer({ results }, { body }) {
      const outcomes = body.keys.map(({ hash }, i) => {
        const result = results[i];
        return { hash, keyId: result && 'keyId' in result ? result.keyId : undefined };
      });
      return {
        data: {
          migrated: outcomes.flatMap(({ hash, keyId }) => (keyId === undefined ? [] : [{ hash, keyId }])),
          failed: outcomes.flatMap(({ hash, keyId }) => (keyId === undefined ? [hash] : [])),
        },
      };
    },
  }),
  inV2(addPermissions, withPermissions),
  inV2(setPermissions, withPermissions),
  inV2(removePermissions, {
    ...ofPermissions,
    async toAnswer(response, context, { keys, catalogue }: { keys: Keys; catalogue: Catalogue }) {
      const slugs = await listAfter('permissions', response, context, keys);
      return { data: await permissionsData(slugs, catalogue) };
    },
  }),
  inV2(addRoles, withRoles),
  inV2(setRoles, withRoles),
  inV2(removeRoles, {
    ...ofRoles,
    async toAnswer(response, context, { keys, ...stores }: RoleStores & { keys: Keys }) {
      return { data: await presentRoles(await listAfter('roles', response, context, keys), stores) };
    },
  }),
];
