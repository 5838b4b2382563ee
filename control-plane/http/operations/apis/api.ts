import { Type } from 'typebox';
import { Id, Time } from '../../../core/schemas/field-schemas.ts';
import type { Api } from '../../../redis/apis.ts';
import type { Call } from '../call.ts';
import { Bytes, Prefix } from '../request-parts.ts';
import { Count } from '../response-parts.ts';

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
  keys: Type.Optional(Count('Number of its keys; shown with the permission to read them.')),
  foreignKeys: Type.Optional(
    Type.Literal(true, {
      description: 'Some of its keys are of another format, found only by verifiers with FOREIGN_KEYS on.',
    }),
  ),
  protocol: Type.Optional(
    Type.Integer({
      minimum: 2,
      description:
        'What its verifiers must understand, because of what some of its keys have or had; absent: any can follow it.',
    }),
  ),
});

/** Returns an API as the caller may see it: the number of its keys requires the permission to read keys. */
export const seenBy = ({ permissions }: Call['caller'], { keys, ...api }: Api) =>
  permissions.allows(api.id, 'read_key') ? { ...api, keys } : api;
