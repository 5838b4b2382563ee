import { setTimeout as rest } from 'node:timers/promises';
import { generateKey, hashSecret } from '../../../shared/rules/key-format.ts';
import type { History, Told, WriteRecord } from './history.ts';

const REST_MS_MAX = 600;
/** Keys that a customer gets in a run, and the longest time from one to the next. */
const NEWCOMERS_MAX = 30;
const NEWCOMER_REST_MS_MAX = 4000;

interface Key {
  readonly keyId: string;
  readonly key: string;
}

/** Asks the control plane; undefined where there was no answer at all. */
type Admin = (operation: string, body: object) => Promise<Told | undefined>;

interface Parts {
  readonly admin: Admin;
  readonly history: History;
  readonly random: () => number;
}

/**
 * A customer whose identity comes, changes and goes, while their key is asked for. What an answer without an identity goes by is
 * the latest going: deletions name the version that they are for, so none takes effect after a later change.
 */
export async function comeAndGo(
  { admin, history, random }: Parts,
  subject: string,
  externalId: string,
  running: { now: boolean },
): Promise<void> {
  let identityId: string | undefined;
  let isEnabled = false;
  while (running.now) {
    await rest(random() * REST_MS_MAX);
    if (identityId !== undefined && isEnabled && random() < 0.4) {
      const write = history.begin(subject, { enabled: true, isAbsent: true });
      history.told(subject, write, await admin('identities.deleteIdentity', { identityId }));
      identityId = undefined;
      continue;
    }
    const state = { enabled: random() < 0.6 };
    const write = history.begin(subject, state);
    const fields = { enabled: state.enabled, meta: { version: write.version } };
    let answer =
      identityId === undefined
        ? await admin('identities.createIdentity', { externalId, ...fields })
        : await admin('identities.updateIdentity', { identityId, ...fields });
    // It is there, since nobody knew what became of a call.
    if (identityId === undefined && answer?.status === 409)
      answer = await admin('identities.updateIdentity', { externalId, ...fields });
    history.told(subject, write, answer);
    identityId = answer?.status === 200 ? String(answer.body['identityId'] ?? answer.body['id']) : undefined;
    isEnabled = state.enabled;
  }
}

/**
 * Keys that become those of a customer whose identity comes and goes: imported, given to them by a change, and made in the place of
 * one of theirs, in turn. From the answer on each goes by the identity.
 */
export async function welcome(
  { admin, history, random }: Parts,
  apiIds: readonly string[],
  externalId: string,
  guests: { add(key: Key): void },
  running: { now: boolean },
): Promise<void> {
  let last: Key | undefined;
  for (let made = 0; running.now && made < NEWCOMERS_MAX; made++) {
    await rest(random() * NEWCOMER_REST_MS_MAX);
    const apiId = apiIds[made % apiIds.length] ?? '';
    const way = made % 3;
    const key =
      way === 0 || last === undefined
        ? await imported(apiId)
        : await (way === 1 ? given(apiId) : inPlaceOf(last.keyId));
    if (key === undefined) continue;
    history.created(key.keyId, 'key', { enabled: true });
    guests.add(key);
    last = key;
  }

  async function imported(apiId: string): Promise<Key | undefined> {
    const key = generateKey(16);
    const record = { sha256: hashSecret(key), foreign: false, externalId, meta: { version: 0 } };
    const answer = await admin('keys.importKeys', { apiId, keys: [record] });
    const [result] = (answer?.body['results'] ?? []) as { keyId?: string }[];
    return answer?.status === 200 && result?.keyId ? { keyId: result.keyId, key } : undefined;
  }

  async function given(apiId: string): Promise<Key | undefined> {
    const created = await admin('keys.createKey', { apiId, meta: { version: 0 } });
    if (created?.status !== 200) return undefined;
    const { keyId, key } = created.body as unknown as Key;
    const answer = await admin('keys.updateKey', { keyId, externalId });
    const { state } = (answer?.body['propagation'] ?? {}) as { state?: string };
    return answer?.status === 200 && state === 'complete' ? { keyId, key } : undefined;
  }

  async function inPlaceOf(keyId: string): Promise<Key | undefined> {
    const answer = await admin('keys.rerollKey', { keyId, expiration: 86_400_000 });
    return answer?.status === 200 ? (answer.body as unknown as Key) : undefined;
  }
}

/**
 * A key that gets a new role and loses it, by a change of the key or because the role is deleted. Changes of a key's roles name the
 * version that they are for, so a call is sent again until it is answered: none takes effect after that.
 */
export async function giveAndTake(
  { admin, history, random }: Parts,
  subject: string,
  keyId: string,
  permissionsOf: (version: number) => readonly string[],
  running: { now: boolean },
): Promise<void> {
  while (running.now) {
    await rest(random() * REST_MS_MAX);
    const given = history.begin(subject, { enabled: true });
    const name = `guest-${given.version}`;
    const made = await admin('permissions.createRole', { name, permissions: permissionsOf(given.version) });
    const roleId = made?.status === 200 ? String(made.body['roleId']) : undefined;
    if (roleId === undefined) {
      // No key has it.
      history.ended(subject, given, 'refused');
      continue;
    }
    const isGiven = await admin('keys.addRoles', { keyId, roles: [{ id: roleId }] });
    await end(given, isGiven, [{ id: roleId }]);
    await rest(random() * REST_MS_MAX);
    const taken = history.begin(subject, { enabled: false, isAbsent: true });
    const isTaken =
      random() < 0.5
        ? await admin('permissions.deleteRole', { roleId })
        : await admin('keys.removeRoles', { keyId, roles: [{ id: roleId }] });
    await end(taken, isTaken, []);
  }

  async function end(write: WriteRecord, first: Told | undefined, roles: readonly object[]) {
    let answer = first;
    for (; answer?.status !== 200 && running.now; await rest(50))
      answer = await admin('keys.setRoles', { keyId, roles });
    history.told(subject, write, answer);
  }
}
