import type { Command } from 'commander';
import type { ChangeStatus } from '#shared/protocol/writer/writer.ts';
import type { Api } from '../answers.ts';
import type { Client } from '../client.ts';
import { CliError } from '../exit.ts';
import { commandAt, waitMsOf } from '../from-operations.ts';
import { pages } from '../pages.ts';
import type { Session } from '../session.ts';
import { printable } from '../terminal/output.ts';
import { afterTokens, confirm, printChange, waitOption } from '../terminal/print-change.ts';

type Change = { readonly propagation: ChangeStatus };

/** Adds `keyfence identities disable`, which creates the identity if there is none. */
export function disableIdentityCommand(program: Command, session: Session): void {
  const help =
    'disable an identity, or create a disabled identity if there is none for these keys; when this returns, no verifier accepts any of its keys';
  commandAt(program, 'identities disable <externalId>', help, ['identities disable ada'])
    .addOption(waitOption())
    .action(async (externalId: string, { wait }) => {
      const input = { externalId, enabled: false, ...waitMsOf(wait) };
      const change = await session.call<Change>('identities.updateIdentity', input).catch(async (error) => {
        if (!(error instanceof CliError) || error.code !== 'NOT_FOUND') throw error;
        // An external id without a key is mistyped, or is really the id of an identity.
        if (await hasKeys(session, externalId))
          return session.call<Change>('identities.createIdentity', input);
        const advice =
          'give the external id of the keys, or create a disabled identity: identities create --disabled';
        const message = `nothing was done: there is no identity of ${printable(externalId)}, and no key of it that the root key may read; ${advice}`;
        throw new CliError('NO', message, { code: 'NOT_FOUND' });
      });
      const propagation = await afterTokens(session, { ...change, ...waitMsOf(wait) }, change.propagation);
      printChange(session, `disabled ${printable(externalId)}`, { ...change, propagation });
    });
}

/** Adds `keyfence identities delete`, which finds the identity by its external id. */
export function deleteIdentityCommand(program: Command, session: Session): void {
  commandAt(program, 'identities delete <externalId>', 'delete an identity; its keys stay', [
    'identities delete grace --yes',
  ])
    .option('--yes', 'do not ask')
    .addOption(waitOption())
    .action(async (externalId: string, { yes, wait }) => {
      await confirm(session, `delete the identity of ${externalId}`, yes === true);
      const { id } = await session.call<{ id: string }>('identities.getIdentity', { externalId });
      const input = { identityId: id, ...waitMsOf(wait) };
      const change = await session.call<Change>('identities.deleteIdentity', input);
      const propagation = await afterTokens(session, input, change.propagation);
      printChange(session, `deleted ${printable(externalId)}`, { ...change, propagation });
    });
}

async function hasKeys(session: Session, externalId: string): Promise<boolean> {
  const client = await session.controlPlane();
  const call: Client['call'] = (...request) => client.call(...request);
  for await (const { items } of pages<Api>(call, 'apis.listApis', {}, 'apis')) {
    for (const { id: apiId } of items) {
      const { keys } = await call<{ keys: readonly unknown[] }>('apis.listKeys', {
        apiId,
        externalId,
        limit: 1,
      });
      if (keys.length > 0) return true;
    }
  }
  return false;
}
