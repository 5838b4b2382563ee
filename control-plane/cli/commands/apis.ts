import { type Command, Option } from 'commander';
import type { Api } from '../../redis/apis.ts';
import type { ChangeStatus } from '../../writer/writer.ts';
import { whole } from '../arguments.ts';
import { CliError } from '../exit.ts';
import type { Session } from '../session.ts';
import { list, time } from '../terminal/output.ts';
import { confirm, printChange, waitOption } from '../terminal/print-change.ts';
import { addPageOptions, printListing } from '../terminal/print-listing.ts';
import { printUsage } from './usage.ts';

const DEFAULT_PREFIX = ['--default-prefix <prefix>', 'prefix of keys that are created without one'] as const;
const DEFAULT_BYTES = [
  '--default-bytes <bytes>',
  'random bytes in keys that are created without a length, 16 to 255',
  whole(16, 255),
] as const;

/** Adds `keyfence apis …`. */
export function apiCommands(program: Command, session: Session): void {
  const apis = program.command('apis').description('APIs: groups of keys');

  apis
    .command('create <name>')
    .description('create an API')
    .option('--id <apiId>', 'id of the API; default: a random one')
    .option(...DEFAULT_PREFIX)
    .option(...DEFAULT_BYTES)
    .action(async (name: string, { id, ...defaults }) => {
      const input = { name, apiId: id, ...defaults };
      const api = await session.call<{ apiId: string; name: string }>('apis.createApi', input);
      session.print(api, () => list({ ...api }));
    });

  apis
    .command('update <apiId>')
    .description('change the name of an API and the defaults of its new keys')
    .option('--name <name>', 'a name for people')
    .option(...DEFAULT_PREFIX)
    .option(...DEFAULT_BYTES)
    .addOption(new Option('--clear <field...>', 'clear a field').choices(['defaultPrefix', 'defaultBytes']))
    .action(async (apiId: string, { clear = [], ...fields }) => {
      const patch = { ...fields, ...Object.fromEntries(clear.map((field: string) => [field, null])) };
      if (Object.keys(patch).length === 0)
        throw new CliError('USAGE', 'nothing to change: give at least one field');
      const response = await session.call<{ apiId: string }>('apis.updateApi', { apiId, ...patch });
      session.print(response, () => `updated ${apiId}`);
    });

  addReading(apis, session);
  addDelete(apis, session);
}

function addReading(apis: Command, session: Session): void {
  apis
    .command('get <apiId>')
    .description('show an API')
    .action(async (apiId: string) => {
      const api = await session.call<Api>('apis.getApi', { apiId });
      session.print(api, () => list({ ...api, createdAt: time(api.createdAt) }));
    });

  addPageOptions(apis.command('list').description('list the APIs that the root key may read'), 'apis').action(
    (options) =>
      printListing<Api>(session, 'apis.listApis', 'apis', options, {
        apiId: ({ id }) => id,
        created: ({ createdAt }) => time(createdAt),
        name: ({ name }) => name,
      }),
  );

  apis
    .command('usage <apiId>')
    .description('how often keys of an API were verified, per day, or by the tags of verifications')
    .addOption(new Option('--hourly', 'per hour, as far back as counts are kept').conflicts(['tag', 'byTag']))
    .addOption(new Option('--tag <tag>', 'only with this tag').conflicts('byTag'))
    .option('--by-tag', 'by tag, over all days whose counts are kept')
    .action((apiId: string, { hourly, tag, byTag }) =>
      printUsage(session, 'apis.getVerifications', {
        ...{ apiId, tag, granularity: hourly ? 'hour' : 'day' },
        ...(byTag ? { groupBy: 'tag' } : {}),
      }),
    );
}

function addDelete(apis: Command, session: Session): void {
  apis
    .command('delete <apiId>')
    .description('delete an API and all its keys')
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (apiId: string, { yes, wait }) => {
      await confirm(`delete ${apiId} and all its keys`, yes === true);
      const waitMs = wait === undefined ? undefined : wait * 1000;
      const response = await session.call<{ propagation: ChangeStatus }>('apis.deleteApi', { apiId, waitMs });
      printChange(session, `deleted ${apiId}`, response);
    });
}
