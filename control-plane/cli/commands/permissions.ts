import { names } from '../arguments.ts';
import { CliError } from '../exit.ts';
import type { Session } from '../session.ts';

/** Operations by what people call them. */
const OPERATIONS: Readonly<Record<string, string>> = {
  add: 'keys.addPermissions',
  set: 'keys.setPermissions',
  remove: 'keys.removePermissions',
};

/** Changes what a key may do. @param slugs with commas between */
export async function changePermissions(
  session: Session,
  keyId: string,
  name: string,
  slugs: string,
): Promise<void> {
  const operation = Object.hasOwn(OPERATIONS, name) ? OPERATIONS[name] : undefined;
  if (!operation) throw new CliError('USAGE', `operation: give one of ${Object.keys(OPERATIONS).join(', ')}`);
  const permissions = names(slugs);
  if (permissions.length === 0 && name !== 'set') throw new CliError('USAGE', 'slugs: none were given');
  const answer = await session.call<object>(operation, { keyId, permissions });
  session.print(answer, () => `${keyId}: changed what it may do`);
}
