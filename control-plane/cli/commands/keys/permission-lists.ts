import { names } from '../../arguments.ts';
import { CliError } from '../../exit.ts';
import type { Session } from '../../session.ts';

/**
 * Maps the words that users type (add, set, remove) to operations, for the permissions and for the roles of a
 * key.
 */
const OPERATIONS: Readonly<Record<string, Readonly<Record<ListName, string>>>> = {
  add: { permissions: 'keys.addPermissions', roles: 'keys.addRoles' },
  set: { permissions: 'keys.setPermissions', roles: 'keys.setRoles' },
  remove: { permissions: 'keys.removePermissions', roles: 'keys.removeRoles' },
};

/** A list of a key. */
export type ListName = 'permissions' | 'roles';

/** Changes the permissions or the roles of a key. @param text the values, separated by commas */
export async function changeList(
  session: Session,
  listName: ListName,
  keyId: string,
  name: string,
  text: string,
): Promise<void> {
  const operations = Object.hasOwn(OPERATIONS, name) ? OPERATIONS[name] : undefined;
  if (!operations)
    throw new CliError('USAGE', `operation: give one of ${Object.keys(OPERATIONS).join(', ')}`);
  const values = names(text);
  if (values.length === 0 && name !== 'set') throw new CliError('USAGE', `${listName}: give at least one`);
  const response = await session.call<object>(operations[listName], { keyId, [listName]: values });
  session.print(response, () => `${keyId}: changed its ${listName}`);
}
