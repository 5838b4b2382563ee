import { Type } from 'typebox';
import { recordNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, KeyId } from '../../serve/request-parts.ts';
import { List } from '../../serve/schemas/field-schemas.ts';
import { keyIdExample } from '../key-answer.ts';
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
