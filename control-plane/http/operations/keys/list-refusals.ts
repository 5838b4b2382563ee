import { Type } from 'typebox';
import { List } from '../../../core/schemas/field-schemas.ts';
import { recordNotFound } from '../authorization.ts';
import { operation } from '../operation.ts';
import { Fields, KeyId } from '../request-parts.ts';
import { keyIdExample } from './key.ts';
import { KEPT, RefusalData } from './refusal.ts';

export const listRefusals = operation({
  name: 'keys.listRefusals',
  summary: 'See why a key was refused lately',
  description: `The latest first. ${KEPT}`,
  permissions: ['api.<apiId>.read_key'],
  request: Fields({ keyId: KeyId }),
  response: Type.Object({ refusals: List(RefusalData) }),
  errors: ['NOT_FOUND'],
  example: { keyId: keyIdExample },
  async handle({ apiId, request: { keyId } }, { keys, refusals }) {
    if ((await keys.lastSequence(apiId, keyId)) === undefined) throw await recordNotFound(keys, apiId, keyId);
    return { refusals: await refusals.list(apiId, keyId) };
  },
});
