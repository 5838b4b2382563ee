import { identityOf, keyIdExample, type NameStores, rolesOf } from '../../core/keys/key-answer.ts';
import type { Keys } from '../../core/keys/keys.ts';
import type { KeyView } from '../../core/records/key-view.ts';
import { Fields, KeyId } from '../../core/schema/primitives.ts';
import { recordNotFound } from '../../core/serve/authorization.ts';
import { operation } from '../../core/serve/operation.ts';
import type { Roles } from '../roles/roles.ts';
import { Allowances, allowancesOf } from './allowances.ts';
import { appliedLimits } from './applied-limits.ts';
import type { LimitView } from './limit-view.ts';

export const getAllowances = operation({
  name: 'keys.getAllowances',
  kind: 'query',
  id: 'getAllowances',
  summary: 'See how much a key has left',
  description:
    'Shows every limit that applies to the key, of its own, of its identity and of its roles, with its uses, and the credits.',
  permissions: ['api.<apiId>.read_key'],
  request: Fields({ keyId: KeyId }),
  response: Allowances,
  errors: ['NOT_FOUND'],
  example: { keyId: keyIdExample },
  async handle(
    { apiId, request: { keyId } },
    needs: Omit<NameStores, 'roles'> & { roles: Roles; keys: Keys; view: KeyView; limits: LimitView },
  ) {
    const { keys, view, limits, clock } = needs;
    const key = await view.get(apiId, keyId);
    if (!key) throw await recordNotFound(keys, apiId, keyId);
    const identity = await identityOf(key, needs);
    const roles = await rolesOf(key, identity, needs);
    const ownerId = await limits.ownerOf(apiId, keyId);
    const isOwn = key.remaining !== undefined;
    return allowancesOf(
      appliedLimits({ key: { ...key, ownerId }, identity, roles }),
      isOwn ? key : (identity?.credits ?? {}),
      isOwn ? 'key' : 'identity',
      { limits, nowMs: clock.wallMs() },
    );
  },
});
