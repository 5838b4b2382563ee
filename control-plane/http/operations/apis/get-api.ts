import { Type } from 'typebox';
import { Id } from '../../../core/schemas/field-schemas.ts';
import { apiNotFound } from '../authorization.ts';
import { operation } from '../operation.ts';
import { ApiId, Fields } from '../request-parts.ts';
import { ApiView, seenBy } from './api.ts';

export const getApi = operation({
  name: 'apis.getApi',
  summary: 'Show an API',
  description: 'Shows the name, the defaults for new keys, and the time of creation.',
  permissions: ['api.<apiId>.read_api'],
  request: Fields({ apiId: ApiId }),
  response: ApiView,
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop' },
  v2: {
    request: Fields({ apiId: ApiId }),
    data: Type.Object({
      id: Id('the API'),
      name: Type.String({ description: 'Its name; its id where it was given none.' }),
    }),
    example: { apiId: 'shop' },
    toRequest: (body) => body,
    toAnswer: ({ id, name = id }) => ({ data: { id, name } }),
  },
  async handle({ request, caller }, { apis }) {
    const api = await apis.get(request.apiId);
    if (!api) throw apiNotFound(request.apiId);
    return seenBy(caller, api);
  },
});
