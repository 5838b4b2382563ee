import { Type } from 'typebox';
import { apiNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { ApiId, Fields, Name } from '../../serve/request-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { DEFAULTS } from './api.ts';

export const updateApi = operation({
  name: 'apis.updateApi',
  summary: 'Change the name of an API and the defaults of its new keys',
  description: 'Absent fields stay unchanged; null clears a field. Existing keys do not change.',
  permissions: ['api.<apiId>.update_api'],
  request: Fields({
    apiId: ApiId,
    name: Type.Optional(Name),
    defaultPrefix: Type.Optional(Type.Union([DEFAULTS.defaultPrefix, Type.Null()])),
    defaultBytes: Type.Optional(Type.Union([DEFAULTS.defaultBytes, Type.Null()])),
  }),
  response: Type.Object({ apiId: Id('the API') }),
  event: 'api.updated',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', defaultPrefix: 'shop' },
  async handle(call, { apis }) {
    const { apiId, ...patch } = call.request;
    const before = await apis.update(apiId, patch);
    if (before === undefined) throw apiNotFound(apiId);
    call.note({}, { before, after: patch });
    return { apiId };
  },
});
