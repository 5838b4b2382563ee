import type { Command } from 'commander';
import type { CataloguedPermission } from '../../redis/shared-log/permissions.ts';
import type { ChangeStatus } from '../../writer/writer.ts';
import type { Session } from '../session.ts';
import { list, table } from '../terminal/output.ts';
import { confirm, printChange, waitOption } from '../terminal/print-change.ts';

/** Adds `keyfence permissions …`. */
export function catalogueCommands(program: Command, session: Session): void {
  const permissions = program
    .command('permissions')
    .description('the catalogue of permissions: names and descriptions, for people');

  permissions
    .command('create <slug>')
    .description('add a permission to the catalogue')
    .option('--name <text>', 'its name for people, if it is not the slug')
    .option('--description <text>', 'what it is for')
    .action(async (slug: string, { name = slug, description }) => {
      const input = { name, slug, ...(description === undefined ? {} : { description }) };
      const permission = await session.call<{ permissionId: string }>('permissions.createPermission', input);
      session.print(permission, () => list({ ...permission }));
    });

  permissions
    .command('list')
    .description('list the catalogue')
    .action(async () => {
      const permissions = await session.call<CataloguedPermission[]>('permissions.listPermissions');
      session.print(permissions, () =>
        table(permissions, {
          permission: ({ slug }) => slug,
          name: ({ name, slug }) => (name === slug ? undefined : name),
          description: ({ description }) => description,
        }),
      );
    });

  permissions
    .command('delete <slug>')
    .description(
      'delete a permission from the catalogue and from all roles; keys to which you gave it directly keep it',
    )
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (permissionId: string, { yes, wait }) => {
      await confirm(`delete ${permissionId}`, yes === true);
      const input = { permissionId, ...(wait === undefined ? {} : { waitMs: wait * 1000 }) };
      printChange(
        session,
        `deleted ${permissionId}`,
        await session.call<{ propagation: ChangeStatus }>('permissions.deletePermission', input),
      );
    });
}
