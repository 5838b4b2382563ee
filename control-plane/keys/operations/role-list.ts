import { Type } from 'typebox';
import { SLUGS_MAX } from '#shared/contract/slugs.ts';
import type { Call } from '../../serve/call.ts';
import { KeyId } from '../../serve/request-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { type GivenRole, GivenRoles } from '../../serve/schemas/role-schemas.ts';
import type { Services } from '../../services.ts';
import { keyIdExample } from '../key-answer.ts';
import { changeList } from './list-change.ts';

/** Fields of a request about roles of a key. */
export const rolesOfKey = (description: string) => ({ keyId: KeyId, roles: GivenRoles({ description }) });
export const rolesExample = { keyId: keyIdExample, roles: [{ name: 'editor' }] };

export const KeyRoles = Type.Array(
  Type.Object({ id: Id('the role'), name: Type.String({ description: 'Its name.' }) }),
  { description: 'All roles that the key now has.' },
);

/** Changes a key's roles like `changeList`, given the ids of the roles that the call names. */
export async function changeRoles(
  call: Call<{ readonly keyId: string; readonly roles: readonly GivenRole[]; readonly waitMs?: number }>,
  services: Services,
  become: (present: readonly string[], ids: readonly string[]) => readonly string[],
) {
  const { roles } = services;
  const namedIds = await roles.idsOf(call.request.roles);
  return changeList(call, services, 'roles', (present) => {
    const ids = [...new Set(become(present, namedIds))];
    // Deleted roles do not count towards the limit.
    return ids.length > SLUGS_MAX ? roles.existing(ids) : ids;
  });
}

/** Roles as responses list them, without deleted roles. */
export async function listedRoles({ roles }: Pick<Services, 'roles'>, ids: readonly string[]) {
  const names = await roles.namesOf(ids);
  return ids.flatMap((id, i) => (names[i] === undefined ? [] : [{ id, name: names[i] }]));
}
