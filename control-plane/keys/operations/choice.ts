import { type Static, type TProperties, Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { idAsSent } from '../../audit/audit-event.ts';
import { withoutAliases } from '../../serve/aliases.ts';
import { apiNotFound } from '../../serve/authorization.ts';
import type { Call } from '../../serve/call.ts';
import { makeCursor, openCursor } from '../../serve/cursor.ts';
import { ApiId, type Fields, KeyId, OwnerId } from '../../serve/request-parts.ts';
import type { Services } from '../../services.ts';

/** Maximum number of keys that one call changes. */
export const MANY_KEYS_MAX = 1000;
/** Maximum body of a call that names keys: 1,000 ids of the maximum length, and a meta. */
export const MANY_KEYS_BYTES_MAX = 131_072;

/** The fields that choose the keys of a call: by their ids, or by their identity, page after page. */
export const CHOICE = {
  apiId: ApiId,
  keyIds: Type.Optional(
    Type.Array(KeyId, {
      minItems: 1,
      maxItems: MANY_KEYS_MAX,
      description: 'The keys. Keys that the API does not have are reported among the results.',
    }),
  ),
  externalId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: `Instead of keyIds: selects the keys of this identity, ${MANY_KEYS_MAX} per call.`,
    }),
  ),
  ownerId: Type.Optional(OwnerId),
  cursor: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 64,
      description: "Cursor from the previous call, for an identity's next keys.",
    }),
  ),
} satisfies TProperties;

/** Chosen keys of an API without duplicates, and the cursor of the next page. */
export interface KeyChoice {
  readonly apiId: string;
  readonly keyIds: readonly string[];
  readonly cursor?: string;
}

/** The creation number at which the page begins. */
const PLACE = /^owner:(\d{1,15})$/;

/**
 * Returns the chosen keys. Rejects with BAD_REQUEST unless keys are chosen in exactly one way, with NOT_FOUND
 * if there is no such API.
 */
export async function choose(
  call: Call<Static<ReturnType<typeof Fields<typeof CHOICE>>>>,
  { view, apis }: Pick<Services, 'view' | 'apis'>,
): Promise<KeyChoice> {
  const { apiId, keyIds, externalId, cursor } = withoutAliases(call.request);
  if ((keyIds === undefined) === (externalId === undefined)) {
    const rule = 'give either these or externalId, which selects the keys of an identity';
    throw new ApiError('BAD_REQUEST', `keyIds: ${rule}`);
  }
  if (keyIds !== undefined) {
    if (cursor !== undefined) throw new ApiError('BAD_REQUEST', 'cursor: allowed only with externalId');
    if (!(await apis.get(apiId))) throw apiNotFound(apiId);
    return { apiId, keyIds: [...new Set(keyIds)] };
  }
  const listing = ['the previous call', apiId, externalId] as const;
  const [from] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
  const page = await view.ids(
    apiId,
    externalId,
    MANY_KEYS_MAX,
    from === undefined ? undefined : Number(from),
  );
  if (!page) throw apiNotFound(apiId);
  if (externalId !== undefined)
    call.note({ externalId: page.keyIds.length > 0 ? externalId : idAsSent(externalId) });
  const { keyIds: selected, next } = page;
  return {
    ...{ apiId, keyIds: selected },
    ...(next === undefined ? {} : { cursor: makeCursor(listing, `owner:${next}`) }),
  };
}
