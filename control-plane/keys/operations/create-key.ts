import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { storedFields } from '#shared/contract/key-record.ts';
import { nearest } from '../../../shared/lang/nearest.ts';
import type { Apis } from '../../apis/apis.ts';
import { auditView } from '../../audit/audit-event.ts';
import { withoutAliases } from '../../serve/aliases.ts';
import type { Call } from '../../serve/call.ts';
import { checkMeta } from '../../serve/meta.ts';
import { operation } from '../../serve/operation.ts';
import { ApiId, Bytes, Fields, Prefix } from '../../serve/request-parts.ts';
import { Secret } from '../../serve/response-parts.ts';
import { NEW_CREDITS, newCredits } from '../../serve/schemas/credit-schemas.ts';
import { Id, OPTIONAL_FIELDS } from '../../serve/schemas/field-schemas.ts';
import { checkLimits } from '../../serve/schemas/limit-schemas.ts';
import { checkRanges } from '../../serve/schemas/range-schemas.ts';
import { keyIdExample } from '../key-answer.ts';

const { name, ...optionalFields } = OPTIONAL_FIELDS;

export const createKey = operation({
  name: 'keys.createKey',
  summary: 'Create a key',
  description:
    'Every verifier accepts the key as soon as this call returns. An unknown API is created too, unless API_AUTO_CREATE is off.',
  permissions: ['api.<apiId>.create_key'],
  request: Fields({
    apiId: ApiId,
    name,
    prefix: Type.Optional(Prefix('Prefix of the key, before an underscore; default: that of the API.')),
    byteLength: Type.Optional(Bytes('Number of random bytes in the key; default: that of the API, or 16.')),
    ...optionalFields,
    ...NEW_CREDITS,
    enabled: Type.Boolean({ default: true, description: 'false: the key is refused until it is enabled.' }),
  }),
  response: Type.Object(
    { keyId: Id('the key'), key: Secret },
    { examples: [{ keyId: keyIdExample, key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' }] },
  ),
  event: 'key.created',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { apiId: 'shop', name: 'Ada', meta: { plan: 'pro' } },
  async handle(call, { apis, keys, roles, clock }) {
    const { meta = {}, remaining, refill, roles: roleNames, ...fields } = withoutAliases(call.request);
    checkMeta(meta);
    checkLimits(fields.ratelimits);
    checkRanges(fields.allowedIps);
    checkExpires(fields.expires, clock.wallMs());
    const key = { ...fields, ...(roleNames ? { roles: await roles.idsOf(roleNames) } : {}), meta };
    const credits = newCredits({ remaining, refill });
    const withCredits = credits ? { credits } : {};
    const created = await keys.create({ ...key, ...withCredits }).catch(async (error: unknown) => {
      throw await withNearestApi(error, call, apis);
    });
    call.giveTurnBack();
    call.note({ keyId: created.keyId }, { after: { ...auditView(storedFields(key)), ...withCredits } });
    return created;
  },
});

function checkExpires(expires: number | undefined, nowMs: number): void {
  if (expires === undefined || expires > nowMs) return;
  throw new ApiError('BAD_REQUEST', 'expires: must be in the future');
}

/** The number of APIs among which the one that a caller meant is searched. */
const APIS_COMPARED = 100;

/** Adds the nearest id of an API that the caller may read to the error about an unknown API. */
async function withNearestApi(error: unknown, { caller, request }: Call, apis: Apis): Promise<unknown> {
  const { apiId } = request as { readonly apiId: string };
  if (!(error instanceof ApiError) || error.message !== `api ${apiId} not found`) return error;
  const readableIds = caller.permissions.apisWith('read_api');
  const page = readableIds
    ? await apis.among(readableIds, '', APIS_COMPARED)
    : await apis.list('', APIS_COMPARED);
  const near = nearest(
    apiId,
    page.apis.map((api) => api.id),
  );
  const fix = near === undefined ? 'create it with apis.createApi' : `did you mean ${near}?`;
  return new ApiError('NOT_FOUND', `${error.message}; ${fix}`);
}
