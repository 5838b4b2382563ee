import type { Command } from 'commander';
import { Option } from 'commander';
import { CLEARABLE } from '#shared/contract/key-record.ts';
import type { ChangeStatus } from '../../../writer/writer.ts';
import { span } from '../../arguments.ts';
import { CliError } from '../../exit.ts';
import type { Session } from '../../session.ts';
import { confirm, printChange, waitOption } from '../../terminal/print-change.ts';
import { changeCredits } from './credits.ts';
import { addFieldOptions } from './key-fields.ts';
import { changeMany, isMany, manyOptions } from './many-keys.ts';
import { changeList } from './permission-lists.ts';
import { rerollKey } from './reroll.ts';

type Change = { propagation: ChangeStatus };

/** Adds the commands of `keyfence keys …` that change existing keys. */
export function addChanges(keys: Command, session: Session): void {
  addUpdate(keys, session);
  addEnableAndDisable(keys, session);
  addDelete(keys, session);
  addRotation(keys, session);
}

function addUpdate(keys: Command, session: Session): void {
  addFieldOptions(keys.command('update <keyId>').description('change the fields of a key'))
    .addOption(new Option('--clear <field...>', 'clear a field').choices([...CLEARABLE, ...CREDITS]))
    .addOption(waitOption())
    .action(async (keyId: string, { clear = [], wait, ...fields }) => {
      const patch = { ...fields, ...Object.fromEntries(clear.map((field: string) => [field, null])) };
      if (Object.keys(patch).length === 0)
        throw new CliError('USAGE', 'nothing to change: give at least one field');
      await change(session, 'keys.updateKey', `updated ${keyId}`, { keyId, ...patch }, wait);
    });
}

function addEnableAndDisable(keys: Command, session: Session): void {
  for (const [name, enabled, help] of [
    ['enable', true, 'accept a key or many keys again'],
    ['disable', false, 'refuse a key or many keys; when this returns, no verifier accepts them any more'],
  ] as const) {
    manyOptions(keys.command(`${name} [keyId]`).description(help))
      .addOption(waitOption())
      .action((keyId: string | undefined, { wait, ...selection }) => {
        if (isMany(keyId, selection)) {
          const change = {
            operation: 'keys.updateKeys',
            fields: { enabled },
            pastTense: `${name}d`,
          } as const;
          return changeMany(session, selection, change, msOf(wait));
        }
        return change(session, 'keys.updateKey', `${name}d ${keyId}`, { keyId, enabled }, wait);
      });
  }
}

function addDelete(keys: Command, session: Session): void {
  manyOptions(
    keys
      .command('delete [keyId]')
      .description('delete a key or many keys; when this returns, no verifier accepts them any more'),
  )
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (keyId: string | undefined, { yes, wait, ...selection }) => {
      const isOfMany = isMany(keyId, selection);
      const { api, owner, file } = selection;
      const keysText = owner === undefined ? `the keys in ${file}` : `all keys of ${owner} in ${api}`;
      await confirm(`delete ${isOfMany ? keysText : keyId}`, yes === true);
      if (isOfMany) {
        const change = { operation: 'keys.deleteKeys', fields: {}, pastTense: 'deleted' } as const;
        return changeMany(session, selection, change, msOf(wait));
      }
      return change(session, 'keys.deleteKey', `deleted ${keyId}`, { keyId }, wait);
    });
}

function addRotation(keys: Command, session: Session): void {
  keys
    .command('reroll <keyId>')
    .description(
      'rotate a key: create a key that replaces it and show the new secret, which is never shown again; the old key stops working',
    )
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
      'set, increment or decrement the credits of a key; when this returns, no verifier uses the old credits any more',
    )
    .addOption(waitOption())
    .action((keyId: string, operation: string, amount: string, { wait }) =>
      changeCredits(session, keyId, operation, amount, msOf(wait)),
    );

  keys
    .command('permissions <keyId> <operation> [slugs]')
    .description(
      'add, set or remove permissions of a key, such as files.read,files.write; when this returns, no verifier uses the old permissions any more',
    )
    .action((keyId: string, operation: string, slugs = '') =>
      changeList(session, 'permissions', keyId, operation, slugs),
    );

  keys
    .command('roles <keyId> <operation> [names]')
    .description(
      'add, set or remove roles of a key, such as editor,billing; when this returns, no verifier uses the old roles any more',
    )
    .action((keyId: string, operation: string, names = '') =>
      changeList(session, 'roles', keyId, operation, names),
    );
}

async function change(
  session: Session,
  operation: string,
  subject: string,
  input: object,
  waitS: number | undefined,
) {
  printChange(session, subject, await session.call<Change>(operation, { ...input, waitMs: msOf(waitS) }));
}

const msOf = (seconds: number | undefined) => (seconds === undefined ? undefined : seconds * 1000);

const CREDITS = ['remaining', 'refill'];
