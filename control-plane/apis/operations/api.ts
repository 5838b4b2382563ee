import { Type } from 'typebox';
import type { Call } from '../../serve/call.ts';
import { Bytes, Prefix } from '../../serve/request-parts.ts';
import { Count } from '../../serve/response-parts.ts';
import { Id, Time } from '../../serve/schemas/field-schemas.ts';
import type { Api } from '../apis.ts';

/** An API's defaults for new keys, in requests. */
export const DEFAULTS = {
  defaultPrefix: Prefix('The `prefix` of keys that are created without one.'),
  defaultBytes: Bytes('The `byteLength` of keys that are created without one.'),
};

/** The same in responses. */
export const DEFAULTS_VIEW = {
  defaultPrefix: Type.Optional(Type.String({ description: 'The `prefix` of keys created without one.' })),
  defaultBytes: Type.Optional(Type.Integer({ description: 'The `byteLength` of keys created without one.' })),
};

export const ApiView = Type.Object({
  id: Id('the API'),
  name: Type.Optional(Type.String()),
  ...DEFAULTS_VIEW,
  createdAt: Time('When it was created'),
  keys: Type.Optional(Count('Number of keys of the API; shown only to callers that may read keys.')),
  foreignKeys: Type.Optional(
    Type.Literal(true, {
      description:
        'true: some keys of the API have a foreign format, and only verifiers with FOREIGN_KEYS on find them.',
    }),
  ),
  protocol: Type.Optional(
    Type.Integer({
      minimum: 2,
      description:
        'The protocol that verifiers of the API must speak, because some of its keys need it or once did; absent: any protocol.',
    }),
  ),
});

/** Returns an API as the caller may see it: the number of its keys requires the permission to read keys. */
export const seenBy = ({ permissions }: Call['caller'], { keys, ...api }: Api) =>
  permissions.allows(api.id, 'read_key') ? { ...api, keys } : api;
