import type { Command } from 'commander';
import { Option } from 'commander';
import type { Key } from '../../../redis/keys/key-view.ts';
import type { ChangeStatus } from '../../../writer/writer.ts';
import { whole } from '../../arguments.ts';
import { CliError } from '../../exit.ts';
import type { Session } from '../../session.ts';
import { list, time } from '../../terminal/output.ts';
import { printChange } from '../../terminal/print-change.ts';
import { addPageOptions, printListing } from '../../terminal/print-listing.ts';
import { canPrompt, promptSecret, readInput } from '../../terminal/prompt.ts';
import { printUsage } from '../usage.ts';
import { addChanges } from './changes.ts';
import { credits } from './credits.ts';
import { explainKey } from './explain.ts';
import { exportKeys } from './export.ts';
import { importKeys } from './import.ts';
import { addFieldOptions, showKey } from './key-fields.ts';
import { showRefusals } from './refusals.ts';
import { verifyKey } from './verify.ts';

type Change = { propagation: ChangeStatus };

/** The orders of a listing, as the interface names them. */
const ORDERS = ['createdAt', 'name', 'expires', 'lastUsedAt'].flatMap((field) => [field, `-${field}`]);

/** Adds `keyfence keys …`. */
export function keyCommands(program: Command, session: Session): void {
  const keys = program.command('keys').description('keys: who may call your APIs');
  addCreate(keys, session);
  addGet(keys, session);
  addList(keys, session);
  addChanges(keys, session);
  addInspection(keys, session);
  addTransfer(keys, session);
}

function addCreate(keys: Command, session: Session): void {
  addFieldOptions(
    keys
      .command('create <apiId>')
      .description('create a key and show its secret; the secret is never shown again'),
  )
    .option('--prefix <prefix>', 'prefix of the key, before an underscore')
    .option('--byte-length <bytes>', 'random bytes in the key, 16 to 255', whole(16, 255))
    .option('--disabled', 'refuse the key until it is enabled')
    .action(async (apiId: string, { disabled, ...fields }) => {
      const input = { apiId, ...fields, ...(disabled ? { enabled: false } : {}) };
      const key = await session.call<{ keyId: string; key: string }>('keys.createKey', input);
      session.print(key, () => list({ keyId: key.keyId, key: key.key }));
      session.note('The key is not stored anywhere and cannot be shown again.');
    });
}

function addGet(keys: Command, session: Session): void {
  keys
    .command('get <keyId>')
    .description('show a key, without its secret')
    .action(async (keyId: string) => {
      const key = await session.call<Key & { lastUsedAt?: number }>('keys.getKey', { keyId });
      showKey(session, key);
    });

  keys
    .command('whoami')
    .description('show the key whose secret is in KEYFENCE_KEY, on standard input or typed at a prompt')
    .action(async () => {
      const key = await givenSecret(session);
      showKey(session, await session.call<Key>('keys.whoami', { key }));
    });
}

function addList(keys: Command, session: Session): void {
  const listing = keys
    .command('list <apiId>')
    .description('list the keys of an API')
    .addOption(new Option('--enabled', 'only enabled keys').conflicts('disabled'))
    .option('--disabled', 'only disabled keys')
    .option('--name <start>', 'only keys whose name begins with this')
    .option('--external-id <id>', 'only keys of this identity')
    .addOption(new Option('--newest', 'newest first; the same as --sort -createdAt').conflicts('sort'))
    .addOption(
      new Option(
        '--sort <order>',
        'order of the keys; -: the greatest value first. Default: createdAt',
      ).choices(ORDERS),
    );
  addPageOptions(listing, 'keys').action((apiId: string, { enabled, disabled, newest, ...filter }) => {
    const query = {
      apiId,
      ...filter,
      ...(enabled || disabled ? { enabled: enabled === true } : {}),
      ...(newest ? { sort: '-createdAt' } : {}),
    };
    return printListing<Key & { lastUsedAt?: number }>(session, 'apis.listKeys', 'keys', query, {
      keyId: ({ keyId }) => keyId,
      start: ({ start }) => start || undefined,
      state: ({ enabled }) => (enabled ? 'enabled' : 'disabled'),
      created: ({ createdAt }) => time(createdAt),
      expires: ({ expires }) => time(expires),
      lastUsed: ({ lastUsedAt }) => time(lastUsedAt),
      externalId: ({ externalId }) => externalId,
      name: ({ name }) => name,
    });
  });
}

function addInspection(keys: Command, session: Session): void {
  keys
    .command('usage <keyId>')
    .description('how often a key was verified, per day')
    .option('--hourly', 'per hour, as far back as counts are kept')
    .action(async (keyId: string, { hourly }) => {
      const query = { keyId, granularity: hourly ? 'hour' : 'day' };
      await printUsage(session, 'keys.getVerifications', query);
    });

  keys
    .command('propagation <keyId> <sequence>')
    .description('show whether an earlier change is complete; the change printed its sequence')
    .action(async (keyId: string, sequence: string) => {
      const response = await session.call<Change>('keys.getPropagation', { keyId, sequence });
      printChange(session, keyId, response);
    });

  keys
    .command('refusals [keyId]')
    .description('show why a key was refused lately, or which key the refusal of one request is about')
    .option('--request <requestId>', 'the id of the request, in place of a key')
    .action(async (keyId: string | undefined, { request: requestId }) =>
      showRefusals(session, keyId, requestId),
    );

  addQuestion(
    keys
      .command('explain [keyId]')
      .description(
        'show how each rule would judge a question about a key; without keyId, about the secret in KEYFENCE_KEY, on standard input or typed at a prompt',
      ),
  ).action(async (keyId: string | undefined, options) =>
    explainKey(session, keyId === undefined ? { key: await givenSecret(session) } : { keyId }, options),
  );

  addQuestion(
    keys
      .command('verify')
      .description('ask a verifier about the secret in KEYFENCE_KEY, on standard input or typed at a prompt'),
  ).action(async (options) => verifyKey(session, await givenSecret(session), options));
}

/** Adds the options of a question about a key. */
function addQuestion(command: Command): Command {
  return command
    .option('--api <apiId>', 'the API that the key must belong to')
    .option(
      '--cost <credits>',
      'credits that it costs, if the key has credits; default: 1; 0 checks without spending',
      credits,
    )
    .option('--client-ip <address>', 'address of the client, for a key with allowed addresses')
    .option(
      '--permissions <query>',
      'permissions that the key must have, such as "files.read AND files.write"',
    );
}

function addTransfer(keys: Command, session: Session): void {
  keys
    .command('import <apiId> <file>')
    .description('import keys that were made elsewhere, from NDJSON; - is standard input')
    .option(
      '--progress-file <file>',
      'file for the progress; default: the name of the imported file with .progress appended',
    )
    .action((apiId: string, file: string, { progressFile }) =>
      importKeys(session, apiId, file, progressFile),
    );

  keys
    .command('export <apiId>')
    .description('write all keys of an API as NDJSON, without their secrets')
    .option('--output <file>', 'file to write; an interrupted export continues. Default: standard output')
    .action((apiId: string, { output }) => exportKeys(session, apiId, output));
}

/** Reads a secret from KEYFENCE_KEY, a prompt or standard input. */
async function givenSecret(session: Session): Promise<string> {
  const secret = session.config.KEYFENCE_KEY;
  const key = secret || (canPrompt() ? await promptSecret('Key: ') : await readInput());
  if (!key) throw new CliError('USAGE', 'no key: set KEYFENCE_KEY_FILE, or give it on standard input');
  return key;
}
