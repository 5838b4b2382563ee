import type { Command } from 'commander';
import type { ListedEvent } from '../../core/audit-event.ts';
import { personName } from '../../core/person.ts';
import type { Session } from '../session.ts';
import { time } from '../terminal/output.ts';
import { addPageOptions, printListing } from '../terminal/print-listing.ts';
import { TimeOption } from '../times.ts';

/** Adds `keyfence audit`. */
export function auditCommand(program: Command, session: Session): void {
  const audit = program
    .command('audit')
    .description('who did what, the latest first')
    .option('--refused', 'refused calls instead of changes')
    .addOption(new TimeOption('--since <time>', 'leave out older events', { sign: '-', date: 'first' }))
    .addOption(new TimeOption('--until <time>', 'leave out later events', { sign: '-', date: 'last' }))
    .option('--operation <operation>', 'only this operation, such as keys.updateKey')
    .option('--api <apiId>', 'only calls on this API')
    .option('--key <keyId>', 'only calls on this key')
    .option('--by <rootKeyId>', 'only calls by this root key, or by the person with this id');
  addPageOptions(audit, 'events').action(({ refused, api, key, by, ...rest }) => {
    const query = { ...rest, apiId: api, keyId: key, rootKeyId: by, ...(refused ? { refused } : {}) };
    return printListing<ListedEvent>(session, 'audit.listEvents', 'events', query, {
      time: (event) => time(event.time),
      by: ({ by }) => (by.person ? personName(by.person) : by.rootKeyId),
      from: ({ by }) => by.address,
      operation: ({ operation }) => operation,
      outcome: ({ outcome }) => outcome,
      on: ({ on }) => on.keyId ?? on.rootKeyId ?? on.roleId ?? on.identityId ?? on.apiId,
      change: ({ before, after }) =>
        [before, after]
          .flatMap((state) => (state === undefined ? [] : [JSON.stringify(state)]))
          .join(' → ') || undefined,
    });
  });
}
