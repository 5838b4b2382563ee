import { Type } from 'typebox';
import { hashSecret } from '#shared/contract/key-format.ts';
import { nothingThere, recordNotFound, requireApi } from '../authorization.ts';
import { operation } from '../operation.ts';
import { Fields } from '../request-parts.ts';
import { joined, ShownKey } from './key.ts';

export const whoami = operation({
  name: 'keys.whoami',
  summary: 'Look at a key by its secret',
  description:
    'Shows all but its secret, of a disabled or expired key too. The secret is neither logged nor audited.',
  permissions: ['api.<apiId>.read_key'],
  authorizesItself: true,
  request: Fields({
    key: Type.String({
      minLength: 1,
      maxLength: 512,
      description: 'The secret; only its hash is looked up.',
    }),
  }),
  response: ShownKey,
  errors: ['NOT_FOUND'],
  example: { key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' },
  reads: true,
  async handle(call, services) {
    const { keys, view } = services;
    const found = await keys.find(hashSecret(call.request.key));
    // No message tells anything of the secret.
    if (found === undefined) throw nothingThere(call.caller, 'key');
    call.note(found);
    const { apiId, keyId } = found;
    requireApi(call.caller, apiId, 'read_key', 'key');
    const key = await view.get(apiId, keyId);
    const [shown] = key ? await joined(services, [key]) : [];
    if (!shown) throw await recordNotFound(keys, apiId, keyId);
    return shown;
  },
});
