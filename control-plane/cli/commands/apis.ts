import type { Command } from 'commander';
import type { ChangeStatus } from '../../core/propagation.ts';
import type { Api } from '../../redis/apis.ts';
import type { Session } from '../session.ts';
import { list, time } from '../terminal/output.ts';
import { confirm, printChange, waitOption } from '../terminal/print-change.ts';
import { paged, printListing } from '../terminal/print-listing.ts';

/** `keyfence apis …` */
export function apiCommands(program: Command, session: Session): void {
  const apis = program.command('apis').description('APIs: what keys are for');

  apis
    .command('create <name>')
    .description('make an API')
    .option('--id <apiId>', 'its id; otherwise one is made')
    .action(async (name: string, { id }) => {
      const api = await session.call<{ apiId: string; name: string }>('apis.createApi', { name, apiId: id });
      session.print(api, () => list({ ...api }));
    });

  apis
    .command('get <apiId>')
    .description('show an API')
    .action(async (apiId: string) => {
      const api = await session.call<Api>('apis.getApi', { apiId });
      session.print(api, () => list({ ...api, createdAt: time(api.createdAt) }));
    });

  paged(apis.command('list').description('list the APIs that the root key may read'), 'apis').action(
    (options) =>
      printListing<Api>(session, 'apis.listApis', 'apis', options, {
        apiId: ({ id }) => id,
        created: ({ createdAt }) => time(createdAt),
        name: ({ name }) => name,
      }),
  );

  apis
    .command('delete <apiId>')
    .description('delete an API and all its keys')
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (apiId: string, { yes, wait }) => {
      await confirm(`delete ${apiId} and all its keys`, yes === true);
      const waitMs = wait === undefined ? undefined : wait * 1000;
      const answer = await session.call<{ propagation: ChangeStatus }>('apis.deleteApi', { apiId, waitMs });
      printChange(session, `deleted ${apiId}`, answer);
    });
}
