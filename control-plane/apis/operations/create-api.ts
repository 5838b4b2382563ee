import { Type } from 'typebox';
import { lack } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { ApiId, Fields, Name } from '../../serve/request-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { DEFAULTS, DEFAULTS_VIEW } from './api.ts';

export const createApi = operation({
  name: 'apis.createApi',
  summary: 'Create an API',
  description: 'Keys belong to an API. The first key of an unknown API creates it too.',
  permissions: ['api.<apiId>.create_api'],
  authorizesItself: true,
  request: Fields({
    name: Name,
    apiId: Type.Optional(ApiId),
    defaultPrefix: Type.Optional(DEFAULTS.defaultPrefix),
    defaultBytes: Type.Optional(DEFAULTS.defaultBytes),
  }),
  response: Type.Object({ apiId: Id('the API'), name: Type.String(), ...DEFAULTS_VIEW }),
  event: 'api.created',
  errors: ['CONFLICT'],
  example: { name: 'Shop', apiId: 'shop' },
  async handle(call, { apis }) {
    const { apiId, ...about } = call.request;
    // Whether an API of this id exists need not be hidden here, so say which permission is missing.
    if (!call.caller.permissions.allows(apiId ?? '*', 'create_api')) {
      throw lack(call.caller, `api.${apiId ?? '*'}.create_api`);
    }
    const created = await apis.create(call.request);
    call.note({ apiId: created.apiId }, { after: about });
    return created;
  },
});
