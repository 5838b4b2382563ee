import { Type } from 'typebox';
import { createApi, deleteApi, getApi } from '../core/apis/operations.ts';
import { listKeys } from '../core/keys/operations/keys.ts';
import { ExternalId, Name } from '../core/schema/key-fields.ts';
import { ApiId, Fields, Id, List } from '../core/schema/primitives.ts';
import { DELETED, inV2, PAGE, pagination, same } from './face.ts';
import { Decrypt, KeyData, keyData, refuseKept } from './keys.ts';

const THE_API = { request: Fields({ apiId: ApiId }), example: { apiId: 'shop' }, toRequest: same };

export const apiFaces = [
  inV2(createApi, {
    description: 'Keys belong to an API.',
    request: Fields({ name: Name }),
    data: Type.Object({ apiId: Id('the API') }),
    example: { name: 'Shop' },
    toRequest: same,
    toAnswer: ({ apiId }) => ({ data: { apiId } }),
  }),
  inV2(getApi, {
    ...THE_API,
    data: Type.Object({
      id: Id('the API'),
      name: Type.String({ description: 'Its name; its id where it was given none.' }),
    }),
    toAnswer: ({ id, name = id }) => ({ data: { id, name } }),
  }),
  inV2(deleteApi, { ...THE_API, ...DELETED }),
  inV2(listKeys, {
    request: Fields({
      apiId: ApiId,
      ...PAGE,
      externalId: Type.Optional(ExternalId),
      decrypt: Decrypt,
      revalidateKeysCache: Type.Optional(
        Type.Boolean({ description: 'Of no effect: the control plane has no cache.' }),
      ),
    }),
    data: List(KeyData),
    paged: true,
    example: { apiId: 'shop', limit: 100 },
    toRequest({ decrypt, revalidateKeysCache: _cacheOption, limit, ...query }) {
      refuseKept('decrypt', decrypt);
      return { ...query, limit: String(limit), sort: 'createdAt' as const };
    },
    toAnswer: ({ keys, cursor }) => ({ data: keys.map(keyData), pagination: pagination(cursor) }),
  }),
];
