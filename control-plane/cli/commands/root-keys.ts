import type { Command } from 'commander';
import { personName } from '../../core/person.ts';
import type { RootKey } from '../../redis/callers/root-keys.ts';
import type { ListedSession } from '../../redis/callers/sessions.ts';
import type { ChangeStatus } from '../../writer/writer.ts';
import type { Session } from '../session.ts';
import { count, list, table, time } from '../terminal/output.ts';
import { confirm, printChange } from '../terminal/print-change.ts';
import { addPageOptions, printListing } from '../terminal/print-listing.ts';

/** Adds `keyfence root-keys …`. */
export function rootKeyCommands(program: Command, session: Session): void {
  const rootKeys = program.command('root-keys').description('root keys: who may manage Keyfence');

  rootKeys
    .command('create <name>')
    .description('create a root key and show its secret; the secret is never shown again')
    .requiredOption('--permission <permission...>', 'permissions: *, api.<apiId|*>.<action>, root.*.<action>')
    .action(async (name: string, { permission: permissions }) => {
      const input = { name, permissions };
      const rootKey = await session.call<{ rootKeyId: string; key: string }>('rootKeys.createRootKey', input);
      session.print(rootKey, () => list({ ...rootKey }));
      session.note('The root key is not stored anywhere and cannot be shown again.');
    });

  rootKeys
    .command('list')
    .description('list all root keys, except those of the configuration')
    .action(async () => {
      const response = await session.call<{ rootKeys: RootKey[] }>('rootKeys.listRootKeys');
      session.print(response, () =>
        table(response.rootKeys, {
          rootKeyId: ({ rootKeyId }) => rootKeyId,
          state: ({ enabled }) => (enabled ? 'enabled' : 'disabled'),
          created: ({ createdAt }) => time(createdAt),
          name: ({ name }) => name,
          permissions: ({ permissions }) => permissions.join(' '),
        }),
      );
    });

  addSessions(rootKeys, session);
  addDelete(rootKeys, session);

  for (const [name, enabled, help] of [
    ['enable', true, 'accept a root key again'],
    ['disable', false, 'refuse a root key from its next call on'],
  ] as const) {
    rootKeys
      .command(`${name} <rootKeyId>`)
      .description(help)
      .action(async (rootKeyId: string) => {
        const response = await session.call('rootKeys.updateRootKey', { rootKeyId, enabled });
        session.print(response, () => `${name}d ${rootKeyId}`);
      });
  }
}

function addDelete(rootKeys: Command, session: Session): void {
  rootKeys
    .command('delete <rootKeyId>')
    .description('delete a root key, and all root keys that were created with it, for good')
    .option('--yes', 'do not ask')
    .action(async (rootKeyId: string, { yes }) => {
      await confirm(`delete ${rootKeyId} and all root keys that descend from it`, yes === true);
      const response = await session.call<{ deletedRootKeys: number; propagation: ChangeStatus }>(
        'rootKeys.deleteRootKey',
        { rootKeyId },
      );
      printChange(session, `deleted ${count(response.deletedRootKeys)} root keys`, response);
    });
}

function addSessions(rootKeys: Command, session: Session): void {
  addPageOptions(
    rootKeys.command('sessions').description('list who is signed in at the dashboard'),
    'sessions',
  ).action((options) =>
    printListing<ListedSession>(session, 'rootKeys.listSessions', 'sessions', options, {
      sessionId: ({ sessionId }) => sessionId,
      who: ({ rootKeyId, person }) => (person ? personName(person) : rootKeyId),
      from: ({ address }) => address,
      since: ({ createdAt }) => time(createdAt),
    }),
  );

  rootKeys
    .command('end-session <sessionId>')
    .description('sign somebody out of the dashboard; they can sign in again')
    .action(async (sessionId: string) => {
      const response = await session.call('rootKeys.endSession', { sessionId });
      session.print(response, () => `ended ${sessionId}`);
    });
}
