import { Type } from 'typebox';
import { type Clock, pause } from '#shared/process/clock.ts';
import type { LogEntry } from '#shared/protocol/log/change-log-port.ts';
import { KEY_FIELDS, storedFields } from '#shared/protocol/records/key-record.ts';
import { type ChangeWriter, isAtVerifiers, type Propagation } from '#shared/protocol/writer/writer.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { SLUGS_MAX, slugsOf } from '#shared/rules/slugs.ts';
import type { RoleNames } from '../../ports.ts';
import { PropagationResponse, WaitMs } from '../../schema/changes.ts';
import { Fields, Id, KeyId } from '../../schema/primitives.ts';
import { type GivenRole, GivenRoles, GivenSlugs, Permissions, slugsIn } from '../../schema/slugs.ts';
import { recordNotFound } from '../../serve/authorization.ts';
import type { Call } from '../../serve/call.ts';
import { operation } from '../../serve/operation.ts';
import type { Turns } from '../../serve/turns.ts';
import { keyIdExample } from '../key-answer.ts';
import type { Keys } from '../keys.ts';

/** Maximum number of attempts while other control planes change the same key first. */
const TRIES = 20;
/** Longest pause before another attempt. It is random: in step with another control plane, one would always come late. */
const PAUSE_MS_MAX = 10;

/** The needs of a change of a key's list. */
interface ListNeeds {
  readonly keys: Keys;
  readonly changeWriter: ChangeWriter;
  readonly clock: Clock;
  /** The turns of calls that change the lists of one key. */
  readonly listTurns: Turns;
}

/** A key's list after the change. */
interface ChangedList {
  readonly values: readonly string[];
  readonly propagation: Propagation;
}

/**
 * Changes a key's list, on the condition that the key has not changed in between; calls of one control plane take
 * turns until they have written. Rejects like `ChangeWriter.apply`.
 */
async function changeList(
  call: Call<{ readonly keyId: string; readonly waitMs?: number }>,
  { listTurns, ...needs }: ListNeeds,
  field: 'permissions' | 'roles',
  become: (present: readonly string[]) => readonly string[] | Promise<readonly string[]>,
): Promise<ChangedList> {
  const endTurn = await listTurns.take(call.request.keyId);
  if (!endTurn) throw unavailable('too many changes of the lists of this key are waiting; try again');
  try {
    return await changeInTurn(call, needs, field, become, endTurn);
  } finally {
    endTurn();
  }
}

async function changeInTurn(
  call: Call<{ readonly keyId: string; readonly waitMs?: number }>,
  { keys, changeWriter, clock }: Omit<ListNeeds, 'listTurns'>,
  field: 'permissions' | 'roles',
  become: (present: readonly string[]) => readonly string[] | Promise<readonly string[]>,
  onWritten: () => void,
): Promise<ChangedList> {
  const { apiId } = call;
  const { keyId, waitMs } = call.request;
  for (let tries = 1; ; tries++) {
    const present = await keys.listOf(apiId, keyId, field);
    if (!present) throw await recordNotFound(keys, apiId, keyId);
    const fields = storedFields({ [field]: await become(present.values) });
    const values = slugsOf(fields[KEY_FIELDS[field].letter] ?? '');
    if (values.length > SLUGS_MAX)
      throw new ApiError('BAD_REQUEST', `${field}: a key has at most ${SLUGS_MAX}`);
    const write = { apiId, operation: 'update', keyId, fields, condition: present.version } as const;
    const record = call.recordChange(fields);
    const written = (entry: LogEntry) => {
      onWritten();
      record(entry);
    };
    try {
      const propagation = await changeWriter.apply(write, waitMs, written);
      if (!propagation) throw await recordNotFound(keys, apiId, keyId);
      return { values, propagation };
    } catch (error) {
      const cameLate = error instanceof ApiError && error.code === 'CONFLICT';
      if (!cameLate || tries === TRIES) throw error;
      await pause(clock, PAUSE_MS_MAX * Math.random());
    }
  }
}

/**
 * Returns the list once its change is complete at the verifiers. The response has no room for a propagation, so the change
 * must be so before it is sent.
 */
function withDefaults({ values, propagation }: ChangedList): readonly string[] {
  if (isAtVerifiers(propagation)) return values;
  throw unavailable(
    `the change is written as ${propagation.sequence} but not complete yet; send the call again to wait for it`,
  );
}

/** Fields of a request about permissions of a key. */
const permissionsOfKey = (description: string) => ({
  keyId: KeyId,
  permissions: GivenSlugs({ description }),
});
const permissionsExample = { keyId: keyIdExample, permissions: [{ name: 'files.read' }] };

/** Permissions as responses list them. */
const permissionViews = (slugs: readonly string[]) => slugs.map((slug) => ({ id: slug, name: slug }));

