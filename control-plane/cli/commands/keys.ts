import type { Command } from 'commander';
import { Option } from 'commander';
import { CLEARABLE } from '#shared/key-record.ts';
import type { ChangeStatus } from '../../core/propagation.ts';
import type { Key } from '../../redis/key-view.ts';
import { span, whole } from '../arguments.ts';
import { CliError } from '../exit.ts';
import type { Session } from '../session.ts';
import { list, time } from '../terminal/output.ts';
import { confirm, printChange, waitOption } from '../terminal/print-change.ts';
import { paged, printListing } from '../terminal/print-listing.ts';
import { askSecret, canAsk, readInput } from '../terminal/prompt.ts';
import { changeCredits, credits } from './credits.ts';
import { exportKeys } from './export.ts';
import { importKeys } from './import.ts';
import { described, showKey } from './key-fields.ts';
import { changeMany, isMany, manyOptions } from './many-keys.ts';
import { changeListed } from './permissions.ts';
import { rerollKey } from './reroll.ts';
import { printUsage } from './usage.ts';
import { verifyKey } from './verify.ts';

type Change = { propagation: ChangeStatus };

/** `keyfence keys …` */
export function keyCommands(program: Command, session: Session): void {
  const keys = program.command('keys').description('keys: who may call your APIs');

  described(keys.command('create <apiId>').description('make a key and show it, only this once'))
    .option('--prefix <prefix>', 'beginning of the key, before an underscore')
    .option('--byte-length <bytes>', 'random bytes in the key, 16 to 255', whole(16, 255))
    .option('--disabled', 'refused until it is enabled')
    .action(async (apiId: string, { disabled, ...fields }) => {
      const input = { apiId, ...fields, ...(disabled ? { enabled: false } : {}) };
      const created = await session.call<{ keyId: string; key: string }>('keys.createKey', input);
      session.print(created, () => list({ keyId: created.keyId, key: created.key }));
      session.note('The key is not kept anywhere and cannot be shown again.');
    });

  keys
    .command('get <keyId>')
    .description('show a key; never its secret')
    .action(async (keyId: string) => {
      const key = await session.call<Key & { lastUsedAt?: number }>('keys.getKey', { keyId });
      showKey(session, key);
    });

  keys
    .command('whoami')
    .description('show the key whose secret is in KEYFENCE_KEY, on standard input or typed at a prompt')
    .action(async () => {
      const key = await secretGiven();
      showKey(session, await session.call<Key>('keys.whoami', { key }));
    });

  const listing = keys
    .command('list <apiId>')
    .description('list the keys of an API')
    .addOption(new Option('--enabled', 'only those that are enabled').conflicts('disabled'))
    .option('--disabled', 'only those that are disabled')
    .option('--name <start>', 'only those whose name begins so')
    .option('--external-id <id>', 'only those of one owner')
    .option('--newest', 'the newest first; otherwise the oldest');
  paged(listing, 'keys').action((apiId: string, { enabled, disabled, newest, ...filter }) => {
    const query = {
      apiId,
      ...filter,
      ...(enabled || disabled ? { enabled: enabled === true } : {}),
      ...(newest ? { sort: '-createdAt' } : {}),
    };
    return printListing<Key>(session, 'apis.listKeys', 'keys', query, {
      keyId: ({ keyId }) => keyId,
      start: ({ start }) => start || undefined,
      state: ({ enabled }) => (enabled ? 'enabled' : 'disabled'),
      created: ({ createdAt }) => time(createdAt),
      expires: ({ expires }) => time(expires),
      externalId: ({ externalId }) => externalId,
      name: ({ name }) => name,
    });
  });

  described(keys.command('update <keyId>').description('change the fields of a key'))
    .addOption(new Option('--clear <field...>', 'clear a field').choices([...CLEARABLE, ...CREDITS]))
    .addOption(waitOption())
    .action(async (keyId: string, { clear = [], wait, ...fields }) => {
      const patch = { ...fields, ...Object.fromEntries(clear.map((field: string) => [field, null])) };
      if (Object.keys(patch).length === 0) throw new CliError('USAGE', 'nothing to change was given');
      await change('keys.updateKey', `updated ${keyId}`, { keyId, ...patch }, wait);
    });

  for (const [name, enabled, what] of [
    ['enable', true, 'accept a key again, or many'],
    ['disable', false, 'refuse a key, or many; when this returns, no verifier accepts them any more'],
  ] as const) {
    manyOptions(keys.command(`${name} [keyId]`).description(what))
      .addOption(waitOption())
      .action((keyId: string | undefined, { wait, ...chosen }) => {
        if (isMany(keyId, chosen)) {
          const change = { operation: 'keys.updateKeys', fields: { enabled }, done: `${name}d` } as const;
          return changeMany(session, chosen, change, msOf(wait));
        }
        return change('keys.updateKey', `${name}d ${keyId}`, { keyId, enabled }, wait);
      });
  }

  manyOptions(
    keys
      .command('delete [keyId]')
      .description('delete a key, or many; when this returns, no verifier accepts them any more'),
  )
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (keyId: string | undefined, { yes, wait, ...chosen }) => {
      const isOfMany = isMany(keyId, chosen);
      const { api, owner, file } = chosen;
      const many = owner === undefined ? `the keys in ${file}` : `all keys of ${owner} in ${api}`;
      await confirm(`delete ${isOfMany ? many : keyId}`, yes === true);
      if (isOfMany) {
        const change = { operation: 'keys.deleteKeys', fields: {}, done: 'deleted' } as const;
        return changeMany(session, chosen, change, msOf(wait));
      }
      return change('keys.deleteKey', `deleted ${keyId}`, { keyId }, wait);
    });

  keys
    .command('reroll <keyId>')
    .description('make a key that takes the place of this one, and show it, only this once; this one ends')
    .requiredOption(
      '--expiration <time>',
      'for how long the old key is still accepted: 0, 90m, 12h, 30d',
      span,
    )
    .addOption(waitOption())
    .action((keyId: string, { expiration, wait }) => rerollKey(session, keyId, expiration, msOf(wait)));

  keys
    .command('credits <keyId> <operation> <credits>')
    .description(
      'set, increment or decrement the credits of a key; when this returns, no verifier goes by those from before',
    )
    .addOption(waitOption())
    .action((keyId: string, operation: string, given: string, { wait }) =>
      changeCredits(session, keyId, operation, given, msOf(wait)),
    );

  keys
    .command('permissions <keyId> <operation> [slugs]')
    .description(
      'add, set or remove what a key may do, such as files.read,files.write; when this returns, no verifier goes by what was before',
    )
    .action((keyId: string, operation: string, slugs = '') =>
      changeListed(session, 'permissions', keyId, operation, slugs),
    );

  keys
    .command('roles <keyId> <operation> [names]')
    .description(
      'add, set or remove roles of a key, such as editor,billing; when this returns, no verifier goes by what was before',
    )
    .action((keyId: string, operation: string, names = '') =>
      changeListed(session, 'roles', keyId, operation, names),
    );

  keys
    .command('usage <keyId>')
    .description('how often a key was verified, each day')
    .option('--hourly', 'each hour, as far back as is kept')
    .action(async (keyId: string, { hourly }) => {
      const query = { keyId, granularity: hourly ? 'hour' : 'day' };
      await printUsage(session, 'keys.getVerifications', query);
    });

  keys
    .command('propagation <keyId> <sequence>')
    .description('how far an earlier change has come')
    .action(async (keyId: string, sequence: string) => {
      const answer = await session.call<Change>('keys.getPropagation', { keyId, sequence });
      printChange(session, keyId, answer);
    });

  keys
    .command('verify')
    .description('ask a verifier about a key from KEYFENCE_KEY, standard input or a prompt')
    .option('--api <apiId>', 'the API that the key must belong to')
    .option('--cost <credits>', 'what it costs a key with credits, 1 by default; 0 only looks', credits)
    .option(
      '--permissions <query>',
      'what the key must be allowed to do, such as "files.read AND files.write"',
    )
    .action(async (asked) => verifyKey(session, await secretGiven(), asked));

  keys
    .command('import <apiId> <file>')
    .description('take in keys that were made elsewhere, from NDJSON; - is standard input')
    .option(
      '--progress-file <file>',
      'file for the progress; default: the imported file with .progress behind its name',
    )
    .action((apiId: string, file: string, { progressFile }) =>
      importKeys(session, apiId, file, progressFile),
    );

  keys
    .command('export <apiId>')
    .description('write all keys of an API as NDJSON, without their secrets')
    .option('--output <file>', 'file to write; an interrupted export goes on. Default: standard output')
    .action((apiId: string, { output }) => exportKeys(session, apiId, output));

  async function secretGiven(): Promise<string> {
    const given = session.config.KEYFENCE_KEY;
    const key = given || (canAsk() ? await askSecret('Key: ') : await readInput());
    if (!key) throw new CliError('USAGE', 'no key: set KEYFENCE_KEY_FILE, or give it on standard input');
    return key;
  }

  async function change(operation: string, what: string, input: object, waitS: number | undefined) {
    printChange(session, what, await session.call<Change>(operation, { ...input, waitMs: msOf(waitS) }));
  }
}

const msOf = (seconds: number | undefined) => (seconds === undefined ? undefined : seconds * 1000);

const CREDITS = ['remaining', 'refill'];
