import { type Static, Type } from 'typebox';
import { List } from '../core/schemas/field-schemas.ts';
import { ApiId, Fields } from '../http/operations/request-parts.ts';
import { GIVEN_FIELDS } from './key-data.ts';
import { GivenCredits, limitFields, newCreditFields } from './limits-and-credits.ts';

/** Keys that were made elsewhere, in version 2 of the interface. */

const MigratedKey = Fields({
  hash: Type.String({
    maxLength: 256,
    description: 'SHA-256 of the key: hex, base64 or base64url. Another hash is listed in `failed`.',
  }),
  ...GIVEN_FIELDS,
  credits: Type.Optional(GivenCredits),
  enabled: Type.Optional(Type.Boolean({ description: 'false: the key is refused. Default: true.' })),
});

export const Migration = Fields({
  migrationId: Type.String({
    maxLength: 256,
    description: 'Of no effect: hashes are SHA-256, whoever they come from.',
  }),
  apiId: ApiId,
  keys: Type.Array(MigratedKey, { minItems: 1, maxItems: 500 }),
});
export const MigrationData = Type.Object({
  migrated: List(
    Type.Object({
      hash: Type.String({ description: 'As it was sent.' }),
      keyId: Type.String({ description: "The key's id." }),
    }),
    { description: 'Keys that are there now, those that were there already among them.' },
  ),
  failed: List(Type.String(), { description: 'Hashes of keys that were not taken over.' }),
});

/** Translates the keys into the operation's fields. Throws BAD_REQUEST. */
export function importOf({ apiId, keys }: Static<typeof Migration>) {
  return {
    apiId,
    keys: keys.map(({ hash, credits, ratelimits, ...fields }) => {
      const { ratelimit, ...limits } = ratelimits ? limitFields(ratelimits) : { ratelimit: null };
      return {
        ...{ ...fields, sha256: sha256Of(hash), ...newCreditFields(credits) },
        ...{ ...(ratelimit ? { ratelimit } : {}), ...limits },
      };
    }),
  };
}

/** Converts a hash to hex or base64url, from any form of base64. */
const sha256Of = (hash: string) =>
  hash.length === 64 ? hash : hash.replaceAll('+', '-').replaceAll('/', '_').replace('=', '');

/** Returns the outcomes of the keys, in the order of the request. */
export function migrationData(
  { keys }: Static<typeof Migration>,
  results: readonly { readonly result: string; readonly keyId?: string }[],
): Static<typeof MigrationData> {
  const outcomes = keys.map(({ hash }, i) => ({ hash, keyId: results[i]?.keyId }));
  return {
    migrated: outcomes.flatMap(({ hash, keyId }) => (keyId === undefined ? [] : [{ hash, keyId }])),
    failed: outcomes.flatMap(({ hash, keyId }) => (keyId === undefined ? [hash] : [])),
  };
}