export const addPermissions = operation({
  name: 'keys.addPermissions',
  kind: 'change',
  summary: 'Add permissions to a key',
  description:
    'Returns when the change is complete at the verifiers. If that takes longer than FENCE_WAIT_MS, returns 503: the change is written, and the call can be repeated. A permission is its own id and need not exist before.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(permissionsOfKey('Permissions to add.')),
  response: Permissions,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: permissionsExample,
  neverShed: true,
  async handle(call, needs: ListNeeds) {
    const additions = slugsIn(call.request.permissions);
    const change = (present: readonly string[]) => [...present, ...additions];
    return permissionViews(withDefaults(await changeList(call, needs, 'permissions', change)));
  },
});

export const setPermissions = operation({
  name: 'keys.setPermissions',
  kind: 'change',
  summary: 'Set all permissions of a key',
  description: 'Like addPermissions, but removes all others.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(permissionsOfKey('All permissions of the key after the change.')),
  response: Permissions,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: permissionsExample,
  neverShed: true,
  async handle(call, needs: ListNeeds) {
    const slugs = slugsIn(call.request.permissions);
    return permissionViews(withDefaults(await changeList(call, needs, 'permissions', () => slugs)));
  },
});

export const removePermissions = operation({
  name: 'keys.removePermissions',
  kind: 'change',
  summary: 'Remove permissions from a key',
  description:
    'Returns when the change is complete: no verifier anywhere accepts the key for what was removed. Permissions that the key does not have are ignored.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({ ...permissionsOfKey('Permissions to remove.'), waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: permissionsExample,
  neverShed: true,
  async handle(call, needs: ListNeeds) {
    const removals = new Set(slugsIn(call.request.permissions));
    const change = (present: readonly string[]) => present.filter((slug) => !removals.has(slug));
    const { propagation } = await changeList(call, needs, 'permissions', change);
    return { propagation };
  },
});

/** Fields of a request about roles of a key. */
const rolesOfKey = (description: string) => ({ keyId: KeyId, roles: GivenRoles({ description }) });
const rolesExample = { keyId: keyIdExample, roles: [{ name: 'editor' }] };

const KeyRoles = Type.Array(
  Type.Object({ id: Id('the role'), name: Type.String({ description: 'Its name.' }) }),
  { description: 'All roles that the key now has.' },
);

/** Changes a key's roles like `changeList`, given the ids of the roles that the call names. */
async function changeRoles(
  call: Call<{ readonly keyId: string; readonly roles: readonly GivenRole[]; readonly waitMs?: number }>,
  needs: ListNeeds & { roles: RoleNames },
  become: (present: readonly string[], ids: readonly string[]) => readonly string[],
) {
  const { roles } = needs;
  const namedIds = await roles.idsOf(call.request.roles);
  return changeList(call, needs, 'roles', (present) => {
    const ids = [...new Set(become(present, namedIds))];
    // Deleted roles do not count towards the limit.
    return ids.length > SLUGS_MAX ? roles.existing(ids) : ids;
  });
}

/** Roles as responses list them, without deleted roles. */
async function listedRoles({ roles }: { roles: RoleNames }, ids: readonly string[]) {
  const names = await roles.namesOf(ids);
  return ids.flatMap((id, i) => (names[i] === undefined ? [] : [{ id, name: names[i] }]));
}

export const addRoles = operation({
  name: 'keys.addRoles',
  kind: 'change',
  summary: 'Add roles to a key',
  description:
    'Returns when the change is complete at the verifiers. If that takes longer than FENCE_WAIT_MS, returns 503: the change is written, and the call can be repeated.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(rolesOfKey('Roles to add.')),
  response: KeyRoles,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
  neverShed: true,
  async handle(call, needs: ListNeeds & { roles: RoleNames }) {
    const change = await changeRoles(call, needs, (present, additions) => [...present, ...additions]);
    return listedRoles(needs, withDefaults(change));
  },
});

export const setRoles = operation({
  name: 'keys.setRoles',
  kind: 'change',
  summary: 'Set all roles of a key',
  description: 'Like addRoles, but removes all others.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(rolesOfKey('All roles of the key after the change.')),
  response: KeyRoles,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
  neverShed: true,
  async handle(call, needs: ListNeeds & { roles: RoleNames }) {
    const change = await changeRoles(call, needs, (_present, ids) => ids);
    return listedRoles(needs, withDefaults(change));
  },
});

export const removeRoles = operation({
  name: 'keys.removeRoles',
  kind: 'change',
  summary: 'Remove roles from a key',
  description:
    'Returns when the change is complete: no verifier anywhere accepts the key for what only these roles permitted. Roles that the key does not have are ignored.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({ ...rolesOfKey('Roles to remove.'), waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: rolesExample,
  neverShed: true,
  async handle(call, needs: ListNeeds & { roles: RoleNames }) {
    const rest = (present: readonly string[], removals: readonly string[]) =>
      present.filter((id) => !removals.includes(id));
    const { propagation } = await changeRoles(call, needs, rest);
    return { propagation };
  },
});

export const listOperations = [
  addPermissions,
  setPermissions,
  removePermissions,
  addRoles,
  setRoles,
  removeRoles,
] as const;
