import { setTimeout as rest } from 'node:timers/promises';
import type { History, Told, WriteRecord } from './history.ts';

const REST_MS_MAX = 600;

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
    // It is there, since nobody knew what became of a call, and all keys of the owner know of it.
    if (identityId === undefined && answer?.status === 409)
      answer = await admin('identities.updateIdentity', { externalId, ...fields });
    history.told(subject, write, answer);
    identityId = answer?.status === 200 ? String(answer.body['identityId'] ?? answer.body['id']) : undefined;
    isEnabled = state.enabled;
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
