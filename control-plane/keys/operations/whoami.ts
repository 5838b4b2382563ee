import { Type } from 'typebox';
import { hashSecret } from '#shared/contract/key-format.ts';
import { absence, recordNotFound, requireApi } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { KeyView, withNames } from '../key-answer.ts';

const Whose = Fields({
  key: Type.String({
    minLength: 1,
    maxLength: 512,
    description: 'The secret; only its hash is looked up.',
  }),
});

export const whoami = operation({
  name: 'keys.whoami',
  summary: 'Show a key by its secret',
  description:
    'Shows everything except the secret, also for disabled and expired keys. The secret is neither logged nor audited.',
  permissions: ['api.<apiId>.read_key'],
  authorizesItself: true,
  request: Whose,
  response: KeyView,
  errors: ['NOT_FOUND'],
  example: { key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' },
  reads: true,
  async handle(call, services) {
    const { keys, view } = services;
    const place = await keys.lookUp(hashSecret(call.request.key));
    // The message must reveal nothing about the secret.
    if (place === undefined) throw absence(call.caller, 'key');
    call.note(place);
    const { apiId, keyId } = place;
    requireApi(call.caller, apiId, 'read_key', 'key');
    const key = await view.get(apiId, keyId);
    const [keyView] = key ? await withNames(services, [key]) : [];
    if (!keyView) throw await recordNotFound(keys, apiId, keyId);
    return keyView;
  },
});
