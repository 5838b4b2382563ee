import { names } from '../../arguments.ts';
import { CliError } from '../../exit.ts';
import type { Session } from '../../session.ts';

/** Operations by what people call them, on the permissions of a key and on its roles. */
const OPERATIONS: Readonly<Record<string, Readonly<Record<Listed, string>>>> = {
  add: { permissions: 'keys.addPermissions', roles: 'keys.addRoles' },
  set: { permissions: 'keys.setPermissions', roles: 'keys.setRoles' },
  remove: { permissions: 'keys.removePermissions', roles: 'keys.removeRoles' },
};

/** A list that a key has. */
export type Listed = 'permissions' | 'roles';

/** Changes the permissions or the roles of a key. @param given with commas between */
export async function changeListed(
  session: Session,
  listed: Listed,
  keyId: string,
  name: string,
  given: string,
): Promise<void> {
  const operations = Object.hasOwn(OPERATIONS, name) ? OPERATIONS[name] : undefined;
  if (!operations)
    throw new CliError('USAGE', `operation: give one of ${Object.keys(OPERATIONS).join(', ')}`);
  const all = names(given);
  if (all.length === 0 && name !== 'set') throw new CliError('USAGE', `${listed}: none were given`);
  const answer = await session.call<object>(operations[listed], { keyId, [listed]: all });
  session.print(answer, () => `${keyId}: changed its ${listed}`);
}
