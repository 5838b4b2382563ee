import type { Command } from 'commander';
import type { Api } from '../../redis/apis.ts';
import type { Identity } from '../../redis/shared-log/identities.ts';
import type { ChangeStatus } from '../../writer/writer.ts';
import { jsonList, jsonObject, names } from '../arguments.ts';
import type { Client } from '../client.ts';
import { CliError } from '../exit.ts';
import { pages } from '../pages.ts';
import type { Session } from '../session.ts';
import { json, list, printable } from '../terminal/output.ts';
import { confirm, printChange, waitOption } from '../terminal/print-change.ts';
import { addPageOptions, printListing } from '../terminal/print-listing.ts';

type Change = { propagation: ChangeStatus };
type CreatedIdentity = Change & { identityId: string };
const LIMITS = [
  '--ratelimits <json>',
  'limits that all keys of the identity share, JSON: [{"name":"tokens","limit":20000,"duration":3600000}]',
  jsonList,
] as const;
const META = ['--meta <json>', 'a JSON object that every verification returns', jsonObject] as const;

/** Adds `keyfence identities …`. */
export function identityCommands(program: Command, session: Session): void {
  const identities = program
    .command('identities')
    .description('identities: each covers all keys with its external id');

  addCreate(identities, session);
  addReading(identities, session);
  addUpdate(identities, session);
  addDisable(identities, session);
  addEnable(identities, session);
  addDelete(identities, session);
}

function addCreate(identities: Command, session: Session): void {
  identities
    .command('create <externalId>')
    .description(
      'create an identity for all keys with its external id; when this returns, every verifier knows it',
    )
    .option(...META)
    .option(...LIMITS)
    .option(
      '--api-ids <ids>',
      'the APIs in which the identity applies, such as billing,shop; default: all',
      names,
    )
    .addOption(waitOption())
    .option('--disabled', 'refuse all keys of the identity until it is enabled')
    .action(async (externalId: string, { disabled, wait, ...fields }) => {
      const input = { externalId, ...fields, ...(disabled ? { enabled: false } : {}), ...waitMs(wait) };
      const creation = await session.call<CreatedIdentity>('identities.createIdentity', input);
      printChange(session, `created ${creation.identityId}`, creation);
    });
}

function addReading(identities: Command, session: Session): void {
  identities
    .command('get <externalId>')
    .description('show an identity')
    .action(async (externalId: string) => {
      const identity = await session.call<Identity>('identities.getIdentity', { externalId });
      const { id, meta, ratelimits, apiIds, ...rest } = identity;
      session.print(identity, () =>
        list({
          ...{ identityId: id, ...rest, meta: json(meta), ratelimits: json(ratelimits) },
          apiIds: apiIds?.join(' '),
        }),
      );
    });

  addPageOptions(identities.command('list').description('list all identities'), 'identities').action(
    (options) =>
      printListing<Identity>(session, 'identities.listIdentities', 'identities', options, {
        identityId: ({ id }) => id,
        state: ({ enabled }) => (enabled ? 'enabled' : 'disabled'),
        externalId: ({ externalId }) => externalId,
      }),
  );
}

function addUpdate(identities: Command, session: Session): void {
  identities
    .command('update <externalId>')
    .description('change the meta, the shared limits or the APIs of an identity')
    .option(...META)
    .option(...LIMITS)
    .option(
      '--api-ids <ids>',
      'the APIs in which the identity applies, such as billing,shop; empty = all',
      namesOrAll,
    )
    .addOption(waitOption())
    .action((externalId: string, { wait, ...fields }) =>
      update(session, 'updated', externalId, fields, wait),
    );
}

function addDisable(identities: Command, session: Session): void {
  identities
    .command('disable <externalId>')
    .description(
      'disable an identity, or create a disabled identity if there is none for these keys; when this returns, no verifier accepts any of its keys',
    )
    .addOption(waitOption())
    .action(async (externalId: string, { wait }) => {
      try {
        await update(session, 'disabled', externalId, { enabled: false }, wait);
      } catch (error) {
        if (!(error instanceof CliError) || error.code !== 'NOT_FOUND') throw error;
        // An external id without a key is mistyped, or is really the id of an identity.
        if (!(await hasKeys(session, externalId)))
          throw new CliError(
            'NO',
            `nothing was done: there is no identity of ${printable(externalId)}, and no key of it that the root key may read; give the external id of the keys, or create a disabled identity: identities create --disabled`,
            { code: 'NOT_FOUND' },
          );
        const input = { externalId, enabled: false, ...waitMs(wait) };
        const creation = await session.call<CreatedIdentity>('identities.createIdentity', input);
        printChange(session, `disabled ${printable(externalId)}`, creation);
      }
    });
}

function addEnable(identities: Command, session: Session): void {
  identities
    .command('enable <externalId>')
    .description('accept the keys of an identity again, except those that are disabled themselves')
    .addOption(waitOption())
    .action((externalId: string, { wait }) =>
      update(session, 'enabled', externalId, { enabled: true }, wait),
    );
}

function addDelete(identities: Command, session: Session): void {
  identities
    .command('delete <externalId>')
    .description('delete an identity; its keys stay')
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (externalId: string, { yes, wait }) => {
      await confirm(`delete the identity of ${externalId}`, yes === true);
      const { id: identityId } = await session.call<Identity>('identities.getIdentity', { externalId });
      const input = { identityId, ...waitMs(wait) };
      const response = await session.call<Change>('identities.deleteIdentity', input);
      printChange(session, `deleted ${printable(externalId)}`, response);
    });
}

async function hasKeys(session: Session, externalId: string): Promise<boolean> {
  const client = await session.controlPlane();
  const call: Client['call'] = (...request) => client.call(...request);
  for await (const { items } of pages<Api>(call, 'apis.listApis', {}, 'apis')) {
    for (const { id: apiId } of items) {
      const input = { apiId, externalId, limit: 1 };
      const { keys } = await call<{ keys: readonly unknown[] }>('apis.listKeys', input);
      if (keys.length > 0) return true;
    }
  }
  return false;
}

async function update(
  session: Session,
  verb: string,
  externalId: string,
  fields: object,
  wait: number | undefined,
) {
  const input = { externalId, ...fields, ...waitMs(wait) };
  const response = await session.call<Change>('identities.updateIdentity', input);
  printChange(session, `${verb} ${printable(externalId)}`, response);
}

/** Parses ids of APIs; `null` = all APIs. */
const namesOrAll = (text: string) => (names(text).length > 0 ? names(text) : null);

const waitMs = (seconds: number | undefined) => (seconds === undefined ? {} : { waitMs: seconds * 1000 });
