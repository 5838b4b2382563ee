import { apiNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { ApiId, Fields } from '../../serve/request-parts.ts';
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
  async handle({ request, caller }, { apis }) {
    const api = await apis.get(request.apiId);
    if (!api) throw apiNotFound(request.apiId);
    return seenBy(caller, api);
  },
});
