import { Type } from 'typebox';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Id, List, Time } from '../../serve/schemas/field-schemas.ts';

export const listRootKeys = operation({
  name: 'rootKeys.listRootKeys',
  summary: 'List root keys',
  description: 'Shows everything except the secrets. Root keys of the configuration are not listed.',
  permissions: ['root.*.read_root_key'],
  request: Fields({}),
  response: Type.Object({
    rootKeys: List(
      Type.Object({
        rootKeyId: Id('the root key'),
        name: Type.String(),
        permissions: List(Type.String()),
        enabled: Type.Boolean(),
        createdAt: Time('When it was created'),
      }),
    ),
  }),
  errors: [],
  example: {},
  handle: async (_call, { rootKeys }) => ({ rootKeys: await rootKeys.list() }),
});
