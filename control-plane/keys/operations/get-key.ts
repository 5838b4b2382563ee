import { recordNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, KeyId } from '../../serve/request-parts.ts';
import { keyIdExample, lastUsed, UsedKey, withNames } from '../key-answer.ts';

export const getKey = operation({
  name: 'keys.getKey',
  summary: 'Show a key',
  description: 'Shows everything except the secret.',
  permissions: ['api.<apiId>.read_key'],
  request: Fields({ keyId: KeyId }),
  response: UsedKey,
  errors: ['NOT_FOUND'],
  example: { keyId: keyIdExample },
  async handle({ apiId, request: { keyId } }, services) {
    const { keys, view, usage } = services;
    const [key, lastUsedAt] = await Promise.all([view.get(apiId, keyId), usage.lastUsedAt(apiId, keyId)]);
    const [keyView] = key ? await withNames(services, [{ ...key, ...lastUsed(lastUsedAt) }]) : [];
    if (!keyView) throw await recordNotFound(keys, apiId, keyId);
    return keyView;
  },
});
