import type { Command } from 'commander';
import type { ChangeStatus } from '../../core/propagation.ts';
import type { Api } from '../../redis/apis.ts';
import { whole } from '../arguments.ts';
import { collect } from '../pages.ts';
import type { Session } from '../session.ts';
import { list, table, time } from '../terminal/output.ts';
import { confirm, printChange, waitOption } from '../terminal/print-change.ts';

/** `keyfence apis …` */
export function apiCommands(program: Command, session: Session): void {
  const apis = program.command('apis').description('APIs: what keys are for');

  apis
    .command('create <name>')
    .description('make an API')
    .option('--id <apiId>', 'its id; otherwise one is made')
    .action(async (name: string, { id }) => {
      const client = await session.controlPlane();
      const api = await client.call<{ apiId: string; name: string }>('apis.createApi', { name, apiId: id });
      session.print(api, () => list({ ...api }));
    });

  apis
    .command('get <apiId>')
    .description('show an API')
    .action(async (apiId: string) => {
      const api = await (await session.controlPlane()).call<Api>('apis.getApi', { apiId });
      session.print(api, () => list({ ...api, createdAt: time(api.createdAt) }));
    });

  apis
    .command('list')
    .description('list the APIs that the root key may read')
    .option('--limit <apis>', 'how many at most', whole(1, 1_000_000), 100)
    .option('--cursor <cursor>', 'go on after an earlier listing')
    .action(async ({ limit, cursor: from }) => {
      const client = await session.controlPlane();
      const { items, cursor } = await collect<Api>(client, 'apis.listApis', { cursor: from }, 'apis', limit);
      session.print({ apis: items, ...(cursor ? { cursor } : {}) }, () =>
        table(
          items.map(({ id, name, createdAt }) => [id, time(createdAt), name]),
          ['apiId', 'created', 'name'],
        ),
      );
      if (cursor) session.note(`More: --cursor ${cursor}`);
    });

  apis
    .command('delete <apiId>')
    .description('delete an API and all its keys')
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (apiId: string, { yes, wait }) => {
      await confirm(`delete ${apiId} and all its keys`, yes === true);
      const waitMs = wait === undefined ? undefined : wait * 1000;
      const client = await session.controlPlane();
      const answer = await client.call<{ propagation: ChangeStatus }>('apis.deleteApi', { apiId, waitMs });
      printChange(session, `deleted ${apiId}`, answer);
    });
}
