import type { Command } from 'commander';
import type { Role } from '../../redis/shared-log/roles.ts';
import type { ChangeStatus } from '../../writer/writer.ts';
import { names } from '../arguments.ts';
import type { Session } from '../session.ts';
import { list, table } from '../terminal/output.ts';
import { confirm, printChange, waitOption } from '../terminal/print-change.ts';

type Change = { propagation: ChangeStatus };

/** Adds `keyfence roles …`. */
export function roleCommands(program: Command, session: Session): void {
  const roles = program.command('roles').description('roles: lists of permissions that many keys share');

  roles
    .command('create <name>')
    .description('create a role')
    .option('--description <text>', 'what it is for')
    .option('--permissions <slugs>', 'permissions of the role, such as files.read,files.write', names)
    .action(async (name: string, fields: object) => {
      const role = await session.call<{ roleId: string }>('permissions.createRole', { name, ...fields });
      session.print(role, () => list({ ...role }));
    });

  roles
    .command('list')
    .description('list all roles with their permissions')
    .action(async () => {
      const roles = await session.call<Role[]>('permissions.listRoles');
      session.print(roles, () =>
        table(roles, {
          roleId: ({ id }) => id,
          name: ({ name }) => name,
          permissions: ({ permissions }) => permissions.map(({ name }) => name).join(' '),
          description: ({ description }) => description,
        }),
      );
    });

  roles
    .command('set <roleId> <slugs>')
    .description(
      'replace the permissions of a role; when this returns, no verifier uses the old permissions any more',
    )
    .addOption(waitOption())
    .action(async (roleId: string, slugs: string, { wait }) => {
      const input = { roleId, permissions: names(slugs), ...waitMs(wait) };
      printChange(
        session,
        `changed ${roleId}`,
        await session.call<Change>('permissions.setRolePermissions', input),
      );
    });

  roles
    .command('delete <roleId>')
    .description('delete a role; it then grants nothing to any key')
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (roleId: string, { yes, wait }) => {
      await confirm(`delete ${roleId}`, yes === true);
      const input = { roleId, ...waitMs(wait) };
      printChange(session, `deleted ${roleId}`, await session.call<Change>('permissions.deleteRole', input));
    });
}

const waitMs = (seconds: number | undefined) => (seconds === undefined ? {} : { waitMs: seconds * 1000 });
